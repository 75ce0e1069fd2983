"""Two items of one group are a pair: a group is a folder, a label, a speaker or a video.

The group is a second id, so that other items of the group are not among the negatives.
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
    """An item's partner is another item of its group, drawn at each step, or the item itself if it is alone.

    `groups` (items,) are whole numbers. An item with group −1 belongs to no group and is its own partner.
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
        """Pair the items of a group; without groups, labels are used instead."""
        groups = items.labels if items.groups is None else items.groups
        assert groups is not None
        return cls(torch.from_numpy(groups[train]))

    @classmethod
    def shown(cls, recipe: Recipe) -> Shown:
        shown = super().shown(recipe)
        return Shown(shown.sides, f"The second view is of another item of the same group. {shown.task}")

    def __init__(self, groups: Tensor) -> None:
        if groups.ndim != 1 or groups.is_floating_point():
            raise ValueError(f"groups must be whole numbers of shape (n,), got {groups.dtype} of {tuple(groups.shape)}")
        self.groups = groups.long()
        self._members = self.groups.argsort(stable=True)  # items, group by group
        ordered = self.groups[self._members]
        self._first = torch.searchsorted(ordered, self.groups)  # where the group of each item begins in `_members`
        self._count = torch.searchsorted(ordered, self.groups, right=True) - self._first
        self._place = torch.empty_like(self._members)  # the place of each item in its group
        self._place[self._members] = torch.arange(len(groups)) - self._first[self._members]

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        others = self._count[items] - 1
        # Going 1 to `others` places ahead, round the group, never returns to the item itself.
        ahead = 1 + (torch.rand(len(items), generator=rng, dtype=torch.float64) * others).long()
        place = (self._place[items] + ahead.minimum(others)) % self._count[items]
        partners = self._members[self._first[items] + place]
        return torch.where(self.groups[items] < 0, items, partners)

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return the ids (item, group) of each item, (n, 2)."""
        return torch.stack([items, self.groups[items]], dim=1)
