"""Small pictures of items, many in one sheet, so that a page carries a single file of them."""

import base64
import io
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from likewise.data import Items
from likewise.pairs.augment import Augmentation, PlainViews

SIDE = 48  # pixels of a tile, at most
COLUMNS = 32

Tiles = NDArray[np.uint8]  # (n, side, side, 3)


def of_items(items: Items, ids: NDArray[np.int64]) -> Tiles:
    """A tile for each item: the image made small, or a vector's features as a square of greys."""
    if items.kind == "vector":
        return _squares(items[ids])
    return _shrunk(items[ids])


def of_views(views: Tensor, augmentation: Augmentation) -> Tiles:
    """A tile for each view, as the encoder was given it but for the normalisation."""
    if not isinstance(augmentation, PlainViews):
        return _squares(views.cpu().numpy())
    return _shrunk((augmentation.restored(views) * 255).round().clamp(0, 255).to(torch.uint8).cpu().numpy())


def enlarged(tiles: Tiles, side: int) -> Tiles:
    """Tiles with a side of `side`, pixels repeated."""
    places = np.arange(side) * tiles.shape[1] // side
    return tiles[:, places][:, :, places]


def sheet(tiles: Tiles) -> dict[str, Any]:
    """All tiles row by row as one picture in a data URI, with what is needed to find one in it."""
    n, side = tiles.shape[:2]
    columns = min(COLUMNS, max(1, n))
    rows = -(-n // columns)
    padded = np.zeros((rows * columns, side, side, 3), dtype=np.uint8)
    padded[:n] = tiles
    grid = padded.reshape(rows, columns, side, side, 3).transpose(0, 2, 1, 3, 4).reshape(rows * side, columns * side, 3)
    file = io.BytesIO()
    Image.fromarray(grid).save(file, "webp", quality=85, method=4)
    uri = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    return {"uri": uri, "columns": columns, "side": side}


def _shrunk(images: NDArray[np.uint8]) -> Tiles:
    """(n, c, h, w) to tiles: the middle square, no larger than `SIDE`."""
    h, w = images.shape[2:]
    square = min(h, w)
    top, left = (h - square) // 2, (w - square) // 2
    pixels = images[:, :, top : top + square, left : left + square].transpose(0, 2, 3, 1)
    pixels = np.ascontiguousarray(pixels.repeat(3, axis=3) if pixels.shape[3] == 1 else pixels)
    if square <= SIDE:
        return pixels
    resized = (Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BOX) for image in pixels)
    return np.stack([np.asarray(image) for image in resized])


def _squares(vectors: NDArray[Any]) -> Tiles:
    """(n, f) to tiles: features row by row, black the least of each and white the most."""
    n, f = vectors.shape
    side = max(2, int(np.ceil(np.sqrt(f))))
    low, high = np.quantile(vectors, 0.01, axis=0), np.quantile(vectors, 0.99, axis=0)
    greys = np.zeros((n, side * side), dtype=np.uint8)
    greys[:, :f] = np.clip((vectors - low) / np.maximum(high - low, 1e-12), 0, 1) * 255
    return _shrunk(greys.reshape(n, 1, side, side))
