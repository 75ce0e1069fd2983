"""Two items of one group are a pair: of one folder, label, speaker or video.

The group is a second id, which keeps its other items out of the negatives.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from likewise.data import Items
from likewise.data.parts import Ids
from likewise.modalities.modality import Choice
from likewise.pairs.pairs import Pairs, Shown
from likewise.recipe import Recipe, RecipeError


class Groups(Pairs):
    """An item's partner is another item of its group, drawn anew each step; alone in it, the item itself.

    `groups` (items,) are whole numbers; an item whose group is −1 has none, and is its own partner.
    """

    name = "groups"
    columns = 2

    @classmethod
    def stand_in(cls, items: Items) -> Choice | None:
        if items.labels is not None or items.groups is not None:
            return None
        return Choice("pairs.kind", "views", "there are no labels or groups, so two views of an item are a pair")

    @classmethod
    def check_items(cls, items: Items, train: Ids) -> None:
        if items.labels is None and items.groups is None:
            raise RecipeError(f"pairs groups needs class folders, labels or groups, got none in {items.name}")

    @classmethod
    def share_labels(cls, items: Items) -> bool:
        return items.groups is None

    @classmethod
    def build(cls, items: Items, train: Ids, recipe: Recipe, files: Mapping[str, str]) -> "Groups":
        """Pair the items of a group; labels are groups where there are no others."""
        groups = items.labels if items.groups is None else items.groups
        assert groups is not None
        return cls(torch.from_numpy(groups[train]))

    @classmethod
    def shown(cls, recipe: Recipe) -> Shown:
        shown = super().shown(recipe)
        return Shown(shown.sides, f"The second is of another item of its group. {shown.task}")

    def __init__(self, groups: Tensor) -> None:
        if groups.ndim != 1 or groups.is_floating_point():
            raise ValueError(f"groups must be whole numbers of shape (n,), got {groups.dtype} of {tuple(groups.shape)}")
        self.groups = groups.long()
        self._members = self.groups.argsort(stable=True)  # items, group by group
        ordered = self.groups[self._members]
        self._first = torch.searchsorted(ordered, self.groups)  # where an item's group begins
        self._count = torch.searchsorted(ordered, self.groups, right=True) - self._first
        self._place = torch.empty_like(self._members)  # an item's place in its group
        self._place[self._members] = torch.arange(len(groups)) - self._first[self._members]

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        others = self._count[items] - 1
        # A step of 1 to `others` places round the group never comes back to the item.
        ahead = 1 + (torch.rand(len(items), generator=rng, dtype=torch.float64) * others).long()
        place = (self._place[items] + ahead.minimum(others)) % self._count[items]
        partners = self._members[self._first[items] + place]
        return torch.where(self.groups[items] < 0, items, partners)

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return (item, group) of each, (n, 2)."""
        return torch.stack([items, self.groups[items]], dim=1)
