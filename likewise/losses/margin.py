"""The losses of distances and margins, older than the softmax ones: pairs and triplets.

Hadsell et al., 2006 (pairs); Schroff et al., 2015 (triplets).
"""

import torch
from torch import Tensor, nn

from likewise.losses.inputs import (
    Reduction,
    check_id_pair,
    check_margin,
    check_negatives,
    check_one_device,
    check_reduction,
    check_rows,
    check_same,
    full_precision,
    reduce,
    working_dtype,
)
from likewise.losses.masks import Mask
from likewise.losses.similarity import unit


@full_precision
def pair_margin(a: Tensor, b: Tensor, same: Tensor, *, margin: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    """Pull pairs that are the same together, push others apart until `margin`.

    Hadsell et al., 2006: `½ D²` where same, `½ max(0, margin − D)²` where not, D the Euclidean
    distance of rows as given (subgradient 0 at D = 0). Shapes: a (n, d), b (n, d), same (n,) bool.
    """
    check_rows(a=a, b=b)
    check_same(same, len(a))
    check_margin(margin)
    check_reduction(reduction)
    check_one_device(a=a, b=b, same=same)
    dtype = working_dtype(a, b)
    difference = a.to(dtype) - b.to(dtype)
    pull = difference.square().sum(dim=1)
    push = (float(margin) - torch.linalg.vector_norm(difference, dim=1)).clamp(min=0).square()
    return reduce(torch.where(same, pull, push) / 2, reduction)


@full_precision
def triplet(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float = 0.2, reduction: Reduction = "mean"
) -> Tensor:
    """Keep each negative farther from its anchor than the positive, by `margin`.

    Schroff et al., 2015: `max(0, margin + D²(anchor, positive) − D²(anchor, negative))` on unit
    rows. Shapes: (n, d) each.
    """
    check_rows(anchor=anchor, positive=positive, negative=negative)
    check_margin(margin)
    check_reduction(reduction)
    check_one_device(anchor=anchor, positive=positive, negative=negative)
    dtype = working_dtype(anchor, positive, negative)
    anchor, positive, negative = (unit(rows.to(dtype)) for rows in (anchor, positive, negative))
    near = (anchor - positive).square().sum(dim=1)
    far = (anchor - negative).square().sum(dim=1)
    return reduce((float(margin) + near - far).clamp(min=0), reduction)


@torch.no_grad()
def semi_hard(
    anchor: Tensor,
    positive: Tensor,
    candidates: Tensor,
    *,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    """For each anchor the place (n,) of its semi-hard negative: the nearest of those farther than the positive.

    Schroff et al., 2015. Where all are nearer than the positive it is the farthest. A candidate that
    shares an id with the anchor is not one; an anchor that has none gets −1. Shapes: anchor (n, d),
    positive (n, d), candidates (k, d).
    """
    check_rows(anchor=anchor, positive=positive)
    check_negatives(candidates, anchor, per_query=False)
    check_id_pair(query_ids, key_ids, (len(anchor),), (len(candidates),))
    if not len(candidates):
        return torch.full((len(anchor),), -1, device=anchor.device)
    dtype = working_dtype(anchor, positive, candidates)
    anchor, positive, candidates = (unit(rows.to(dtype)) for rows in (anchor, positive, candidates))
    near = (anchor * positive).sum(dim=1, keepdim=True)
    scores = anchor @ candidates.T  # (n, k): on unit rows a larger product is a smaller distance
    Mask(query_ids, key_ids).hide(scores, slice(0, len(scores)), slice(0, scores.shape[1]))  # −inf
    farther = scores.where(scores < near, -torch.inf)
    farthest = scores.where(scores > -torch.inf, torch.inf).argmin(dim=1)
    chosen = torch.where((farther > -torch.inf).any(dim=1), farther.argmax(dim=1), farthest)
    return chosen.where((scores > -torch.inf).any(dim=1), -1)


class PairMargin(nn.Module):
    """`pair_margin` as a module."""

    def __init__(self, *, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_margin(margin)
        check_reduction(reduction)
        self.margin, self.reduction = margin, reduction

    def forward(self, a: Tensor, b: Tensor, same: Tensor) -> Tensor:
        return pair_margin(a, b, same, margin=self.margin, reduction=self.reduction)


class Triplet(nn.Module):
    """`triplet` as a module."""

    def __init__(self, *, margin: float = 0.2, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_margin(margin)
        check_reduction(reduction)
        self.margin, self.reduction = margin, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return triplet(anchor, positive, negative, margin=self.margin, reduction=self.reduction)
