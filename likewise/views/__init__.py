"""Augment whole batches into views, with the settings of the papers.

views.preset("moco_v2", size=32, channels=3)        random views of images
views.preset("vector", size=12)                     random views of vectors
views.windows                                       views of sequences; they need the data's mean and deviation
"""

import difflib

from likewise.views import images, vectors
from likewise.views.augmentation import Augmentation, Draws

PRESETS = (*images.PRESETS, *vectors.PRESETS)

__all__ = ["PRESETS", "Augmentation", "Draws", "preset"]


def preset(name: str, *, size: int, channels: int = 3) -> Augmentation:
    """Return an augmentation by name. `size` is the view's side in pixels; for "vector", the number of features."""
    if name in images.PRESETS:
        return images.PRESETS[name](size, channels)
    if name in vectors.PRESETS:
        return vectors.PRESETS[name](size)
    near = difflib.get_close_matches(str(name), PRESETS, n=1, cutoff=0.0)
    raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}, did you mean {near[0]!r}?")
