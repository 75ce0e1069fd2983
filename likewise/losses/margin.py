"""Losses with a margin between distances, older than the softmax losses: pairs and triplets.

Hadsell et al., 2006 (pairs); Schroff et al., 2015 (triplets).
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from likewise import ranks
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
from likewise.losses.kind import LossKind, Module
from likewise.losses.look_up import LookUp
from likewise.losses.masks import Mask, as_columns, share_an_id
from likewise.losses.similarity import unit

PAIRS_AT_ONCE = 2**16


@full_precision
def pair_margin(a: Tensor, b: Tensor, same: Tensor, *, margin: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    """Pull pairs that are the same together, and push others apart until their distance is `margin`.

    Hadsell et al., 2006: `½ D²` for pairs that are the same, `½ max(0, margin − D)²` for others, where D is
    the Euclidean distance of the rows as given (subgradient 0 at D = 0). Shapes: a (n, d), b (n, d), same (n,) bool.
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
    """Keep each negative farther from its anchor than the positive is, by at least `margin`.

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
    """Return the row (n,) of each anchor's semi-hard negative: the nearest candidate farther than the positive.

    Schroff et al., 2015. If all candidates are nearer than the positive, it is the farthest of them. A
    candidate that shares an id with the anchor does not count, and an anchor without candidates gets −1.
    Shapes: anchor (n, d), positive (n, d), candidates (k, d).
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
    Mask(query_ids, key_ids).hide(scores, slice(0, len(scores)), slice(0, scores.shape[1]))
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


def _score_pairs(loss: Module, step: LookUp) -> Tensor:
    """Score every pair of the batch, and add the mean over pairs that are the same to the mean over others.

    Separate means, because there are far more others. To save memory, one block of rows at a time is compared with
    all rows, and is computed again in backward.
    """
    rows = torch.cat([ranks.gather(step.query), step.found.negatives])  # the dictionary is the batch of all ranks
    ids = as_columns(step.found.negative_ids).repeat(2, 1)
    same = share_an_id(ids, ids).triu(diagonal=1)
    others = (~same).triu(diagonal=1)
    height = max(1, PAIRS_AT_ONCE // len(rows))

    def block(rows: Tensor, start: int) -> Tensor:
        """Return the sums (2,) over pairs of `height` rows with all rows: those that are the same, and others."""
        first = rows[start : start + height]
        a, b = first.repeat_interleave(len(rows), dim=0), rows.repeat(len(first), 1)
        is_same, is_other = (mask[start : start + height].flatten() for mask in (same, others))
        values = loss(a, b, is_same)
        return torch.stack([values.where(is_same, 0).sum(), values.where(is_other, 0).sum()])

    starts = range(0, len(rows), height)
    sums = torch.stack([checkpoint(block, rows, start, use_reentrant=False) for start in starts]).sum(dim=0)
    counts = torch.stack([same.sum(), others.sum()]).clamp(min=1)  # if the batch is one group, there are no others
    return (sums / counts).sum()


def _score_triplets(loss: Module, step: LookUp) -> Tensor:
    positive, negatives, negative_ids = step.found
    chosen = semi_hard(step.query, positive, negatives, query_ids=step.ids, key_ids=negative_ids)
    # A query without a negative (the queue is still empty, or the batch is one group) counts 0, so any row will do.
    negative = negatives[chosen.clamp(min=0)] if len(negatives) else step.query.detach()
    return loss(step.query, positive, negative).where(chosen >= 0, 0).mean()


PAIRS = LossKind(
    "pair_margin",
    lambda options, items: PairMargin(margin=options.margin, reduction="none"),
    _score_pairs,
    ("margin",),
    within_batch=True,
    one_tower=True,
    is_symmetric=True,
    by_margin=True,
)
TRIPLETS = LossKind(
    "triplet",
    lambda options, items: Triplet(margin=options.margin, reduction="none"),
    _score_triplets,
    ("margin",),
    by_margin=True,
    defaults={"loss.margin": (0.2, "the paper's value for triplets of unit rows")},
)
