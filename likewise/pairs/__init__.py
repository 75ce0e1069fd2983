"""Which pairs should agree? Two views of one item, or two items of one group, and how views are made.

pairs.Views(), pairs.Groups(groups)                 whose key belongs to whose query
pairs.preset(name, size=..., channels=...)          random views of images and vectors, by a paper's recipe
"""

from likewise.pairs.augment import PRESETS, Augmentation, Draws, preset
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views

__all__ = ["PRESETS", "Augmentation", "Draws", "Groups", "Views", "preset"]
