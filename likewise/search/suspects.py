"""Labels that look wrong: those that an item's neighbours contradict.

Each of the k nearest labelled others votes for its label with exp(s / T), s the cosine, as in the k-NN of Wu et al.,
2018. An item is suspect where one other label has more of the votes than its own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.search.exact import Places, Rows, SearchError, slices
from likewise.search.index import Index

COMPARED_AT_ONCE = 2**22  # labels with labels
DECIMALS = 9  # of a share: what is equal is so in whatever order votes were added up


@dataclass(frozen=True)
class Suspect:
    """An item whose label its neighbours contradict."""

    place: int
    label: int
    suggested: int
    share: float  # of the votes, for the suggested label
    own: float  # of the votes, for its own


def suspects(
    index_or_vectors: Index | NDArray[Any], labels: NDArray[Any], n: int, k: int = 10, *, temperature: float = 0.07
) -> list[Suspect]:
    """At most n items, first those whose suggested label is furthest ahead of their own.

    `labels` (items,) are whole numbers; items with −1 have none: they are not suspected and have no vote. Where some
    have none, those that have are searched by an index of their own.
    """
    index, labels = Index.of(index_or_vectors), np.asarray(labels)
    if labels.shape != (len(index),) or not np.issubdtype(labels.dtype, np.integer):
        raise SearchError(
            f"labels must be one whole number for each of {len(index)} items, got {labels.dtype} {labels.shape}"
        )
    if n < 1 or k < 1 or not temperature > 0:
        raise SearchError(f"n and k must be at least 1, temperature positive, got {n}, {k} and {temperature:g}")
    labelled = np.flatnonzero(labels >= 0)
    if len(labelled) < 2:
        raise SearchError(f"suspects must be among two or more labelled items, got {len(labelled)}")
    labels = labels[labelled].astype(np.int64)
    if len(labelled) < len(index):
        kind = "flat" if index.kind == "flat" else "auto"
        index = Index.build(index.vectors[labelled], kind, belongs_to=index.belongs_to)
    suggested, share, own = np.empty(len(labelled), dtype=np.int64), np.empty(len(labelled)), np.empty(len(labelled))
    for items, similarity, places in index.neighbours(k):
        for part in slices(len(items), COMPARED_AT_ONCE // places.shape[1] ** 2):
            votes = _votes(labels[items[part]], labels[places[part]], similarity[part], temperature)
            suggested[items[part]], share[items[part]], own[items[part]] = votes
    ahead = share - own
    order = np.argsort(-ahead, kind="stable")[:n]
    return [
        Suspect(int(labelled[item]), int(labels[item]), int(suggested[item]), float(share[item]), float(own[item]))
        for item in order
        if ahead[item] > 0
    ]


def _votes(
    labels: Places, voted: Places, similarity: Rows, temperature: float
) -> tuple[Places, NDArray[np.float64], NDArray[np.float64]]:
    """The other label with the largest share of the votes (m,), the smaller of two; its share, and that of their own.

    Shapes: labels (m,), voted and similarity (m, k).
    """
    weights = np.exp((similarity.astype(np.float64) - similarity[:, :1]) / temperature)
    total = weights.sum(axis=1, keepdims=True)
    same = voted[:, :, None] == voted[:, None, :]
    shares = ((same * weights[:, None, :]).sum(axis=2) / total).round(DECIMALS)  # of each voter's label
    agrees = voted == labels[:, None]
    others = np.where(agrees, 0.0, shares)
    best = others.max(axis=1)
    winners = (others == best[:, None]) & ~agrees
    suggested = np.where(winners, voted, np.iinfo(np.int64).max).min(axis=1)
    return suggested, best, np.where(agrees, shares, 0.0).max(axis=1)
