"""NT-Xent: two views of each item, where each view must find the other one among the views of the batch.

Sohn, 2016; named and made popular by SimCLR (Chen et al., 2020).
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from likewise import ranks
from likewise.losses import streamed
from likewise.losses.info_nce import info_nce
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_ids,
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
from likewise.losses.negatives import NegativesWithin
from likewise.losses.policies import Policy, check_policy, lookup_loss, parse_policy
from likewise.losses.similarity import cosine_bound, unit
from likewise.losses.temperature import Tempered
from likewise.recipe import Loss


@full_precision
def nt_xent(
    a: Tensor,
    b: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    ids: Tensor | None = None,
    policy: Policy | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute InfoNCE over 2n rows: each row's negatives are the 2n - 2 that are neither itself nor its partner.

    Chen et al., 2020. Shapes: a (n, d), b (n, d), row i of one is the partner of row i of the other;
    ids (n,) or (n, g); cosine similarity. Items that share an id are not each other's negatives; an
    item with id -1 is left out. Reduction "none" returns (2n,), first the rows of `a`, then those of `b`.
    """
    check_rows(a=a, b=b)
    check_temperature(temperature)
    check_reduction(reduction)
    check_policy(policy)
    check_one_device(a=a, b=b, ids=ids)
    n, dtype = len(a), working_dtype(a, b)
    if ids is not None:
        check_ids("ids", ids, (n,))
        ids = torch.cat([ids, ids])
    temperature = as_scalar(temperature, dtype)
    # Both sides are divided by the square root of the temperature, so the scores are symmetric: rows @ rows.T.
    rows = unit(torch.cat([a, b]).to(dtype)) * temperature**-0.5
    if ids is None and policy is None and (2 * n) ** 2 <= streamed.SMALL:
        scores = (rows @ rows.T).fill_diagonal_(-torch.inf)
        partner = torch.arange(2 * n, device=a.device).roll(n)
        return cross_entropy(scores, partner, reduction=reduction)
    mask = Mask(ids, ids, own=(0, n, -n))
    if policy is None:
        log_sum, partner = streamed.log_sum_exp_pairs(rows, mask, cosine_bound(temperature))
        return reduce(streamed.exact_softplus(log_sum - partner), reduction, mask.valid)
    negatives = NegativesWithin(rows, mask, cosine_bound(temperature), lowest=-1 / temperature)
    positive = (rows[:n] * rows[n:]).sum(dim=1)
    return lookup_loss(torch.cat([positive, positive]), negatives, policy, reduction)


class NTXent(Tempered):
    """`nt_xent` as a module."""

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        policy: Policy | None = None,
        reduction: Reduction = "mean",
        learnable: bool = False,
    ) -> None:
        super().__init__(temperature, learnable=learnable)
        check_policy(policy)
        check_reduction(reduction)
        self.policy, self.reduction = policy, reduction

    def forward(self, a: Tensor, b: Tensor, *, ids: Tensor | None = None) -> Tensor:
        return nt_xent(a, b, temperature=self.temperature, ids=ids, policy=self.policy, reduction=self.reduction)


def _build(options: Loss, items: int) -> NTXent:
    policy = parse_policy(options.policy)
    return NTXent(temperature=options.temperature, policy=policy, learnable=options.learnable)


def _score(loss: Module, step: LookUp) -> Tensor:
    if ranks.count() == 1:
        ids = step.ids_if_needed
        return loss(step.query[0::2], step.query[1::2], ids=None if ids is None else ids[0::2])
    assert isinstance(loss, NTXent)
    # The candidates are the rows of all ranks. A row and its partner are masked by their id, so the loss is the same.
    return info_nce(
        step.query,
        *step.found[:2],
        temperature=loss.temperature,
        policy=loss.policy,
        query_ids=step.ids,
        key_ids=step.found.negative_ids,
    )


KIND = LossKind(
    "nt_xent",
    _build,
    _score,
    ("temperature", "learnable", "policy"),
    within_batch=True,
    one_tower=True,
    asks_both_views=True,
    takes_policy=True,
    chance_is_log_n=True,
)
