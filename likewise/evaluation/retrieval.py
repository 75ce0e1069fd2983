"""Retrieval: do items with the same label come first when all items are ranked by cosine?"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import labelled

SCORES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Retrieval:
    """Recall and mean average precision, with everything that they depend on.

    Queries whose label does not occur in the gallery are not counted, but reported as `left_out`.
    """

    recall: dict[int, float]  # by k: the share of queries with an item of their label among the k nearest
    mean_average_precision: float  # over the whole ranking
    queries: int
    gallery: int
    left_out: int


@torch.no_grad()
def retrieval(
    queries: Tensor, query_labels: Tensor, gallery: Tensor, gallery_labels: Tensor, *, ks: tuple[int, ...] = (1, 5, 10)
) -> Retrieval:
    """Measure how well `queries` (m, d) find items with their label in `gallery` (n, d); labels −1 are left out."""
    queries, query_labels = labelled("query embeddings", queries, query_labels)
    gallery, gallery_labels = labelled("gallery embeddings", gallery, gallery_labels)
    if not ks or min(ks) < 1:
        raise ValueError(f"ks must be whole numbers >= 1, got {ks}")
    has_match = torch.isin(query_labels, gallery_labels)
    if not has_match.any():
        raise ValueError("gallery must have an item with the label of a query, got none")
    counted, counted_labels = queries[has_match], query_labels[has_match]
    gallery = normalize(gallery, dim=1)
    rank = torch.arange(1, len(gallery) + 1, dtype=torch.float64, device=gallery.device)
    right_within, precision = dict.fromkeys(ks, 0), 0.0  # queries with a hit among the first k
    height = max(1, SCORES_AT_ONCE // len(gallery))
    for rows, labels in zip(torch.split(counted, height), torch.split(counted_labels, height), strict=True):
        order = (normalize(rows, dim=1) @ gallery.T).argsort(dim=1, descending=True)
        right = gallery_labels[order] == labels[:, None]  # (m, n), most similar first
        for k in ks:
            right_within[k] += int(right[:, :k].any(dim=1).sum())
        hits = right.cumsum(dim=1)
        precision += float((hits / rank).where(right, 0).sum(dim=1).div(hits[:, -1]).sum())
    return Retrieval(
        recall={k: count / len(counted) for k, count in right_within.items()},
        mean_average_precision=precision / len(counted),
        queries=len(counted),
        gallery=len(gallery),
        left_out=len(queries) - len(counted),
    )
