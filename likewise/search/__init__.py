"""Search embeddings by cosine, and find near-duplicates, outliers and labels that look wrong.

index = Index.build(vectors, belongs_to=fingerprint)
similarity, places = index.search(queries, k=10)
index.save(folder); Index.load(folder, belongs_to=fingerprint)
duplicates(index, 0.95); outliers(index, 20); suspects(index, labels, 20)
"""

from likewise.search.duplicates import Group, duplicates
from likewise.search.index import Index, SearchError
from likewise.search.outliers import Outlier, outliers
from likewise.search.suspects import Suspect, suspects

__all__ = ["Group", "Index", "Outlier", "SearchError", "Suspect", "duplicates", "outliers", "suspects"]
