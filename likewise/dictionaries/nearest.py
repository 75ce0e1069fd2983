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


class NearestNeighbours(nn.Module):
    """The last `size` keys, as a `KeyQueue` keeps them, among which each key finds its nearest by cosine."""

    def __init__(self, size: int = 98_304, dim: int = 128, *, columns: int = 1) -> None:
        super().__init__()
        self.queue = KeyQueue(size, dim, columns=columns)

    @torch.no_grad()
    def nearest(self, key: Tensor) -> Tensor:
        """Return the stored key (n, d) most like each key; the key itself while nothing is stored."""
        if not self.queue.filled:
            return key.detach()
        stored = self.queue.keys[: self.queue.filled]
        place = (normalize(key.to(stored), dim=1) @ normalize(stored, dim=1).T).argmax(dim=1)
        return stored[place].to(key.dtype)

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
