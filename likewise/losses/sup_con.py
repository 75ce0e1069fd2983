"""SupCon: all items of one label are each other's positives.

Khosla et al., 2020, the form they call L_out: the mean over positives stands outside the logarithm.
"""

import torch
from torch import Tensor

from likewise import ranks
from likewise.losses import streamed
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_labels,
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
from likewise.losses.similarity import cosine_bound, unit
from likewise.losses.temperature import Tempered


@full_precision
def sup_con(
    features: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of finding an anchor's positives among all other rows, averaged over the positives.

    Khosla et al., 2020. Shapes: features (n, d), labels (n,); two views of an item are two rows with
    one label; cosine similarity. A row with label -1 has no label and is a negative of all others. An
    anchor without a positive counts 0 and is left out of the mean. Losses near 0, which are only possible
    with one positive per anchor, are as exact as the scores are rounded; `nt_xent` is exact there.
    """
    check_rows(features=features)
    check_labels(labels, len(features))
    check_temperature(temperature)
    check_reduction(reduction)
    check_one_device(features=features, labels=labels)
    labels, dtype = labels.to(torch.int64), working_dtype(features)
    temperature = as_scalar(temperature, dtype)
    rows = unit(features.to(dtype)) * temperature**-0.5
    log_sum = streamed.log_sum_exp_within(rows, Mask(own=(0,)), cosine_bound(temperature))
    # The mean of the positives' scores is the score of the positives' mean, which needs no (n, n) matrix.
    _, label, count = labels.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    positives = (count[label] - 1).to(rows.dtype)
    total = rows.new_zeros(len(count), rows.shape[1]).index_add(0, label, rows)
    mean = (total[label] - rows) / positives.clamp(min=1)[:, None]
    has_positive = (positives > 0) & (labels >= 0)
    losses = log_sum.where(has_positive, 0) - (rows * mean).sum(dim=1)
    return reduce(losses, reduction, has_positive)


class SupCon(Tempered):
    """`sup_con` as a module."""

    def __init__(self, *, temperature: float = 0.1, reduction: Reduction = "mean", learnable: bool = False) -> None:
        super().__init__(temperature, learnable=learnable)
        check_reduction(reduction)
        self.reduction = reduction

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return sup_con(features, labels, temperature=self.temperature, reduction=self.reduction)


def _score(loss: Module, step: LookUp) -> Tensor:
    assert step.labels is not None
    rows = torch.cat([ranks.gather(step.query), step.found.negatives])
    return loss(rows, ranks.gather(step.labels).repeat(2))


KIND = LossKind(
    "sup_con",
    lambda options, items: SupCon(temperature=options.temperature, learnable=options.learnable),
    _score,
    within_batch=True,
    one_tower=True,
    is_symmetric=True,
    needs_labels=True,
)
