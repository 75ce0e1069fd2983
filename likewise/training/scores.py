"""Question three, as training asks it: each loss on what a look-up found, in a few lines and one public loss.

Under several ranks a loss that looks up queries is a mean over the rank's own queries; one that scores
a batch against itself is made of all ranks' rows, on every rank. Both give one process's gradient when
ranks' gradients are averaged (see `likewise.ranks`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from likewise import losses, ranks
from likewise.dictionaries import Found
from likewise.losses.masks import Mask, as_columns
from likewise.losses.policies import Policy
from likewise.losses.similarity import prepare
from likewise.recipe import Loss, RecipeError, check_choice

Score = Callable[..., Tensor]  # a loss module
PAIRS_AT_ONCE = 2**16
SCORES_AT_ONCE = 2**22


@dataclass(frozen=True)
class LookUp:
    """One step's queries and what the dictionary found for them.

    Rows come item by item: where both views of an item are queries, they are neighbours.
    """

    query: Tensor  # (n, d)
    found: Found
    ids: Tensor  # (n,) or (n, g)
    labels: Tensor | None  # (n,)
    distinct: bool  # no two items of the step share an id
    weight: Tensor | float = 1.0  # of this rank's queries in the mean over all, where ranks have unequally many

    @property
    def ids_if_needed(self) -> Tensor | None:
        """Ids cost a pass over the scores; where all items differ, losses within a batch need none."""
        return None if self.distinct else self.ids

    @torch.no_grad()
    def negatives_a_query(self) -> float:
        """How many negatives a query has on average, those left out that share an id with it."""
        negatives, ids = self.found.negatives, self.found.negative_ids
        if negatives.ndim == 3:
            shown = ~hidden(*self._ids_by_group()).flatten(0, 1)
            count = (shown & self.there[:, None]).sum(dim=1).to(self.query.dtype)
        else:
            count = Mask(self.ids, ids).count(len(self.query), len(negatives), like=self.query)
        return float(count.double().sum() / self.there.sum().clamp(min=1))

    @torch.no_grad()
    def accuracy(self, similarity: str) -> float:
        """The share of queries that are more similar to their positive than to any negative; 1 where there is none."""
        if not self.found.negatives.shape[-2]:  # a queue that is still empty
            return float(self.there.any())
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
        return float((right & self.there).sum() / self.there.sum().clamp(min=1))

    def with_weight(self, weight: Tensor) -> "LookUp":
        return replace(self, weight=weight)

    @property
    def there(self) -> Tensor:
        """Queries (n,) that are no padding."""
        return as_columns(self.ids).ge(0).any(dim=1)

    def _ids_by_group(self) -> tuple[Tensor, Tensor]:
        """Ids of queries (groups, n / groups, g) and of the negatives (groups, k, g) that they are looked up in."""
        ids, others = as_columns(self.ids), self.found.negative_ids
        others = as_columns(others) if self.found.negatives.ndim == 2 else as_columns(others, axes=2)
        others = others.reshape(-1, *others.shape[-2:])
        return ids.view(len(others), -1, ids.shape[1]), others


def hidden(ids: Tensor, others: Tensor) -> Tensor:
    """Negatives (groups, m, k) that are none of the query's: of an id of its own, or padding."""
    ids, others = ids[:, :, None], others[:, None]
    found: Tensor = ((ids == others) & (others >= 0)).any(dim=3) | (others < 0).all(dim=3)
    return found


def build_loss(recipe: Loss, items: int) -> nn.Module:
    """The loss module of a recipe; its temperature, if learned, is a parameter of it."""
    temperature, learnable = recipe.temperature, recipe.learnable
    policy = parse_policy(recipe.policy)
    builders: dict[str, Callable[[], nn.Module]] = {
        "info_nce": lambda: losses.InfoNCE(
            temperature=temperature,
            similarity=recipe.similarity,  # type: ignore[arg-type]
            policy=policy,
            learnable=learnable,
        ),
        "nt_xent": lambda: losses.NTXent(temperature=temperature, policy=policy, learnable=learnable),
        "symmetric_info_nce": lambda: losses.SymmetricInfoNCE(temperature=temperature, learnable=learnable),
        "sigmoid": lambda: losses.Sigmoid(temperature=temperature, learnable=learnable),
        "nce": lambda: losses.NCE(items=items, temperature=temperature, proximal=recipe.proximal, learnable=learnable),
        "pair_margin": lambda: losses.PairMargin(margin=recipe.margin, reduction="none"),
        "triplet": lambda: losses.Triplet(margin=recipe.margin, reduction="none"),
        "sup_con": lambda: losses.SupCon(temperature=temperature, learnable=learnable),
    }
    try:
        return builders[recipe.kind]()
    except ValueError as error:
        raise RecipeError(str(error)) from None


