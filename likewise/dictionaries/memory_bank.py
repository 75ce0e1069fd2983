"""A memory bank: one slot per item, updated whenever the item is in the batch.

Wu et al., 2018 (InstDisc). It is as large as the data set, but a slot is as old as the item's last visit.
"""

import torch
from torch import Tensor, nn

from likewise import ranks
from likewise.dictionaries.found import (
    Found,
    Stored,
    as_columns,
    as_given,
    check_keys,
    check_momentum,
    check_whole,
)
from likewise.dictionaries.kind import DictionaryKind
from likewise.randomness import generator
from likewise.recipe import Dictionary, Recipe


class MemoryBank(nn.Module):
    """Slots (items, d) of unit rows; the first column of an id is the item's slot.

    A look-up returns each query's own slot as its positive, and `negatives` slots, drawn uniformly with
    replacement, once for the whole batch. If a query's own slot is drawn, the loss masks it by its id.
    An update, which comes after the step, writes `normalize(momentum · old + (1 − momentum) · new)`.
    """

    slots: Tensor
    ids: Tensor
    born: Tensor
    rows: Tensor

    def __init__(
        self,
        items: int,
        dim: int = 128,
        negatives: int = 4096,
        momentum: float = 0.5,
        *,
        columns: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_whole("items", items)
        check_whole("dim", dim)
        check_whole("negatives", negatives)
        check_whole("columns", columns)
        check_momentum(momentum)
        self.items, self.dim, self.negatives, self.momentum = items, dim, negatives, momentum
        start = torch.randn(items, dim, generator=rng if rng is not None else generator(0, "bank"))
        self.register_buffer("slots", nn.functional.normalize(start, dim=1))
        ids = torch.full((items, columns), -1)  # an item's other ids are not known before its first visit
        ids[:, 0] = torch.arange(items)
        self.register_buffer("ids", ids)
        self.register_buffer("born", torch.full((items,), -1))
        self.register_buffer("rows", torch.full((items,), -1))
        self.updates = 0

    def lookup(self, key: Tensor, ids: Tensor, rng: torch.Generator | None = None) -> Found:
        """Return each query's slot, and the slots drawn for this step: the same on ranks with equal `rng`."""
        own = self._slots_of(key, ids)
        drawn = torch.randint(self.items, (self.negatives,), generator=rng).to(own.device)
        return Found(self.slots[own], self.slots[drawn], as_given(self.ids[drawn]))

    @torch.no_grad()
    def update(self, key: Tensor, ids: Tensor) -> None:
        """Move the slots of all ranks' items towards their new keys; if an item occurs twice, its last key counts."""
        self._slots_of(key, ids)
        key, ids = ranks.gather(key.detach()), ranks.gather(as_columns(ids))
        own, order = ids[:, 0].sort(stable=True)
        rows = order[torch.searchsorted(own, own, right=True) - 1]
        new = nn.functional.normalize(key[rows].to(self.slots), dim=1)
        mixed = self.momentum * self.slots[own] + (1 - self.momentum) * new
        self.slots[own] = nn.functional.normalize(mixed, dim=1)
        self.ids[own] = ids[rows].to(self.ids)
        self.born[own] = self.updates
        self.rows[own] = rows
        self.updates += 1

    def steps(self) -> list[int]:
        """Return the updates that were the last to write some slot, oldest first."""
        return sorted(set(self.born[self.born >= 0].tolist()))

    def stored(self, step: int) -> Stored:
        """Return the slots that one update was the last to write."""
        places = (self.born == step).nonzero()[:, 0]
        return Stored(self.slots[places], self.rows[places])

    def meters(self) -> dict[str, float]:
        """Return the number of slots, the share written so far, and their mean and highest age at the next look-up."""
        written = self.born >= 0
        filled = int(written.sum())
        ages = (self.updates - self.born[written]).cpu().double()
        age, oldest = (ages.mean().item(), ages.max().item()) if filled else (0.0, 0.0)
        return {"size": float(self.items), "fill": filled / self.items, "age": age, "oldest": oldest}

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.updates])

    def set_extra_state(self, state: Tensor) -> None:
        (self.updates,) = state.tolist()

    def extra_repr(self) -> str:
        return f"items={self.items}, dim={self.dim}, negatives={self.negatives}, momentum={self.momentum:g}"

    def _slots_of(self, key: Tensor, ids: Tensor) -> Tensor:
        check_keys(key, ids, self.dim, self.ids.shape[1])
        own = as_columns(ids)[:, 0]
        if own.device.type == "cpu" and len(own) and not 0 <= int(own.min()) <= int(own.max()) < self.items:
            raise ValueError(f"ids must be slots 0 to {self.items - 1}, got {int(own.min())} to {int(own.max())}")
        return own


def _build(options: Dictionary, *, dim: int, items: int, columns: int, rng: torch.Generator) -> MemoryBank:
    return MemoryBank(items, dim, options.negatives, options.momentum, columns=columns, rng=rng)


def _choices(recipe: Recipe, items: int, keys: int) -> dict[str, tuple[int, str]]:
    too_many = items < recipe.dictionary.negatives
    return {"dictionary.negatives": (items, "no more than there are slots")} if too_many else {}


KIND = DictionaryKind(
    "bank",
    build=_build,
    describe=lambda options, items: f"a memory bank of {items:,} slots, {options.negatives:,} drawn each step",
    describe_defaults=lambda options: f"bank, {options.negatives:,} drawn",
    title="a bank",
    choices=_choices,
    numbers=lambda options, dim: {("dictionary.negatives", "encoder.dim"): options.negatives * dim},
    options=("momentum", "negatives"),
    stores=True,
    one_slot_an_item=True,
    knows_noise=True,
)
