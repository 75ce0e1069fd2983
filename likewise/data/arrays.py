"""Turn arrays, .npy and .npz files into items: images (n, c, h, w) uint8 or vectors (n, f) float32.

Images may come in any layout and bit depth. Floating-point arrays (n, t, c) are time series, and `audio` with
`offsets` holds audio clips: both become sequences. Images with five axes are several views of each item, (n, v, …),
and become n · v rows, item by item. Images that already are uint8 and of the requested size are not copied, whether
they are in memory or in a mapped file.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from likewise.data import texts
from likewise.data.archives import map_npy, open_npz
from likewise.data.cache import Plan, cache_key, fetch
from likewise.data.captions import from_columns
from likewise.data.clips import from_clips
from likewise.data.columns import GROUPS, array_roles, caption_keys
from likewise.data.folder import stamp
from likewise.data.gaps import Filling, fill
from likewise.data.images import FITS, Fit, over_white, sixteen_bits
from likewise.data.items import ROWS, TEXT, Captions, DataError, Items, digest, make
from likewise.data.labels import grouped, labelled
from likewise.data.memory import check_fits
from likewise.data.series import from_series, is_series
from likewise.data.views import VIEWED, by_view
from likewise.data.work import in_order
from likewise.memory import shortage

CHANNELS = (1, 3, 4)


def from_array(
    array: NDArray[Any],
    name: str,
    size: int | None = None,
    views: tuple[str, ...] = (),
    *,
    fit: str = "crop",
    filling: Filling = fill,
    **columns: Any,
) -> Items:
    """Return the items of an array in memory; `columns` are labels, groups, captions and so on, one entry per item.

    `views` name the entries of the second axis of an array with five axes.
    """
    if is_series(array):
        return from_series(array, name, filling=filling, **columns)
    rows = layout(array, name)
    if columns.get("captions") is not None or array.ndim == VIEWED:
        rows, columns = by_view(rows, name, array.shape, views, columns)
    ready = vectors(rows, name) if rows.ndim == 2 else images(rows, name, side(rows, size, fit), fit)
    return make(ready, name, content=digest(ready), native=_native(rows), oblong=_oblong(rows), **columns)


def from_mapping(
    arrays: Mapping[str, Any],
    name: str,
    size: int | None = None,
    *,
    fit: str = "crop",
    rate: int | None = None,
    filling: Filling = fill,
    columns: Mapping[str, str] | None = None,
) -> Items:
    """Return the items of named arrays: `x`, or `x_train` and `x_test`, or `audio` and `offsets`, or `text`.

    Optional arrays are `y`, `group`, `captions` (each also as `…_train` and `…_test`), `is_test` and `class_names`;
    for sequences `rate` and `channels`; for images in several views the names of these views, `views`. `columns` maps
    such a role to the array that plays it, where the array has another name.
    """
    captions_of_part = caption_keys(arrays, columns or {}, name)
    roles = array_roles(arrays, columns or {}, name)
    # As an array, every string of a list would take as much memory as the longest.
    given = {role: np.asarray(arrays[key]) for role, key in roles.items() if role != TEXT}
    if "x_test" in given and "x_train" not in given:  # then x and y are the training part
        renames = {key: f"{key}_train" for key in ("x", "y", *GROUPS)}
        given = {renames.get(key, key): array for key, array in given.items()}
        captions_of_part = {part or "_train": keys for part, keys in captions_of_part.items()}
    known: dict[str, Any] = {}
    parts: list[NDArray[Any]] = []
    if "x" not in given:
        parts = [given[key] for key in ("x_train", "x_test") if key in given]
    if "is_test" in given and not parts:
        known["test"] = _mask(given["is_test"])
    elif len(parts) == 2:
        known["test"] = np.arange(len(parts[0]) + len(parts[1])) >= len(parts[0])
    names = _names(given, "class_names")
    if (y := _column(given, "y", parts)) is not None:
        known["labels"], known["classes"] = labelled(y, names)
    groups = (_column(given, key, parts) for key in GROUPS if key in given or f"{key}_train" in given)
    if (group := next(groups, None)) is not None:
        known["groups"] = grouped(group)
    if (captions := _captions(arrays, captions_of_part, parts, name)) is not None:
        known["captions"] = captions
    if "x" in given or parts:
        x = given["x"] if "x" in given else _joined(parts, name)
        if x.ndim == VIEWED and not {*GROUPS} & {*(columns or {})}:
            # The views of one item form a group, unless the user explicitly names another array as the groups.
            known.pop("groups", None)
        if not is_series(x):
            return from_array(x, name, size, _names(given, "views"), fit=fit, **known)
        channels = _names(given, "channels")
        return from_series(x, name, filling=filling, rate=_rate(given, name), channels=channels, **known)
    if "audio" in given:
        offsets, stored_rate = given.get("offsets"), _rate(given, name)
        return from_clips(given["audio"], offsets, name, rate=stored_rate, wanted=rate, **known)
    if TEXT in roles:
        if "captions" in known:
            raise DataError(f"expected texts or captions in {name}, got both")
        return texts.from_memory(arrays[roles[TEXT]], name, **known)
    got = ", ".join(sorted(map(str, arrays))) or "none"
    raise DataError(f"expected an array x, x_train, audio or text in {name}, got {got}")


def from_npz(
    path: Path,
    name: str,
    size: int | None,
    *,
    fit: str = "crop",
    rate: int | None = None,
    filling: Filling = fill,
    columns: Mapping[str, str] | None = None,
) -> Items:
    """Return the items of an .npz file, reading only the arrays that have a role."""
    with open_npz(path, name) as archive:
        wanted = set(array_roles(archive.keys, columns or {}, name).values())
        wanted = wanted.union(*caption_keys(archive.keys, columns or {}, name).values())
        arrays = {key: np.empty(0) for key in archive.keys} | archive.read(sorted(wanted))
    return from_mapping(arrays, name, size, fit=fit, rate=rate, filling=filling, columns=columns)


def from_npy(
    path: Path,
    name: str,
    size: int | None,
    cached: Path,
    progress: bool,
    *,
    fit: str = "crop",
    filling: Filling = fill,
) -> Items:
    """Return the items of a mapped .npy file; images of another bit depth or size are converted into the cache."""
    array = map_npy(path, name)
    if is_series(array):
        return from_series(array, name, filling=filling)
    file = stamp(path)
    rows = layout(array, name)
    if rows.ndim == 2:
        ready = vectors(rows, name)
        return make(ready, name, content=digest(ready, f"{file.size} {file.time}"), native=_native(rows))
    known: dict[str, Any] = {"oblong": _oblong(rows)}
    if array.ndim == VIEWED:
        _, known = by_view(rows, name, array.shape, (), known)
    size = side(rows, size, fit)
    if is_ready(rows, size):
        return make(rows, name, content=digest(rows, f"{file.size} {file.time}"), native=_native(rows), **known)

    def plan() -> Plan:
        return Plan(_row_shape(rows, size), len(rows), converting(rows, name, size, fit))

    stored = fetch(cached, cache_key(f"npy, {fit}", path, [file], size), plan, name, progress)
    return make(stored.array, name, content=stored.content, native=_native(rows), **known)


def layout(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return the array as (n, c, h, w) or (n, f), without a copy.

    Where both the second and the last axis could be channels, the images are assumed to be square. The first two of
    five axes become one.
    """
    given = array.shape
    if array.ndim == VIEWED:
        array = array.reshape(given[0] * given[1], *given[2:])
    shape = array.shape
    if array.dtype.kind not in "biuf":
        raise DataError(f"items must be numbers, got {array.dtype} in {name}")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and shape[-1] in CHANNELS and (shape[1] not in CHANNELS or _has_channels_last(shape)):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim not in (2, 4) or (array.ndim == 4 and shape[1] not in CHANNELS):
        raise DataError(
            f"items must be images (n, h, w), (n, h, w, c) or (n, c, h, w) with 1, 3 or 4 channels, "
            f"views of them (n, v, …), or vectors (n, f), got {given} in {name}"
        )
    if 0 in given[1:]:
        raise DataError(f"items must not be empty, got {given} in {name}")
    return array