def parse_policy(text: str) -> Policy | None:
    """`hardest:16`, `debiased:0.1`, `hard_weighted:0.5` or `hard_weighted:0.5:0.1`; empty for none."""
    if not text:
        return None
    name, *numbers = text.split(":")
    check_choice("loss.policy", name, ("hardest", "debiased", "hard_weighted"))
    try:
        if name == "hardest":
            return losses.Hardest(*map(int, numbers))
        return (losses.Debiased if name == "debiased" else losses.HardWeighted)(*map(float, numbers))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"loss.policy must be like hardest:16 or debiased:0.1, got {text!r} ({error})") from None


def info_nce(loss: Score, step: LookUp) -> Tensor:
    return loss(step.query, *step.found[:2], query_ids=step.ids, key_ids=step.found.negative_ids)


def nt_xent(loss: Score, step: LookUp) -> Tensor:
    if ranks.count() == 1:
        ids = step.ids_if_needed
        return loss(step.query[0::2], step.query[1::2], ids=None if ids is None else ids[0::2])
    assert isinstance(loss, losses.NTXent)
    # Of all ranks' rows, a row and its partner drop out by their id: the same loss, row by row.
    return losses.info_nce(
        step.query,
        *step.found[:2],
        temperature=loss.temperature,
        policy=loss.policy,
        query_ids=step.ids,
        key_ids=step.found.negative_ids,
    )


def both_directions(loss: Score, step: LookUp) -> Tensor:
    """Symmetric InfoNCE and the sigmoid loss."""
    query, positive = ranks.gather(step.query), ranks.gather(step.found.positive)
    ids = step.ids_if_needed
    return loss(query, positive, ids=None if ids is None else ranks.gather(ids))


def nce(loss: Score, step: LookUp) -> Tensor:
    positive, negatives, negative_ids = step.found
    return loss(step.query, positive, negatives, query_ids=step.ids, key_ids=negative_ids, previous=positive)


def triplet(loss: Score, step: LookUp) -> Tensor:
    positive, negatives, negative_ids = step.found
    chosen = losses.semi_hard(step.query, positive, negatives, query_ids=step.ids, key_ids=negative_ids)
    # A query without a candidate (a queue still empty, a batch of one group) counts 0, whatever stands in for it.
    negative = negatives[chosen.clamp(min=0)] if len(negatives) else step.query.detach()
    return loss(step.query, positive, negative).where(chosen >= 0, 0).mean()


def pair_margin(loss: Score, step: LookUp) -> Tensor:
    """Every pair of the batch; pairs that are the same and others averaged apart, as others are far more.

    Row by row against the rows after it, and made anew in backward: pairs are many, and are never held together.
    """
    rows = torch.cat([ranks.gather(step.query), ranks.gather(step.found.positive)])
    ids = ranks.gather(step.ids).repeat(2, *[1] * (step.ids.ndim - 1))
    same = same_ids(ids, ids).triu(diagonal=1)
    others = (~same).triu(diagonal=1)
    height = max(1, PAIRS_AT_ONCE // len(rows))

    def block(rows: Tensor, start: int) -> Tensor:
        """The sums (2,) over pairs of `height` rows with all others: same, and not."""
        first = rows[start : start + height]
        one, other = first.repeat_interleave(len(rows), dim=0), rows.repeat(len(first), 1)
        here, apart = (mask[start : start + height].flatten() for mask in (same, others))
        values = loss(one, other, here)
        return torch.stack([values.where(here, 0).sum(), values.where(apart, 0).sum()])

    starts = range(0, len(rows), height)
    sums = torch.stack([checkpoint(block, rows, start, use_reentrant=False) for start in starts]).sum(dim=0)
    counts = torch.stack([same.sum(), others.sum()]).clamp(min=1)  # a batch of one group has no others
    return (sums / counts).sum()


def sup_con(loss: Score, step: LookUp) -> Tensor:
    assert step.labels is not None
    rows = torch.cat([ranks.gather(step.query), ranks.gather(step.found.positive)])
    return loss(rows, ranks.gather(step.labels).repeat(2))


SCORES: dict[str, Callable[[Score, LookUp], Tensor]] = {
    "info_nce": info_nce,
    "nt_xent": nt_xent,
    "symmetric_info_nce": both_directions,
    "sigmoid": both_directions,
    "nce": nce,
    "pair_margin": pair_margin,
    "triplet": triplet,
    "sup_con": sup_con,
}


def same_ids(a: Tensor, b: Tensor) -> Tensor:
    """Where two rows share an id in any column, (n, k); −1 is nobody's."""
    a, b = (ids[:, None] if ids.ndim == 1 else ids for ids in (a, b))
    return ((a[:, None] == b[None]) & (a[:, None] >= 0)).any(dim=2)
