"""DCL: InfoNCE without the positive in the denominator, so that easy pairs do not shrink the gradient.

Yeh et al., 2021 (decoupled contrastive learning), and DCLW, which gives pairs that are far apart more weight.
"""

import math

import torch
from torch import Tensor

from likewise import ranks
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_ids,
    check_number,
    check_one_device,
    check_reduction,
    check_rows,
    check_temperature,
    full_precision,
    reduce,
    working_dtype,
)
from likewise.losses.kind import LossKind, Module
from likewise.losses.look_up import LookUp
from likewise.losses.masks import Mask
from likewise.losses.negatives import NegativesWithin, SharedNegatives
from likewise.losses.similarity import cosine_bound, prepare, unit
from likewise.losses.temperature import Tempered
from likewise.recipe import Loss


@full_precision
def dcl(
    a: Tensor,
    b: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    sigma: float = 0.0,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute InfoNCE without the positive in the denominator: `-w s+ + log Σ_j e^{s-_j}`, over 2n rows.

    Yeh et al., 2021. The negatives of a row are all rows except itself and its partner. Shapes: a (n, d), b (n, d),
    row i of one is the partner of row i of the other; ids (n,) or (n, g); cosine similarity. Items that share an id
    are not each other's negatives. An item with id -1 and a row without negatives are left out. With `sigma` 0 the
    weight w is 1. Otherwise (DCLW; the paper's sigma is 0.5) it is `2 - e^{c / sigma} / mean(e^{c / sigma})`, where c
    is the cosine of a pair. Reduction "none" returns (2n,), first the rows of `a`, then those of `b`.
    """
    check_rows(a=a, b=b)
    check_temperature(temperature)
    check_sigma(sigma)
    check_reduction(reduction)
    check_one_device(a=a, b=b, ids=ids)
    n, dtype = len(a), working_dtype(a, b)
    if ids is not None:
        check_ids("ids", ids, (n,))
        ids = torch.cat([ids, ids])
    temperature = as_scalar(temperature, dtype)
    # Both sides are divided by the square root of the temperature, so the scores are symmetric: rows @ rows.T.
    rows = unit(torch.cat([a, b]).to(dtype)) * temperature**-0.5
    mask = Mask(ids, ids, own=(0, n, -n))
    log_sum = NegativesWithin(rows, mask, cosine_bound(temperature), lowest=-1 / temperature).log_sum()
    positive = (rows[:n] * rows[n:]).sum(dim=1).repeat(2)
    cosine = positive * temperature
    weight = _weight(cosine, cosine, mask.valid, sigma)
    return _decoupled(positive * weight, log_sum, mask.valid, reduction)


def check_sigma(sigma: float) -> None:
    check_number("sigma", sigma)
    if not 0 <= sigma < float("inf"):
        raise ValueError(f"sigma must be positive, or 0 for no weights, got {sigma:g}")


def _weight(cosine: Tensor, of_all: Tensor, valid: Tensor | None, sigma: float) -> Tensor | float:
    """Return DCLW's weights (n,) of pairs with these cosines (n,), given the cosines (m,) of all pairs."""
    if not sigma:
        return 1.0
    scores = of_all / sigma if valid is None else (of_all / sigma).masked_fill(~valid, -torch.inf)
    log_count = math.log(len(of_all)) if valid is None else valid.sum().to(scores.dtype).clamp(min=1).log()
    log_mean = scores.logsumexp(dim=0) - log_count
    weight = 2 - (cosine / sigma - log_mean).exp()
    return weight if valid is None else weight.where(log_mean > -torch.inf, 1)


def _decoupled(positive: Tensor, log_sum: Tensor, valid: Tensor | None, reduction: Reduction) -> Tensor:
    has_negatives = log_sum > -torch.inf
    valid = has_negatives if valid is None else valid & has_negatives
    return reduce(log_sum.where(has_negatives, 0) - positive.where(has_negatives, 0), reduction, valid)


class DCL(Tempered):
    """`dcl` as a module."""

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        sigma: float = 0.0,
        reduction: Reduction = "mean",
        learnable: bool = False,
    ) -> None:
        super().__init__(temperature, learnable=learnable)
        check_sigma(sigma)
        check_reduction(reduction)
        self.sigma, self.reduction = sigma, reduction

    def forward(self, a: Tensor, b: Tensor, *, ids: Tensor | None = None) -> Tensor:
        return dcl(a, b, temperature=self.temperature, sigma=self.sigma, ids=ids, reduction=self.reduction)


def _build(options: Loss, items: int) -> DCL:
    return DCL(temperature=options.temperature, sigma=options.sigma, learnable=options.learnable)


def _score(loss: Module, step: LookUp) -> Tensor:
    if ranks.count() == 1:
        ids = step.ids_if_needed
        return loss(step.query[0::2], step.query[1::2], ids=None if ids is None else ids[0::2])
    assert isinstance(loss, DCL)
    # The candidates are the rows of all ranks. A row and its partner are masked by their id, so the loss is the same.
    dtype = working_dtype(step.query)
    temperature = as_scalar(loss.temperature, dtype)
    prepared, mask = prepare("cosine", step.query, temperature, dtype), Mask(step.ids, step.found.negative_ids)
    log_sum = SharedNegatives(prepared, prepared.key_rows(step.found.negatives), mask).log_sum()
    positive = (prepared.query * prepared.key_rows(step.found.positive)).sum(dim=1)
    cosine, valid = positive * temperature, mask.valid
    assert valid is not None
    weight = _weight(cosine, ranks.gather(cosine), ranks.gather(valid), loss.sigma)
    return _decoupled(positive * weight, log_sum, mask.valid, loss.reduction)


KIND = LossKind(
    "dcl",
    _build,
    _score,
    ("temperature", "learnable", "sigma"),
    within_batch=True,
    one_tower=True,
    asks_both_views=True,
)
