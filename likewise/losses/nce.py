"""NCE: classify each candidate as the query's own slot or as noise.

Gutmann and Hyvärinen, 2010; for instance discrimination Wu et al., 2018 (InstDisc), with
their proximal term. If the probability of the noise is known, such a classifier learns the
probability of the data.
"""

import math

import torch
from torch import Tensor

from likewise import ranks
from likewise.losses import streamed
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_id_pair,
    check_items,
    check_log_partition,
    check_negatives,
    check_noise,
    check_number,
    check_one_device,
    check_proximal,
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
from likewise.recipe import Loss


@full_precision
def nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor,
    *,
    log_partition: float | Tensor,
    items: int | None = None,
    noise_log_prob: float | tuple[Tensor, Tensor] | None = None,
    temperature: float | Tensor = 0.07,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    previous: Tensor | None = None,
    proximal: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute `−log h(positive) − Σ_j log(1 − h(negative_j))`, where h is the probability of not being noise.

    Wu et al., 2018: `h = e^s/Z / (e^s/Z + m · p_noise)`, where m is the number of noise samples that share
    no id with the query. Noise is uniform over `items`, or has `noise_log_prob`: one number, or
    log-probabilities of the positives (n,) and of the negatives (k,). `log_partition` is log Z and gets no
    gradient. Shapes: query (n, d), positive (n, d), negatives (k, d); cosine similarity; ids as for
    `info_nce`. With `previous` (n, d), the queries' slots before this step, `proximal · ‖query − previous‖²`
    is added, where query is a unit row.
    """
    check_rows(query=query, positive=positive)
    check_negatives(negatives, query, per_query=False)
    check_id_pair(query_ids, key_ids, (len(query),), (len(negatives),))
    check_temperature(temperature)
    check_log_partition(log_partition)
    check_noise(items, noise_log_prob, len(query), len(negatives))
    check_proximal(proximal)
    if previous is not None:
        check_rows(query=query, previous=previous)
    elif proximal:
        raise ValueError("proximal needs previous, the queries' slots before this step, got None")
    check_reduction(reduction)
    check_one_device(
        query=query, positive=positive, negatives=negatives, query_ids=query_ids, key_ids=key_ids, previous=previous
    )
    dtype = working_dtype(query, positive, negatives)
    unit_query = unit(query.to(dtype))
    rows = unit_query / as_scalar(temperature, dtype)
    if isinstance(noise_log_prob, tuple):
        noise_of_positive, noise_of_negatives = (noise.to(rows) for noise in noise_log_prob)
    else:
        noise = noise_log_prob if noise_log_prob is not None else -math.log(items or 1)
        noise_of_positive, noise_of_negatives = (rows.new_full((len(keys),), noise) for keys in (query, negatives))

    mask = Mask(query_ids, key_ids)
    count = mask.count(len(query), len(negatives), like=rows)
    log_partition = as_scalar(log_partition, dtype)
    if isinstance(log_partition, Tensor):
        log_partition = log_partition.detach()
    threshold = log_partition + count.clamp(min=1).log()  # log(Z · m), (n,)
    positive_logit = (rows * unit(positive.to(dtype))).sum(dim=1) - threshold - noise_of_positive
    # The logit s − log(Z · m) − log p_noise as one product: the two terms after s are two more coordinates.
    queries = torch.cat([rows, -threshold[:, None], -torch.ones_like(threshold)[:, None]], dim=1)
    noise_column = noise_of_negatives[:, None]
    keys = torch.cat([unit(negatives.to(dtype)), torch.ones_like(noise_column), noise_column], dim=1)
    losses = streamed.exact_softplus(-positive_logit) + streamed.softplus_sum(queries, keys, mask)
    losses = losses.where(count > 0, 0)  # a query without noise samples has nothing to classify
    if previous is not None:
        losses = losses + float(proximal) * (unit_query - previous.to(dtype)).square().sum(dim=1)
    return reduce(losses, reduction, mask.valid)


@full_precision
@torch.no_grad()
def estimate_log_partition(
    query: Tensor,
    negatives: Tensor,
    *,
    items: int,
    temperature: float | Tensor = 0.07,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    """Estimate log Z from one batch, `Z ≈ (items/m) Σ_j e^{s_j}` averaged over queries, without gradient.

    It is computed in log space, because e^s reaches e^200 at temperature 0.005. Shapes as for `nce`;
    the result is a scalar, and NaN if no negative is left.
    """
    check_items(items)
    log_sum, pairs = _log_sum_of_pairs(query, negatives, temperature, query_ids, key_ids)
    return math.log(items) + log_sum - pairs.log()


def _log_sum_of_pairs(
    query: Tensor,
    negatives: Tensor,
    temperature: float | Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return log Σ e^s over all pairs of a query and a negative that shares no id with it, and their number."""
    check_rows(query=query)
    check_negatives(negatives, query, per_query=False)
    check_id_pair(query_ids, key_ids, (len(query),), (len(negatives),))
    check_temperature(temperature)
    check_one_device(query=query, negatives=negatives, query_ids=query_ids, key_ids=key_ids)
    dtype = working_dtype(query, negatives)
    rows = unit(query.to(dtype)) / as_scalar(temperature, dtype)
    mask = Mask(query_ids, key_ids)
    log_sums = streamed.log_sum_exp_lookup(
        rows, negatives, lambda keys: unit(keys.to(rows.dtype)), mask, cosine_bound(temperature)
    )
    pairs = mask.count(len(query), len(negatives), like=rows).sum()
    return log_sums.logsumexp(dim=0), pairs


