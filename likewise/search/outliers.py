"""The loneliest items: those least like their nearest others."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.search import exact
from likewise.search.exact import Places, Rows, SearchError
from likewise.search.index import Index


@dataclass(frozen=True)
class Outlier:
    """An item, and its mean cosine with its nearest others."""

    place: int
    similarity: float


def outliers(index_or_vectors: Index | NDArray[Any], n: int, k: int = 10) -> list[Outlier]:
    """The n items with the smallest mean cosine to their k nearest others, the loneliest first; exact for every kind.

    An index that misses a neighbour makes an item lonelier than it is, never less so. So the loneliest by the index
    are compared with every item, until nobody who is left can be among the n.
    """
    index = Index.of(index_or_vectors)
    if len(index) < 2 or n < 1 or k < 1:
        raise SearchError(
            f"outliers must be of two or more items, n and k at least 1, got {len(index)} items, n {n} and k {k}"
        )
    means = np.concatenate([_means(similarity) for _, similarity, _ in index.neighbours(k)])  # (items,)
    order = np.argsort(means, kind="stable")
    if index.structure is None:
        return _listed(order[:n], means)
    looked_at = 0
    while True:
        some = order[looked_at : looked_at + max(100, n)]
        means[some] = _means(exact.search(index.vectors, index.vectors[some], min(k, len(index) - 1), some)[0])
        looked_at += len(some)
        known = order[:looked_at]
        known = known[np.lexsort((known, means[known]))]
        if looked_at == len(order) or (looked_at >= n and means[known[n - 1]] <= means[order[looked_at]]):
            return _listed(known[:n], means)


def _means(similarity: Rows) -> NDArray[np.float64]:
    means: NDArray[np.float64] = similarity.mean(axis=1, dtype=np.float64)
    return means


def _listed(places: Places, means: NDArray[np.float64]) -> list[Outlier]:
    return [Outlier(int(place), float(means[place])) for place in places]
