"""A first-in, first-out queue of keys: a dictionary larger than any batch, and not much older.

He et al., 2020 (MoCo). It goes with the momentum copy: keys of several steps can only be compared if
the encoder that made them moved little in between.
"""

import torch
from torch import Tensor, nn

from likewise import ranks
from likewise.dictionaries.found import Found, Stored, as_columns, as_given, check_keys, check_whole
from likewise.dictionaries.kind import DictionaryKind
from likewise.recipe import Dictionary, Recipe


class KeyQueue(nn.Module):
    """The last `size` keys that were written, with their ids (`columns` of them a key).

    A batch may be of any size: one that crosses the end of the ring goes on at its beginning, and of
    one larger than the queue its last rows stay. Keys are kept as given, and their whole state (rows,
    ids, place, age) is part of `state_dict`.
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
        # Host numbers: reading a pointer back from the device would stall it at every step.
        self.written = 0
        self.updates = 0

    @property
    def filled(self) -> int:
        return min(self.written, self.size)

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """The keys themselves as positives, and the filled rows; no copy, so valid until `update`."""
        check_keys(key, ids, self.dim, self.columns)
        return Found(key, self.keys[: self.filled], as_given(self.ids[: self.filled]))

    @torch.no_grad()
    def update(self, key: Tensor, ids: Tensor) -> None:
        """Write all ranks' keys, in rank order, over the oldest ones."""
        check_keys(key, ids, self.dim, self.columns)
        key, ids = ranks.gather(key.detach()), ranks.gather(as_columns(ids))
        first = max(0, len(key) - self.size)  # of a batch larger than the queue the last rows stay
        rows = torch.arange(first, len(key), device=self.keys.device)
        places = (self.written + rows) % self.size
        self.keys[places] = key[first:].to(self.keys)
        self.ids[places] = ids[first:].to(self.ids)
        self.born[places] = self.updates
        self.rows[places] = rows
        self.written += len(key)
        self.updates += 1

    def oldest_first(self) -> Tensor:
        """The places of the filled rows in the order in which they were written, (filled,)."""
        return torch.arange(self.written - self.filled, self.written, device=self.keys.device) % self.size

    def steps(self) -> list[int]:
        """The updates of which keys are left, oldest first."""
        return sorted(set(self.born[: self.filled].tolist()))

    def stored(self, step: int) -> Stored:
        """What is left of the keys of one update."""
        places = (self.born == step).nonzero()[:, 0]
        return Stored(self.keys[places], self.rows[places])

    def meters(self) -> dict[str, float]:
        """Size, filled share, and the age of keys in steps, of the next look-up."""
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
    """Return a queue that is no longer than the data."""
    too_long = keys < recipe.dictionary.size
    return {"dictionary.size": (keys, "the queue is no longer than the data")} if too_long else {}


KIND = DictionaryKind(
    "queue",
    build=_build,
    describe=lambda options, items: f"a queue of {options.size:,}",
    describe_defaults=lambda options: f"queue of {options.size:,}",
    title="a queue",
    choices=choices,
    # Beside a key its ids and its age are kept.
    numbers=lambda options, dim: {("dictionary.size", "encoder.dim"): options.size * (dim + 6)},
    options=("size",),
    stores=True,
    fills=True,
)
