"""Small pictures of items, combined into one sheet, so that a page embeds a single image file."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from likewise import modalities
from likewise.data import Items
from likewise.data.parts import Ids
from likewise.modalities.tiles import Tiles
from likewise.views.augmentation import Augmentation

SEEN = 64  # smallest side in pixels of a tile that is shown by itself
COLUMNS = 32


def of_items(items: Items, ids: Ids) -> Tiles:
    """Return a tile for each item."""
    return modalities.of(items.main).pictures(items.main, ids)


def of_views(views: Tensor, augmentation: Augmentation, items: Items) -> Tiles:
    """Return a tile for each view, as the encoder sees it, but without normalisation."""
    return modalities.of(items.main).pictures_of_views(views, augmentation, items.main)


def enlarged(tiles: Tiles, side: int) -> Tiles:
    """Scale tiles to a side of `side` pixels by repeating pixels."""
    places = np.arange(side) * tiles.shape[1] // side
    return tiles[:, places][:, :, places]


def magnified(tiles: Tiles) -> Tiles:
    """Scale small tiles up by a whole factor, which keeps them sharp."""
    times = max(1, -(-SEEN // tiles.shape[1]))
    return tiles.repeat(times, axis=1).repeat(times, axis=2)


def sheet(tiles: Tiles) -> dict[str, Any]:
    """Return all tiles as one picture in a data URI, with the numbers that are needed to find a tile in it."""
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
