"""The negatives of n queries, in the ways they come.

Each kind answers the same few questions with (n,) vectors; none holds an (n, k) matrix that
it was not given.
"""

from typing import Protocol

import torch
from torch import Tensor

from likewise.losses import streamed
from likewise.losses.masks import Mask, as_columns, is_padding, share_an_id
from likewise.losses.similarity import Prepared


class Negatives(Protocol):
    """What a loss or a policy may ask of the negatives."""

    lowest: float | Tensor | None  # the lowest score there can be: a cosine's is -1 / temperature
    valid: Tensor | None  # (n,): queries that are no padding, or None where all are valid

    def log_sum(self, power: float = 1.0) -> Tensor:
        """log Σ_j e^{power · s_j} for each query, (n,); -inf where no negative is left."""

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        """log Σ_j e^{s_j} over the `hardest` highest scores of each query, (n,)."""

    def log_count(self) -> Tensor:
        """The logarithm of how many negatives each query has left, (n,)."""


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
    """Keys (k, d) as they are stored, without gradient: a queue's or a memory bank's."""

    def __init__(self, prepared: Prepared, keys: Tensor, mask: Mask) -> None:
        super().__init__(prepared, keys.detach(), mask)
        self.key_rows = prepared.key_rows

    def log_sum(self, power: float = 1.0) -> Tensor:
        query, bound = _times(self.query, power), _scaled(self.bound, power)
        return streamed.log_sum_exp_lookup(query, self.keys, self.key_rows, self.mask, bound)

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return streamed.log_sum_exp_hardest(self.query, self.key_rows(self.keys), hardest, self.mask)


class NegativesWithin:
    """The other rows of one set: scores ⟨row_i, row_j⟩, symmetric as their mask."""

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
    """Keys (m, k, d), a set for each n / m queries in a row, or for each query: the (n, k) scores are held."""

    def __init__(self, prepared: Prepared, keys: Tensor, query_ids: Tensor | None, key_ids: Tensor | None) -> None:
        self.lowest = prepared.lowest
        self.valid: Tensor | None = None
        groups, each = len(keys), len(prepared.query) // len(keys)
        scores = torch.einsum("gmd,gkd->gmk", prepared.query.view(groups, each, -1), prepared.key_rows(keys)).flatten(
            0, 1
        )
        self.hidden = torch.zeros_like(scores, dtype=torch.bool)
        if query_ids is not None and key_ids is not None:
            query_ids, key_ids = as_columns(query_ids), as_columns(key_ids, axes=2)
            shared = share_an_id(query_ids.view(groups, each, -1), key_ids) | is_padding(key_ids)[:, None]
            self.hidden, self.valid = shared.flatten(0, 1), ~is_padding(query_ids)
        # A row of nothing but -inf has no gradient, so one without negatives is set apart.
        self.none_left = self.hidden.all(dim=1)
        self.scores = scores.masked_fill(self.none_left[:, None], 0)

    def log_sum(self, power: float = 1.0) -> Tensor:
        return self._log_sum(self._shown(power))

    def log_sum_of_hardest(self, hardest: int) -> Tensor:
        return self._log_sum(self._shown().topk(min(hardest, self.scores.shape[1]), dim=1).values)

    def log_count(self) -> Tensor:
        return (~self.hidden).sum(dim=1).to(self.scores.dtype).log()

    def _shown(self, power: float = 1.0) -> Tensor:
        return _times(self.scores, power).masked_fill(self.hidden & ~self.none_left[:, None], -torch.inf)

    def _log_sum(self, scores: Tensor) -> Tensor:
        return scores.logsumexp(dim=1).masked_fill(self.none_left, -torch.inf)


def _times(rows: Tensor, factor: float) -> Tensor:
    return rows if factor == 1 else rows * factor


def _scaled(bound: float | None, power: float) -> float | None:
    return None if bound is None else bound * power
