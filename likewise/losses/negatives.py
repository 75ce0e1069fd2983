"""The negatives of n queries: shared by all, stored without gradient, within one set of rows, or given per group.

Each class has the same few methods, which return (n,) vectors. Only `NegativesPerGroup` holds the
(n, k) scores in memory.
"""

from typing import Protocol

import torch
from torch import Tensor

from likewise.losses import streamed
from likewise.losses.masks import Mask, as_columns, is_padding, share_an_id
from likewise.losses.similarity import Prepared


class Negatives(Protocol):
    """What losses and policies need to know about the negatives."""

    lowest: float | Tensor | None  # the lowest possible score: -1 / temperature for a cosine
    valid: Tensor | None  # (n,): which queries are not padding, or None if all are valid

    def log_sum(self, power: float = 1.0) -> Tensor:
        """Return log Σ_j e^{power · s_j} for each query, (n,); -inf if it has no negative left."""

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        """Return log Σ_j e^{s_j} over the `hardest` highest scores of each query, (n,)."""

    def log_count(self) -> Tensor:
        """Return the logarithm of the number of negatives that each query has left, (n,)."""


class SharedNegatives:
    """Keys (k, d), already prepared, that carry gradient and are shared by all queries."""

    def __init__(self, prepared: Prepared, keys: Tensor, mask: Mask) -> None:
        self.query, self.keys, self.mask = prepared.query, keys, mask
        self.bound, self.lowest, self.valid = prepared.bound, prepared.lowest, mask.valid

    def log_sum(self, power: float = 1.0) -> Tensor:
        return streamed.log_sum_exp(_times(self.query, power), self.keys, self.mask, _scaled(self.bound, power))

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return streamed.log_sum_exp_hardest(self.query, self.keys, hardest, self.mask)

    def log_count(self) -> Tensor:
        return self.mask.count(len(self.query), len(self.keys), like=self.query).log()


class FixedNegatives(SharedNegatives):
    """Keys (k, d) as a queue or a memory bank stores them, without gradient and not yet prepared."""

    def __init__(self, prepared: Prepared, keys: Tensor, mask: Mask) -> None:
        super().__init__(prepared, keys.detach(), mask)
        self.key_rows = prepared.key_rows

    def log_sum(self, power: float = 1.0) -> Tensor:
        query, bound = _times(self.query, power), _scaled(self.bound, power)
        return streamed.log_sum_exp_lookup(query, self.keys, self.key_rows, self.mask, bound)

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return streamed.log_sum_exp_hardest(self.query, self.key_rows(self.keys), hardest, self.mask)


class NegativesWithin:
    """The other rows of one set: both the scores ⟨row_i, row_j⟩ and the mask are symmetric."""

    def __init__(self, rows: Tensor, mask: Mask, bound: float | None, lowest: float | Tensor) -> None:
        self.rows, self.mask, self.bound = rows, mask, bound
        self.lowest: float | Tensor | None = lowest
        self.valid = mask.valid

    def log_sum(self, power: float = 1.0) -> Tensor:
        return streamed.log_sum_exp_within(_times(self.rows, power**0.5), self.mask, _scaled(self.bound, power))

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return streamed.log_sum_exp_hardest(self.rows, self.rows, hardest, self.mask)

    def log_count(self) -> Tensor:
        return self.mask.count(len(self.rows), len(self.rows), like=self.rows).log()


class NegativesPerGroup:
    """Keys (m, k, d), one set for each n / m consecutive queries. The (n, k) scores are held in memory."""

    def __init__(self, prepared: Prepared, keys: Tensor, query_ids: Tensor | None, key_ids: Tensor | None) -> None:
        self.lowest = prepared.lowest
        self.valid: Tensor | None = None
        groups, per_group = len(keys), len(prepared.query) // len(keys)
        queries = prepared.query.view(groups, per_group, -1)
        scores = torch.einsum("gmd,gkd->gmk", queries, prepared.key_rows(keys)).flatten(0, 1)
        self.hidden = torch.zeros_like(scores, dtype=torch.bool)
        if query_ids is not None and key_ids is not None:
            query_ids, key_ids = as_columns(query_ids), as_columns(key_ids, axes=2)
            hidden = share_an_id(query_ids.view(groups, per_group, -1), key_ids) | is_padding(key_ids)[:, None]
            self.hidden, self.valid = hidden.flatten(0, 1), ~is_padding(query_ids)
        # logsumexp of a row that is -inf throughout has a NaN gradient, so queries without negatives get scores of 0,
        # and -inf only after the sum.
        self.none_left = self.hidden.all(dim=1)
        self.scores = scores.masked_fill(self.none_left[:, None], 0)

    def log_sum(self, power: float = 1.0) -> Tensor:
        return self._log_sum(self._masked_scores(power))

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return self._log_sum(self._masked_scores().topk(min(hardest, self.scores.shape[1]), dim=1).values)

    def log_count(self) -> Tensor:
        return (~self.hidden).sum(dim=1).to(self.scores.dtype).log()

    def _masked_scores(self, power: float = 1.0) -> Tensor:
        return _times(self.scores, power).masked_fill(self.hidden & ~self.none_left[:, None], -torch.inf)

    def _log_sum(self, scores: Tensor) -> Tensor:
        return scores.logsumexp(dim=1).masked_fill(self.none_left, -torch.inf)


def _times(rows: Tensor, factor: float) -> Tensor:
    return rows if factor == 1 else rows * factor


def _scaled(bound: float | None, power: float) -> float | None:
    return None if bound is None else bound * power
