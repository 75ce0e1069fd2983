"""Small pictures of items, many in one sheet, so that a page carries a single file of them."""

import base64
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from likewise.data import Items
from likewise.data.sequences import Sequences
from likewise.data.spectra import log_mel
from likewise.training.plan import is_audio, spread
from likewise.views.augmentation import Augmentation
from likewise.views.images import PlainViews

SIDE = 48  # pixels of a tile, at most
SEEN = 64  # pixels of a tile that is looked at by itself, at least
COLUMNS = 32
SCALED = 1000  # vectors that say what is little and what is much
LONGEST_DRAWN = 2**18  # samples of a sequence that its picture shows
POINTS = 8 * SIDE  # of a line, at least
LOUDNESS_SHOWN = 9.0  # from silence to the loudest, in nats of energy
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart also by the colour-blind
# Dark blue over purple to pale yellow: lightness grows all the way, so that it reads in grey too.
GLOW = ((12, 8, 38), (87, 22, 110), (188, 55, 84), (249, 142, 9), (252, 255, 200))

Tiles = NDArray[np.uint8]  # (n, side, side, 3)


def of_items(items: Items, ids: NDArray[np.int64]) -> Tiles:
    """A tile for each item: the image made small, a vector's features as a square of greys, or a sequence drawn."""
    if isinstance(items, Sequences):
        lengths = np.minimum(LONGEST_DRAWN, items.lengths[ids])
        beginning = np.zeros(1, dtype=np.int64)
        return of_sequences((items.windows(ids[i : i + 1], beginning, t)[0] for i, t in enumerate(lengths)), items)
    if items.kind == "vector":
        return _squares(items[ids], items[spread(np.arange(len(items)), SCALED)])
    return _shrunk(items[ids])


def of_sequences(sequences: Iterable[NDArray[np.float32]], items: Sequences) -> Tiles:
    """Each (t, c), NaN behind its end, to a tile: audio as a spectrogram, other series as a line a channel."""
    whole = (sequence[~np.isnan(sequence).any(axis=1)] for sequence in sequences)
    if is_audio(items):
        return np.stack([_spectrogram(sequence[:, 0], items.rate) for sequence in whole])
    thin = [sequence[:: max(1, len(sequence) // POINTS)] for sequence in whole]  # more points than a tile can show
    values = np.concatenate(thin)
    low, high = np.quantile(values, 0.005, axis=0), np.quantile(values, 0.995, axis=0)
    return np.stack([_traces((sequence - low) / np.maximum(high - low, 1e-12)) for sequence in thin])


def of_views(views: Tensor, augmentation: Augmentation, items: Items) -> Tiles:
    """A tile for each view, as the encoder was given it but for the normalisation."""
    if isinstance(items, Sequences):
        mean, std = (np.array(x, dtype=np.float32) for x in (augmentation.mean, augmentation.std))
        return of_sequences(views.cpu().numpy().astype(np.float32) * std + mean, items)
    if not isinstance(augmentation, PlainViews):
        return _squares(views.cpu().numpy(), views.cpu().numpy())
    return _shrunk((augmentation.restored(views) * 255).round().clamp(0, 255).to(torch.uint8).cpu().numpy())


def enlarged(tiles: Tiles, side: int) -> Tiles:
    """Tiles with a side of `side`, pixels repeated."""
    places = np.arange(side) * tiles.shape[1] // side
    return tiles[:, places][:, :, places]


def magnified(tiles: Tiles) -> Tiles:
    """Tiles that can be seen one by one: small ones larger by a whole multiple, which stays sharp."""
    times = max(1, -(-SEEN // tiles.shape[1]))
    return tiles.repeat(times, axis=1).repeat(times, axis=2)


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


def _spectrogram(audio: NDArray[np.float32], rate: int) -> Tiles:
    """(side, side, 3): time to the right, pitch upwards, dark where it is silent."""
    mel = log_mel(audio, rate)
    loudness = np.clip((mel - mel.max()) / LOUDNESS_SHOWN + 1, 0, 1).T[::-1]  # (bands, frames)
    image = Image.fromarray((loudness * 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    place = np.asarray(image).astype(np.float32)[:, :, None] / 255 * (len(GLOW) - 1)
    first = np.minimum(place.astype(np.int64), len(GLOW) - 2)[:, :, 0]
    share = place - first[:, :, None]
    colours = np.array(GLOW, dtype=np.float32)
    tile: Tiles = np.rint(colours[first] * (1 - share) + colours[first + 1] * share).astype(np.uint8)
    return tile


def _traces(sequence: NDArray[Any]) -> Tiles:
    """(t, c) in 0 to 1, to (side, side, 3): a line a channel over time."""
    side = 2 * SIDE  # drawn twice as large, so that lines are smooth
    image = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(image)
    x = np.arange(len(sequence)) / max(1, len(sequence) - 1) * (side - 1)
    for channel, values in enumerate(np.clip(sequence, 0, 1).T):
        y = (1 - values) * (side - 5) + 2
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), fill=LINES[channel % len(LINES)], width=2)
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX))


def _squares(vectors: NDArray[Any], among: NDArray[Any]) -> Tiles:
    """(n, f) to tiles: features row by row, black the least of each among some (m, f) and white the most."""
    n, f = vectors.shape
    side = max(2, int(np.ceil(np.sqrt(f))))
    low, high = np.quantile(among, 0.01, axis=0), np.quantile(among, 0.99, axis=0)
    greys = np.zeros((n, side * side), dtype=np.uint8)
    greys[:, :f] = np.clip((vectors - low) / np.maximum(high - low, 1e-12), 0, 1) * 255
    return _shrunk(greys.reshape(n, 1, side, side))
