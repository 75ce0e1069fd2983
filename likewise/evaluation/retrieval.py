"""Retrieval: do items of the same label come first when all are ranked by cosine?"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import labelled

SCORES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Retrieval:
    """Shares of the queries, the mean average precision, and everything that they depend on.

    A query without an item of its label to be found cannot be right or wrong: it is `left_out`.
    """

    recall: dict[int, float]  # by k: the share of queries with one of their label among the k nearest
    mean_average_precision: float  # over the whole ranking
    queries: int
    gallery: int
    left_out: int


@torch.no_grad()
def retrieval(
    queries: Tensor, query_labels: Tensor, gallery: Tensor, gallery_labels: Tensor, *, ks: tuple[int, ...] = (1, 5, 10)
) -> Retrieval:
    """How well labelled `queries` (m, d) find the items of their label in `gallery` (n, d); labels −1 are left out."""
    queries, query_labels = labelled("queries", queries, query_labels)
    gallery, gallery_labels = labelled("gallery", gallery, gallery_labels)
    if not ks or min(ks) < 1:
        raise ValueError(f"ks must be whole numbers >= 1, got {ks}")
    findable = torch.isin(query_labels, gallery_labels)
    if not findable.any():
        raise ValueError("gallery must have an item of a query's label, got none")
    asked, asked_labels = queries[findable], query_labels[findable]
    gallery = normalize(gallery, dim=1)
    rank = torch.arange(1, len(gallery) + 1, dtype=torch.float64, device=gallery.device)
    found, precision = dict.fromkeys(ks, 0), 0.0
    height = max(1, SCORES_AT_ONCE // len(gallery))
    for rows, labels in zip(torch.split(asked, height), torch.split(asked_labels, height), strict=True):
        order = (normalize(rows, dim=1) @ gallery.T).argsort(dim=1, descending=True)
        right = gallery_labels[order] == labels[:, None]  # (m, n), most alike first
        for k in ks:
            found[k] += int(right[:, :k].any(dim=1).sum())
        hits = right.cumsum(dim=1)
        precision += float((hits / rank).where(right, 0).sum(dim=1).div(hits[:, -1]).sum())
    return Retrieval(
        recall={k: count / len(asked) for k, count in found.items()},
        mean_average_precision=precision / len(asked),
        queries=len(asked),
        gallery=len(gallery),
        left_out=len(queries) - len(asked),
    )
