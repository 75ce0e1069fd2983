"""Draw the items that are held out for evaluation, for data without a test part.

Where items come in groups, such as the recordings of one person, whole groups are held out: what is measured on
other items of a group that was trained on says little about new groups.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from likewise.data.parts import Ids

FEWEST_GROUPS = 5  # of fewer groups, a single one would be a large share of the items
APART = ("groups", "items")  # values of data.apart


def items_apart(count: int, share: float, rng: torch.Generator) -> tuple[Ids, Ids]:
    """Return the ids to train on and a random share that is held out, of `count` items."""
    held_out = round(share * count)
    order = torch.randperm(count, generator=rng).numpy()
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def groups_apart(groups: NDArray[np.int64], share: float, rng: torch.Generator, least: int = 0) -> tuple[Ids, Ids]:
    """Return the ids to train on and those of a random share of the groups, at least `least` of them.

    An item with group −1 is a group by itself.
    """
    own_group = groups.max(initial=0) + 1 + np.arange(len(groups))
    names, group = np.unique(np.where(groups < 0, own_group, groups), return_inverse=True)
    order = torch.randperm(len(names), generator=rng).numpy()
    is_held_out = np.isin(group, order[: max(least, round(share * len(names)))])
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def has_groups_to_hold_out(groups: NDArray[np.int64] | None) -> bool:
    """Return whether there are enough groups to hold out whole ones."""
    return groups is not None and len(np.unique(groups)) >= FEWEST_GROUPS
