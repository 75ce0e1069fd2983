"""Sigmoid loss: for every image and caption of the batch, do the two belong together, yes or no?

Zhai et al., 2023 (SigLIP).
"""

import torch
from torch import Tensor, nn

from likewise.losses import streamed
from likewise.losses.info_nce import score_both_directions
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_bias,
    check_ids,
    check_one_device,
    check_reduction,
    check_rows,
    check_temperature,
    full_precision,
    reduce,
    working_dtype,
)
from likewise.losses.kind import LossKind
from likewise.losses.masks import Mask
from likewise.losses.similarity import unit
from likewise.losses.temperature import Tempered


@full_precision
def sigmoid(
    a: Tensor,
    b: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    bias: float | Tensor = -10.0,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute `-(1/n) Σ_i Σ_j log σ(±(s_ij + bias))`, plus for pairs that belong together, minus for others.

    Zhai et al., 2023. Shapes: a (n, d), b (n, d), ids (n,) or (n, g); cosine similarity. Pairs that
    share an id are not each other's negatives; a pair with id -1 is left out. Reduction "none" returns
    (n,), the sum over j for each row.
    """
    check_rows(a=a, b=b)
    check_temperature(temperature)
    check_bias(bias)
    check_reduction(reduction)
    check_one_device(a=a, b=b, ids=ids)
    if ids is not None:
        check_ids("ids", ids, (len(a),))
    dtype = working_dtype(a, b)
    bias = as_scalar(bias, dtype)
    query, keys = unit(a.to(dtype)) / as_scalar(temperature, dtype), unit(b.to(dtype))
    pair = (query * keys).sum(dim=1) + bias
    # Add the bias as one more coordinate: ⟨(query, bias), (key, 1)⟩ = s + bias.
    ones = query.new_ones(len(query), 1)
    mask = Mask(ids, ids, own=(0,))
    others = streamed.softplus_sum(torch.cat([query, ones * bias], dim=1), torch.cat([keys, ones], dim=1), mask)
    return reduce(streamed.exact_softplus(-pair) + others, reduction, mask.valid)


class Sigmoid(Tempered):
    """`sigmoid` as a module; `learnable` makes both the temperature and the bias parameters."""

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        bias: float = -10.0,
        reduction: Reduction = "mean",
        learnable: bool = False,
    ) -> None:
        super().__init__(temperature, learnable=learnable)
        check_bias(bias)
        check_reduction(reduction)
        self.bias = nn.Parameter(torch.tensor(float(bias))) if learnable else bias
        self.reduction = reduction

    def forward(self, a: Tensor, b: Tensor, *, ids: Tensor | None = None) -> Tensor:
        return sigmoid(a, b, temperature=self.temperature, bias=self.bias, ids=ids, reduction=self.reduction)


KIND = LossKind(
    "sigmoid",
    lambda options, items: Sigmoid(temperature=options.temperature, learnable=options.learnable),
    score_both_directions,
    within_batch=True,
    is_symmetric=True,
    defaults={"loss.temperature": (0.1, "SigLIP's initial value")},
)
