"""Find labels that look wrong, because the neighbours of the item have another label.

Each of the k nearest labelled items votes for its label with weight exp(s / T), where s is the cosine, as in the k-NN
of Wu et al., 2018. An item is suspect if another label gets more votes than its own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.search.exact import Places, Rows, SearchError, slices
from likewise.search.index import Index

COMPARED_AT_ONCE = 2**22  # pairs of labels
DECIMALS = 9  # of a share, so that ties do not depend on the order in which votes are added


@dataclass(frozen=True)
class Suspect:
    """An item with a label that its neighbours contradict."""

    place: int
    label: int
    suggested: int
    share: float  # of the votes that are for the suggested label
    own: float  # share of the votes that are for its own label


def suspects(
    index_or_vectors: Index | NDArray[Any], labels: NDArray[Any], n: int, k: int = 10, *, temperature: float = 0.07
) -> list[Suspect]:
    """Return at most n suspect items, ordered by how far the suggested label is ahead of their own label.

    `labels` (items,) are whole numbers. Items with −1 have no label: they are not suspected and do not vote. If there
    are any, a new index is built over the labelled items alone.
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
        raise SearchError(f"suspects need at least two labelled items, got {len(labelled)}")
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
    """Return the other label with the most votes (m,), the smaller one on a tie, its share, and that of the own label.

    Shapes: labels (m,), voted and similarity (m, k).
    """
    weights = np.exp((similarity.astype(np.float64) - similarity[:, :1]) / temperature)
    total = weights.sum(axis=1, keepdims=True)
    same = voted[:, :, None] == voted[:, None, :]
    shares = ((same * weights[:, None, :]).sum(axis=2) / total).round(DECIMALS)  # (m, k): of each voter's label
    agrees = voted == labels[:, None]
    others = np.where(agrees, 0.0, shares)
    best = others.max(axis=1)
    winners = (others == best[:, None]) & ~agrees
    suggested = np.where(winners, voted, np.iinfo(np.int64).max).min(axis=1)
    return suggested, best, np.where(agrees, shares, 0.0).max(axis=1)
