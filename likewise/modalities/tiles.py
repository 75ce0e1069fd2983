"""Make small square pictures, as all modalities draw them."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 48  # pixels per side of a picture, at most

Tiles = NDArray[np.uint8]  # (n, side, side, 3)


def shrunk(images: NDArray[np.uint8]) -> Tiles:
    """Return the central square of images (n, c, h, w) in RGB, shrunk to `SIDE` if it is larger."""
    h, w = images.shape[2:]
    square = min(h, w)
    top, left = (h - square) // 2, (w - square) // 2
    pixels = images[:, :, top : top + square, left : left + square].transpose(0, 2, 3, 1)
    pixels = np.ascontiguousarray(pixels.repeat(3, axis=3) if pixels.shape[3] == 1 else pixels)
    if square <= SIDE:
        return pixels
    resized = (Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BOX) for image in pixels)
    return np.stack([np.asarray(image) for image in resized])
