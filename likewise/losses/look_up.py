"""A look-up: the queries of a step and the candidates that the dictionary returns for them. A loss scores look-ups."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from likewise import ranks
from likewise.dictionaries import Found
from likewise.losses.masks import Mask, as_columns, is_padding, share_an_id
from likewise.losses.similarity import prepare

SCORES_AT_ONCE = 2**22


@dataclass(frozen=True)
class LookUp:
    """The queries of one step and their candidates.

    If both views of an item are queries, they are neighbouring rows.
    """

    query: Tensor  # (n, d)
    found: Found
    ids: Tensor  # (n,) or (n, g)
    labels: Tensor | None  # (n,)
    distinct: bool  # no two items of the step share an id
    weight: Tensor | float = 1.0  # of this rank's loss in the mean, if ranks have different numbers of queries

    @property
    def ids_if_needed(self) -> Tensor | None:
        """The ids, or None if all items differ: a loss within the batch then needs no masking, which costs a pass."""
        return None if self.distinct else self.ids

    @torch.no_grad()
    def negatives_a_query(self) -> float:
        """Return how many negatives a query has on average, not counting those that share an id with it."""
        negatives, ids = self.found.negatives, self.found.negative_ids
        if negatives.ndim == 3:
            shown = ~hidden(*self._ids_by_group()).flatten(0, 1)
            count = (shown & self.is_valid[:, None]).sum(dim=1).to(self.query.dtype)
        else:
            count = Mask(self.ids, ids).count(len(self.query), len(negatives), like=self.query)
        return float(count.double().sum() / self.is_valid.sum().clamp(min=1))

    @torch.no_grad()
    def accuracy(self, similarity: str) -> float:
        """Return the share of queries that are more similar to their positive than to any negative.

        It is 1 if there are no negatives, as in a queue that is still empty.
        """
        if not self.found.negatives.shape[-2]:
            return float(self.is_valid.any())
        prepared = prepare(similarity, self.query, 1.0, self.query.dtype)
        positive, negatives = prepared.key_rows(self.found.positive), prepared.key_rows(self.found.negatives)
        groups = negatives if negatives.ndim == 3 else negatives[None]
        queries = prepared.query.view(len(groups), -1, prepared.query.shape[1])
        ids, others = self._ids_by_group()
        height = max(1, SCORES_AT_ONCE // (groups.shape[0] * groups.shape[1]))
        highest = [
            (queries[:, rows] @ groups.mT).masked_fill(hidden(ids[:, rows], others), -torch.inf).amax(dim=2)
            for rows in (slice(start, start + height) for start in range(0, queries.shape[1], height))
        ]
        right = (prepared.query * positive).sum(dim=1) > torch.cat(highest, dim=1).flatten()
        return float((right & self.is_valid).sum() / self.is_valid.sum().clamp(min=1))

    def with_weight(self, weight: Tensor) -> "LookUp":
        return replace(self, weight=weight)

    @property
    def is_valid(self) -> Tensor:
        """Which queries (n,) are not padding."""
        return ~is_padding(as_columns(self.ids))

    def _ids_by_group(self) -> tuple[Tensor, Tensor]:
        """Return the ids of queries (groups, n / groups, g) and of their candidates (groups, k, g)."""
        ids, others = as_columns(self.ids), self.found.negative_ids
        others = as_columns(others) if self.found.negatives.ndim == 2 else as_columns(others, axes=2)
        others = others.reshape(-1, *others.shape[-2:])
        return ids.view(len(others), -1, ids.shape[1]), others


def hidden(ids: Tensor, others: Tensor) -> Tensor:
    """Return which candidates (groups, m, k) do not count as negatives: padding, and those that share an id."""
    return share_an_id(ids, others) | is_padding(others)[:, None]


def shares_right(look_ups: list[LookUp], similarity: str) -> list[float | None]:
    """Return the accuracy of each look-up over all ranks; None for a look-up without queries."""
    counts = [(float(look_up.is_valid.sum()), look_up.accuracy(similarity)) for look_up in look_ups]
    device = look_ups[0].query.device
    totals = torch.tensor([(valid, valid * share) for valid, share in counts], device=device)
    valid, right = ranks.mean(totals).T
    return [round(r / v, 4) if v else None for r, v in zip(right.tolist(), valid.tolist(), strict=True)]
