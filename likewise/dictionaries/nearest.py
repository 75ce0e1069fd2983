"""Each key is replaced by its nearest neighbour in a queue of earlier keys: NNCLR (Dwibedi et al., 2021).

So the positive is another, similar item, and not only another view of the same one. The candidates are the neighbours
of the keys of the batch. Each prediction is a query that is looked up among them; the paper, in the other direction,
looks each neighbour up among the predictions.
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
    """A `KeyQueue` of the last `size` keys, in which the nearest neighbour by cosine replaces each key."""

    def __init__(self, size: int = 98_304, dim: int = 128, *, columns: int = 1) -> None:
        super().__init__()
        self.queue = KeyQueue(size, dim, columns=columns)

    @torch.no_grad()
    def nearest(self, key: Tensor) -> Tensor:
        """Return the stored key (n, d) most similar to each key; the key itself while nothing is stored.

        The scores are computed in blocks, so that memory does not grow with the queue.
        """
        filled, queries = self.queue.filled, key.detach().to(self.queue.keys)
        is_key = self.queue.ids[:filled].ge(0).any(dim=1)  # other rows are padding
        highest = queries.new_full((len(key),), -torch.inf)
        place = torch.zeros(len(key), dtype=torch.int64, device=queries.device)
        width = max(1, SCORES_AT_ONCE // max(1, len(key)))
        for start in range(0, filled, width):
            block = slice(start, min(start + width, filled))
            # The queries need not be normalised: their lengths do not change the order of the scores.
            scores = queries @ normalize(self.queue.keys[block], dim=1).T
            best, place_in_block = scores.masked_fill_(~is_key[block], -torch.inf).max(dim=1)
            place = torch.where(best > highest, place_in_block + start, place)
            highest = torch.maximum(best, highest)
        return torch.where((highest > -torch.inf)[:, None], self.queue.keys[place].to(key.dtype), key.detach())

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """Return the neighbours of the keys as positives, and the neighbours of all ranks' keys as negatives."""
        check_keys(key, ids, self.queue.dim, self.queue.columns)
        neighbours = self.nearest(key)
        return Found(neighbours, ranks.gather(neighbours), ranks.gather(ids))

    def update(self, key: Tensor, ids: Tensor) -> None:
        """Write the keys of all ranks over the oldest ones."""
        self.queue.update(key, ids)

    def steps(self) -> list[int]:
        """Return the updates that still have keys in the queue, oldest first."""
        return self.queue.steps()

    def stored(self, step: int) -> Stored:
        """Return the keys of one update that are still in the queue."""
        return self.queue.stored(step)

    def meters(self) -> dict[str, float]:
        """Return the size, the filled share, and the mean and highest age of keys at the next look-up, in steps."""
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
