"""Find outliers: the items least similar to their nearest neighbours."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.search import exact
from likewise.search.exact import Places, Rows, SearchError
from likewise.search.index import Index


@dataclass(frozen=True)
class Outlier:
    """An item, and its mean cosine with its nearest neighbours."""

    place: int
    similarity: float


def outliers(index_or_vectors: Index | NDArray[Any], n: int, k: int = 10) -> list[Outlier]:
    """Return the n items with the smallest mean cosine to their k nearest neighbours, the smallest first.

    The result is exact for every kind of index. An index that misses a neighbour can only make the mean cosine too
    small. So the items with the smallest means are compared with all items, until no other item can be among the n.
    """
    index = Index.of(index_or_vectors)
    if len(index) < 2 or n < 1 or k < 1:
        raise SearchError(
            f"outliers need at least two items, and n and k at least 1, got {len(index)} items, n {n} and k {k}"
        )
    means = np.concatenate([_means(similarity) for _, similarity, _ in index.neighbours(k)])  # (items,)
    order = np.argsort(means, kind="stable")
    if index.structure is None:
        return _listed(order[:n], means)
    checked = 0
    while True:
        block = order[checked : checked + max(100, n)]
        means[block] = _means(exact.search(index.vectors, index.vectors[block], min(k, len(index) - 1), block)[0])
        checked += len(block)
        exactly_known = order[:checked]
        exactly_known = exactly_known[np.lexsort((exactly_known, means[exactly_known]))]
        if checked == len(order) or (checked >= n and means[exactly_known[n - 1]] <= means[order[checked]]):
            return _listed(exactly_known[:n], means)


def _means(similarity: Rows) -> NDArray[np.float64]:
    means: NDArray[np.float64] = similarity.mean(axis=1, dtype=np.float64)
    return means


def _listed(places: Places, means: NDArray[np.float64]) -> list[Outlier]:
    return [Outlier(int(place), float(means[place])) for place in places]