class NCE(Tempered):
    """`nce` as a module that keeps log Z, the logarithm of a running mean of Z over training batches.

    The paper fixes Z from the first batch, which is wrong as soon as the encoder changes. log Z is NaN
    until the first batch, and part of the module's state. With several ranks it is the same on all of
    them, so all of them must take part in every training step.
    """

    log_partition: Tensor

    def __init__(
        self,
        *,
        items: int,
        temperature: float = 0.07,
        proximal: float = 0.0,
        partition_momentum: float = 0.99,
        reduction: Reduction = "mean",
        learnable: bool = False,
    ) -> None:
        super().__init__(temperature, learnable=learnable)
        check_items(items)
        check_proximal(proximal)
        check_reduction(reduction)
        check_number("partition_momentum", partition_momentum)
        if not 0 <= partition_momentum < 1:
            raise ValueError(f"partition_momentum must be in [0, 1), got {partition_momentum:g}")
        self.items, self.proximal, self.reduction = items, proximal, reduction
        self.partition_momentum = partition_momentum
        self.register_buffer("log_partition", torch.tensor(math.nan))

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor,
        *,
        query_ids: Tensor | None = None,
        key_ids: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Tensor:
        temperature = self.temperature
        if self.training:
            self._follow(self._estimate(query, negatives, temperature, query_ids, key_ids))
        return nce(
            query,
            positive,
            negatives,
            # Before the first batch, use the value for orthogonal rows.
            log_partition=self.log_partition.nan_to_num(nan=math.log(self.items)),
            items=self.items,
            temperature=temperature,
            query_ids=query_ids,
            key_ids=key_ids,
            previous=previous,
            proximal=self.proximal,
            reduction=self.reduction,
        )

    @full_precision
    @torch.no_grad()
    def _estimate(
        self,
        query: Tensor,
        negatives: Tensor,
        temperature: float | Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
    ) -> Tensor:
        """Return `estimate_log_partition` over the queries of all ranks."""
        log_sum, pairs = _log_sum_of_pairs(query, negatives, temperature, query_ids, key_ids)
        log_sum, pairs = ranks.gather(log_sum[None]).logsumexp(dim=0), ranks.gather(pairs[None]).sum()
        return math.log(self.items) + log_sum - pairs.log()

    def _follow(self, estimate: Tensor) -> None:
        """Move the running mean of Z towards the estimate of one batch, unless it is NaN for lack of negatives."""
        estimate = estimate.to(self.log_partition)
        old = self.log_partition + (math.log(self.partition_momentum) if self.partition_momentum else -math.inf)
        moved = torch.logaddexp(old, estimate + math.log1p(-self.partition_momentum))
        moved = torch.where(self.log_partition.isnan(), estimate, moved)
        self.log_partition.copy_(torch.where(estimate.isnan(), self.log_partition, moved))


def _build(options: Loss, items: int) -> NCE:
    return NCE(items=items, temperature=options.temperature, proximal=options.proximal, learnable=options.learnable)


def _score(loss: Module, step: LookUp) -> Tensor:
    positive, negatives, negative_ids = step.found
    return loss(step.query, positive, negatives, query_ids=step.ids, key_ids=negative_ids, previous=positive)


KIND = LossKind("nce", _build, _score, ("temperature", "learnable", "proximal"), needs_known_noise=True)
