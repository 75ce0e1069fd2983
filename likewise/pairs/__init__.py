"""Which pairs should agree? Two views of one item, two items of one group, or the present and the future of one.

pairs.Views(), pairs.Groups(groups), pairs.Future()  whose key belongs to whose query
pairs.preset(name, size=..., channels=...)          random views of images and vectors, by a paper's recipe
"""

from likewise.pairs.augment import PRESETS, Augmentation, Draws, preset
from likewise.pairs.future import Future
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views

__all__ = ["PRESETS", "Augmentation", "Draws", "Future", "Groups", "Views", "preset"]
