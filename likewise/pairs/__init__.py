"""Which pairs should agree? Two views of an item, two of a group, its present and its future, its image and caption.

pairs.Views(), pairs.Groups(groups), pairs.Future(), pairs.Captions(captions, tokens)
                                                    which key is the positive of which query
pairs.preset(name, size=..., channels=...)          random views of images and vectors, with the settings of a paper
"""

from likewise.pairs.across import Across
from likewise.pairs.across import Across as Captions
from likewise.pairs.future import Future
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.views import PRESETS, Augmentation, Draws, preset

__all__ = ["PRESETS", "Across", "Augmentation", "Captions", "Draws", "Future", "Groups", "Views", "preset"]
