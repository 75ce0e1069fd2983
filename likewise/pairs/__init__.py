"""Which pairs should agree? Two views of one item, two items of one group, and how views are made.

augment.preset(name, size=..., channels=...)        random views of images and vectors, by a paper's recipe
"""

from likewise.pairs.augment import PRESETS, Augmentation, Draws, preset

__all__ = ["PRESETS", "Augmentation", "Draws", "preset"]
