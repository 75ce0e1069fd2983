"""A first-in, first-out queue of keys: a dictionary that can be larger than a batch, with recent keys.

He et al., 2020 (MoCo). It is used with a momentum copy of the encoder: keys of different steps are only
comparable if the encoder that made them changed little in between.
"""

import torch
from torch import Tensor, nn

from likewise import ranks
from likewise.dictionaries.found import Found, Stored, as_columns, as_given, check_keys, check_whole
from likewise.dictionaries.kind import DictionaryKind
from likewise.recipe import Dictionary, Recipe


class KeyQueue(nn.Module):
    """The last `size` keys that were written, with their ids (`columns` per key).

    A batch may have any size. If it crosses the end of the ring buffer, it continues at the beginning; if it
    is larger than the queue, only its last rows are stored. Keys are stored as given, without normalising
    them, and the whole state (keys, ids, position, age) is part of `state_dict`.
    """

    keys: Tensor
    ids: Tensor
    born: Tensor
    rows: Tensor

    def __init__(self, size: int = 65536, dim: int = 128, *, columns: int = 1) -> None:
        super().__init__()
        check_whole("size", size)
        check_whole("dim", dim)
        check_whole("columns", columns)
        self.size, self.dim, self.columns = size, dim, columns
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("ids", torch.full((size, columns), -1))
        self.register_buffer("born", torch.full((size,), -1))  # the update that wrote the row
        self.register_buffer("rows", torch.full((size,), -1))  # its row in that update's batch
        # Python numbers, because reading a pointer back from the device would stall it at every step.
        self.written = 0
        self.updates = 0

    @property
    def filled(self) -> int:
        return min(self.written, self.size)

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """Return the keys themselves as positives, and the filled rows as negatives: a view, valid until `update`."""
        check_keys(key, ids, self.dim, self.columns)
        return Found(key, self.keys[: self.filled], as_given(self.ids[: self.filled]))

    @torch.no_grad()
    def update(self, key: Tensor, ids: Tensor) -> None:
        """Write the keys of all ranks, in rank order, over the oldest ones."""
        check_keys(key, ids, self.dim, self.columns)
        key, ids = ranks.gather(key.detach()), ranks.gather(as_columns(ids))
        first = max(0, len(key) - self.size)  # if the batch is larger than the queue, only its last rows are stored
        rows = torch.arange(first, len(key), device=self.keys.device)
        places = (self.written + rows) % self.size
        self.keys[places] = key[first:].to(self.keys)
        self.ids[places] = ids[first:].to(self.ids)
        self.born[places] = self.updates
        self.rows[places] = rows
        self.written += len(key)
        self.updates += 1

    def oldest_first(self) -> Tensor:
        """Return the indices of the filled rows in the order in which they were written, (filled,)."""
        return torch.arange(self.written - self.filled, self.written, device=self.keys.device) % self.size

    def steps(self) -> list[int]:
        """Return the updates that still have keys in the queue, oldest first."""
        return sorted(set(self.born[: self.filled].tolist()))

    def stored(self, step: int) -> Stored:
        """Return the keys of one update that are still in the queue."""
        places = (self.born == step).nonzero()[:, 0]
        return Stored(self.keys[places], self.rows[places])

    def meters(self) -> dict[str, float]:
        """Return the size, the filled share, and the mean and highest age of keys at the next look-up, in steps."""
        ages = (self.updates - self.born[: self.filled]).cpu().double()
        age, oldest = (ages.mean().item(), ages.max().item()) if self.filled else (0.0, 0.0)
        return {"size": float(self.size), "fill": self.filled / self.size, "age": age, "oldest": oldest}

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.written, self.updates])

    def set_extra_state(self, state: Tensor) -> None:
        self.written, self.updates = state.tolist()

    def extra_repr(self) -> str:
        return f"size={self.size}, dim={self.dim}, filled={self.filled}"


def _build(options: Dictionary, *, dim: int, items: int, columns: int, rng: torch.Generator) -> KeyQueue:
    return KeyQueue(options.size, dim, columns=columns)


def choices(recipe: Recipe, items: int, keys: int) -> dict[str, tuple[int, str]]:
    """Choose a queue that holds no item twice, if the data are few."""
    too_long = keys < recipe.dictionary.size
    why = f"there are only {keys:,} keys in the data, so a longer queue would hold items twice"
    return {"dictionary.size": (keys, why)} if too_long else {}


KIND = DictionaryKind(
    "queue",
    build=_build,
    describe=lambda options, items: f"a queue of {options.size:,}",
    describe_defaults=lambda options: f"queue of {options.size:,}",
    title="a queue",
    choices=choices,
    # Besides a key of `dim` numbers, its ids and its age are stored.
    numbers=lambda options, dim: {("dictionary.size", "encoder.dim"): options.size * (dim + 6)},
    options=("size",),
    stores=True,
    fills=True,
)
