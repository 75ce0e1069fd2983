"""Two items of one group are a pair: of one folder, label, speaker or video.

The group is a second id, which keeps its other items out of the negatives.
"""

import torch
from torch import Tensor


class Groups:
    """An item's partner is another item of its group, drawn anew each step; alone in it, the item itself.

    `groups` (items,) are whole numbers; an item whose group is −1 has none, and is its own partner.
    """

    columns = 2

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
        """(item, group) of each, (n, 2)."""
        return torch.stack([items, self.groups[items]], dim=1)