def _has_channels_last(shape: tuple[int, ...]) -> bool:
    return shape[1] == shape[2] or shape[2] != shape[3]


def vectors(rows: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return vectors (n, f) as float32, after checking that all values are finite."""
    if rows.dtype != np.float32:
        check_fits(rows.size * 4, name)
    with np.errstate(over="ignore"):
        ready = rows if rows.dtype == np.float32 else rows.astype(np.float32)
    for start in range(0, len(ready), ROWS):
        finite = np.isfinite(ready[start : start + ROWS]).all(axis=1)
        if not finite.all():
            raise DataError(f"vectors must be finite, got nan or inf in row {start + int(finite.argmin())} of {name}")
    return ready


def side(rows: NDArray[Any], size: int | None, fit: str) -> int | None:
    """Return the side that images (n, c, h, w) are resized to: `size`, or the shorter side if they must become square.

    None means that they keep their size.
    """
    return min(rows.shape[2:]) if size is None and fit != "crop" and _oblong(rows) else size


def images(rows: NDArray[Any], name: str, size: int | None, fit: str) -> NDArray[np.uint8]:
    """Return images (n, c, h, w) uint8 in memory, c 1 or 3, resized to squares of side `size` if that is not None."""
    if is_ready(rows, size):
        return rows
    shape = (len(rows), *_row_shape(rows, size))
    if words := shortage(math.prod(shape)):
        raise DataError(f"{len(rows):,} images of {shape[2]:,} × {shape[3]:,} pixels would take {words}, in {name}")
    ready = np.empty(shape, dtype=np.uint8)
    start = 0
    for chunk in in_order(converting(rows, name, size, fit)):
        ready[start : start + len(chunk)] = chunk
        start += len(chunk)
    return ready


def is_ready(rows: NDArray[Any], size: int | None) -> bool:
    """Return whether images (n, c, h, w) can be used as they are, without conversion or resizing."""
    return rows.dtype == np.uint8 and rows.shape[1] != 4 and size in (None, *_square_side(rows))


def _square_side(rows: NDArray[Any]) -> tuple[int, ...]:
    return tuple({*rows.shape[2:]}) if rows.shape[2] == rows.shape[3] else ()


def _row_shape(rows: NDArray[Any], size: int | None) -> tuple[int, int, int]:
    _, c, h, w = rows.shape
    return (1 if c == 1 else 3, size or h, size or w)


def converting(rows: NDArray[Any], name: str, size: int | None, fit: str) -> Iterator[Callable[[], NDArray[np.uint8]]]:
    """Yield tasks that convert chunks of images, in order."""
    to_uint8 = _pixel_conversion(rows, name)
    resized = size if size not in (None, *_square_side(rows)) else None
    return (partial(_convert, rows, start, to_uint8, resized, FITS[fit]) for start in range(0, len(rows), ROWS))


def _convert(
    rows: NDArray[Any], start: int, to_uint8: Callable[[NDArray[Any]], NDArray[np.uint8]], size: int | None, fit: Fit
) -> NDArray[np.uint8]:
    chunk = to_uint8(rows[start : start + ROWS])
    if chunk.shape[1] == 4:
        chunk = over_white(chunk)
    if size is None:
        return chunk
    squares = [np.asarray(fit(_pillow_image(image), size)) for image in chunk]
    return np.stack([square[None] if square.ndim == 2 else square.transpose(2, 0, 1) for square in squares])


def _pillow_image(image: NDArray[np.uint8]) -> Image.Image:
    """Convert pixels (c, h, w) to a Pillow image."""
    return Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))


def _pixel_conversion(rows: NDArray[Any], name: str) -> Callable[[NDArray[Any]], NDArray[np.uint8]]:
    """Return the function that maps pixels to 0..255, chosen from the range of the whole array, not of one image."""
    if rows.dtype == np.uint8:
        return _unscaled
    if rows.dtype.kind == "b":
        return _scaled_by_255
    low, high, whole = _range(rows)
    if rows.dtype.kind == "f" and low >= 0 and high <= 1:
        return _scaled_by_255
    if low >= 0 and high <= 255 and whole:
        return _unscaled
    if rows.dtype.kind == "u" and rows.dtype.itemsize == 2:
        return sixteen_bits
    expected = "in 0..1 or whole numbers in 0..255" if rows.dtype.kind == "f" else "in 0..255, or uint16"
    fraction = "" if whole or not (low >= 0 and high <= 255) else " with fractions"
    raise DataError(f"pixels of {rows.dtype} must be {expected}, got {low:g}..{high:g}{fraction} in {name}")


def _range(rows: NDArray[Any]) -> tuple[float, float, bool]:
    low, high, whole = np.inf, -np.inf, True
    for start in range(0, len(rows), ROWS):
        chunk = rows[start : start + ROWS]
        low, high = float(np.minimum(low, chunk.min())), float(np.maximum(high, chunk.max()))  # NaN propagates
        whole = whole and (chunk.dtype.kind != "f" or bool((chunk == np.rint(chunk)).all()))
    return low, high, whole


def _unscaled(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    return pixels.astype(np.uint8)


def _scaled_by_255(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(pixels.astype(np.float32) * 255).astype(np.uint8)


def _oblong(rows: NDArray[Any]) -> int:
    """Return how many of the rows are images that are not square: all or none."""
    return len(rows) if rows.ndim == 4 and rows.shape[2] != rows.shape[3] else 0


def _native(rows: NDArray[Any]) -> int:
    return int(min(rows.shape[2:]) if rows.ndim == 4 else rows.shape[1])


def _rate(given: Mapping[str, NDArray[Any]], name: str) -> int:
    """Return the samples per second, or 0 if no rate is given."""
    rate = given.get("rate", np.zeros(1, dtype=np.int64))
    value = float(rate.item()) if rate.size == 1 and rate.dtype.kind in "iuf" else -1.0
    if value < 0 or not value.is_integer():
        raise DataError(f"rate must be a whole number of samples a second, got {rate.tolist()} in {name}")
    return int(value)


def _names(given: Mapping[str, NDArray[Any]], key: str) -> tuple[str, ...]:
    return tuple(str(text) for text in given[key].reshape(-1)) if key in given else ()


def _captions(
    arrays: Mapping[str, Any], texts: Mapping[str, tuple[str, ...]], parts: list[NDArray[Any]], name: str
) -> Captions | None:
    """Return the captions of all items, joined from the train and test parts if they come in two."""
    if "" in texts:
        return from_columns({key: arrays[key] for key in texts[""]}, name)
    captions: Captions = ()
    for part, x in zip(("_train", "_test"), parts, strict=False) if texts else ():
        captions += from_columns({key: arrays[key] for key in texts.get(part, ())}, name, len(x))
    return captions or None


def _mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.ndim != 1 or values.dtype.kind not in "biu":
        raise DataError(f"is_test must be true or false per item, got {values.shape} of {values.dtype}")
    return values.astype(np.bool_)


def _joined(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    train, test = parts
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"x_test must be like x_train, {train.shape[1:]} of {train.dtype} per item, "
            f"got {test.shape[1:]} of {test.dtype} in {name}"
        )
    return np.concatenate(parts)


def _column(given: Mapping[str, NDArray[Any]], key: str, parts: list[NDArray[Any]]) -> NDArray[Any] | None:
    """Return the array `key`, or its train and test parts joined; a missing part counts as unlabelled."""
    if key in given:
        return given[key]
    names = [f"{key}_train", f"{key}_test"][: len(parts)]
    given_parts = [given[name].reshape(-1) if name in given else None for name in names]
    if all(part is None for part in given_parts):
        return None
    is_text = any(part is not None and part.dtype.kind in "US" for part in given_parts)
    empty: str | int = "" if is_text else -1
    filled = [np.full(len(x), empty) if part is None else part for part, x in zip(given_parts, parts, strict=True)]
    for name, part, x in zip(names, filled, parts, strict=True):
        if len(part) != len(x):
            raise DataError(f"{name} must have one entry per item, {len(x)}, got {len(part)}")
    return np.concatenate(filled)
