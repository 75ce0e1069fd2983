"""InfoNCE: find the positive of each query among its candidates.

van den Oord et al., 2018 (the loss, and its bound on mutual information); He et al., 2020
(keys from a queue); Radford et al., 2021 (both directions, with a learned temperature).
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from likewise import ranks
from likewise.losses import streamed
from likewise.losses.inputs import (
    Reduction,
    as_scalar,
    check_id_pair,
    check_ids,
    check_negatives,
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
from likewise.losses.negatives import FixedNegatives, Negatives, NegativesPerGroup, SharedNegatives
from likewise.losses.policies import Policy, check_policy, lookup_loss, parse_policy
from likewise.losses.similarity import Similarity, check_similarity, prepare
from likewise.losses.temperature import Tempered
from likewise.recipe import Loss


@full_precision
def info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.07,
    similarity: Similarity = "cosine",
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    policy: Policy | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of finding each query's positive among its candidates.

    van den Oord et al., 2018: `-log(e^{s+} / (e^{s+} + Σ_j e^{s-_j}))`, s = similarity / temperature.

    Shapes: query (n, d), positive (n, d), negatives (k, d), (n, k, d), or None for the other rows
    of positive. query_ids (n,) or (n, g); key_ids belong to `negatives` if these are given, else to
    `positive`, and are (k,), (k, g), (n, k) or (n, k, g). A negative that shares an id with the
    query does not count, nor does one with id -1; a query with id -1 is left out. Negatives (m, k, d),
    where m divides n, are each shared by n / m consecutive queries, for example those of one sequence.
    """
    check_rows(query=query, positive=positive)
    check_temperature(temperature)
    check_reduction(reduction)
    check_one_device(query=query, positive=positive, negatives=negatives, query_ids=query_ids, key_ids=key_ids)
    if negatives is not None:
        check_negatives(negatives, query)
    check_similarity(similarity)
    check_policy(policy, similarity)
    dtype = working_dtype(query, positive, query if negatives is None else negatives)
    if negatives is None and key_ids is None:
        key_ids = query_ids
    check_id_pair(query_ids, key_ids, (len(query),), tuple((positive if negatives is None else negatives).shape[:-1]))
    prepared = prepare(similarity, query, as_scalar(temperature, dtype), dtype)
    keys = prepared.key_rows(positive)
    if negatives is None and query_ids is None and policy is None and len(query) ** 2 <= streamed.SMALL_ONE_WAY:
        own = torch.arange(len(query), device=query.device)
        return cross_entropy(prepared.query @ keys.T, own, reduction=reduction).to(dtype)
    if negatives is None:
        mask = Mask(query_ids, key_ids, own=(0,))
        found: Negatives = SharedNegatives(prepared, keys, mask)
        if not keys.requires_grad:
            found = FixedNegatives(prepared, positive, mask)
    elif negatives.ndim == 3:
        found = NegativesPerGroup(prepared, negatives, query_ids, key_ids)
    elif negatives.requires_grad:
        mask = Mask(query_ids, key_ids)
        if policy is None:
            shared = prepared.key_rows(negatives)
            lse, score = streamed.log_sum_exp_beside(prepared.query, keys, shared, mask, prepared.bound)
            return reduce(streamed.exact_softplus(lse - score), reduction, mask.valid).to(dtype)
        found = SharedNegatives(prepared, prepared.key_rows(negatives), mask)
    else:
        found = FixedNegatives(prepared, negatives, Mask(query_ids, key_ids))
    return lookup_loss((prepared.query * keys).sum(dim=1), found, policy, reduction).to(dtype)


@full_precision
def symmetric_info_nce(
    a: Tensor,
    b: Tensor,
    *,
    temperature: float | Tensor = 0.07,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Average InfoNCE over both directions: each row of `a` among the rows of `b`, and the reverse.

    Radford et al., 2021 (CLIP). Shapes: a (n, d), b (n, d), ids (n,) or (n, g); cosine similarity.
    Pairs that share an id are not each other's negatives; a pair with id -1 is left out.
    """
    check_rows(a=a, b=b)
    check_temperature(temperature)
    check_reduction(reduction)
    check_one_device(a=a, b=b, ids=ids)
    if ids is not None:
        check_ids("ids", ids, (len(a),))
    dtype = working_dtype(a, b)
    prepared = prepare("cosine", a, as_scalar(temperature, dtype), dtype)
    keys = prepared.key_rows(b)
    if ids is None and len(a) ** 2 <= streamed.SMALL:
        scores, own = prepared.query @ keys.T, torch.arange(len(a), device=a.device)
        both = cross_entropy(scores, own, reduction=reduction) + cross_entropy(scores.T, own, reduction=reduction)
        return both / 2
    mask = Mask(ids, ids, own=(0,))
    rows, columns, positive = streamed.log_sum_exp_both(prepared.query, keys, mask, prepared.bound)
    both = streamed.exact_softplus(rows - positive) + streamed.exact_softplus(columns - positive)
    return reduce(both / 2, reduction, mask.valid)


class InfoNCE(Tempered):
    """`info_nce` as a module."""

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        similarity: Similarity = "cosine",
        policy: Policy | None = None,
        reduction: Reduction = "mean",
        learnable: bool = False,
    ) -> None:
        super().__init__(temperature, learnable=learnable)
        check_similarity(similarity)
        check_policy(policy, similarity)
        check_reduction(reduction)
        self.similarity, self.policy, self.reduction = similarity, policy, reduction

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None = None,
        *,
        query_ids: Tensor | None = None,
        key_ids: Tensor | None = None,
    ) -> Tensor:
        return info_nce(
            query,
            positive,
            negatives,
            temperature=self.temperature,
            similarity=self.similarity,
            query_ids=query_ids,
            key_ids=key_ids,
            policy=self.policy,
            reduction=self.reduction,
        )


class SymmetricInfoNCE(Tempered):
    """`symmetric_info_nce` as a module."""

    def __init__(self, *, temperature: float = 0.07, reduction: Reduction = "mean", learnable: bool = False) -> None:
        super().__init__(temperature, learnable=learnable)
        check_reduction(reduction)
        self.reduction = reduction

    def forward(self, a: Tensor, b: Tensor, *, ids: Tensor | None = None) -> Tensor:
        return symmetric_info_nce(a, b, temperature=self.temperature, ids=ids, reduction=self.reduction)


def _build(options: Loss, items: int) -> InfoNCE:
    return InfoNCE(
        temperature=options.temperature,
        similarity=options.similarity,  # type: ignore[arg-type]
        policy=parse_policy(options.policy),
        learnable=options.learnable,
    )


def _score(loss: Module, step: LookUp) -> Tensor:
    return loss(step.query, *step.found[:2], query_ids=step.ids, key_ids=step.found.negative_ids)


def score_both_directions(loss: Module, step: LookUp) -> Tensor:
    """Score the pairs of all ranks with a loss that looks in both directions."""
    # The dictionary is the batch, so it has already gathered the keys of all ranks.
    keys, ids = step.found.negatives, None if step.distinct else step.found.negative_ids
    return loss(ranks.gather(step.query), keys, ids=ids)


KIND = LossKind(
    "info_nce",
    _build,
    _score,
    ("temperature", "similarity", "learnable", "policy"),
    takes_frames=True,
    takes_policy=True,
    takes_similarity=True,
    chance_is_log_n=True,
)
SYMMETRIC = LossKind(
    "symmetric_info_nce",
    lambda options, items: SymmetricInfoNCE(temperature=options.temperature, learnable=options.learnable),
    score_both_directions,
    within_batch=True,
    is_symmetric=True,
    chance_is_log_n=True,
)
