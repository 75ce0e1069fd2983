"""The nearest neighbour of each key in a queue of earlier keys takes its place: NNCLR (Dwibedi et al., 2021).

A positive is then another item that is alike, and not only another view of the same one. Candidates are those of the
batch. Each prediction is looked up among the neighbours of the batch's keys, as queries are everywhere here; the paper
looks up each neighbour among the predictions.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from likewise import ranks
from likewise.dictionaries.found import Found, Stored, check_keys
from likewise.dictionaries.key_queue import KeyQueue
from likewise.dictionaries.key_queue import choices as queue_choices
from likewise.dictionaries.kind import DictionaryKind
from likewise.recipe import Dictionary

SCORES_AT_ONCE = 2**20


class NearestNeighbours(nn.Module):
    """The last `size` keys, as a `KeyQueue` keeps them, among which each key finds its nearest by cosine."""

    def __init__(self, size: int = 98_304, dim: int = 128, *, columns: int = 1) -> None:
        super().__init__()
        self.queue = KeyQueue(size, dim, columns=columns)

    @torch.no_grad()
    def nearest(self, key: Tensor) -> Tensor:
        """Return the stored key (n, d) most like each key; the key itself while nothing is stored.

        The scores of all keys with all stored ones are never held together.
        """
        filled, queries = self.queue.filled, key.detach().to(self.queue.keys)
        is_key = self.queue.ids[:filled].ge(0).any(dim=1)  # the rest is padding
        highest = queries.new_full((len(key),), -torch.inf)
        place = torch.zeros(len(key), dtype=torch.int64, device=queries.device)
        width = max(1, SCORES_AT_ONCE // max(1, len(key)))
        for start in range(0, filled, width):
            some = slice(start, min(start + width, filled))
            scores = queries @ normalize(self.queue.keys[some], dim=1).T  # a query's own length changes no order
            best, where = scores.masked_fill_(~is_key[some], -torch.inf).max(dim=1)
            place = torch.where(best > highest, where + start, place)
            highest = torch.maximum(best, highest)
        return torch.where((highest > -torch.inf)[:, None], self.queue.keys[place].to(key.dtype), key.detach())

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """Return the neighbours of the keys as positives, and those of all ranks' keys as candidates."""
        check_keys(key, ids, self.queue.dim, self.queue.columns)
        neighbours = self.nearest(key)
        return Found(neighbours, ranks.gather(neighbours), ranks.gather(ids))

    def update(self, key: Tensor, ids: Tensor) -> None:
        """Write all ranks' keys over the oldest ones."""
        self.queue.update(key, ids)

    def steps(self) -> list[int]:
        """Return the updates of which keys are left, oldest first."""
        return self.queue.steps()

    def stored(self, step: int) -> Stored:
        """Return what is left of the keys of one update."""
        return self.queue.stored(step)

    def meters(self) -> dict[str, float]:
        """Return size, filled share, and the age of keys in steps, of the next look-up."""
        return self.queue.meters()


def _build(options: Dictionary, *, dim: int, items: int, columns: int, rng: torch.Generator) -> NearestNeighbours:
    return NearestNeighbours(options.size, dim, columns=columns)


KIND = DictionaryKind(
    "nearest",
    build=_build,
    describe=lambda options, items: f"nearest neighbours in a queue of {options.size:,}",
    describe_defaults=lambda options: f"nearest in a queue of {options.size:,}",
    title="nearest neighbours in a queue",
    choices=queue_choices,
    numbers=lambda options, dim: {("dictionary.size", "encoder.dim"): options.size * (dim + 6)},
    options=("size",),
    stores=True,
)
