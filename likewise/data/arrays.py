"""Arrays: images of any layout and depth as (n, c, h, w) uint8, vectors as (n, f) float32; .npy and .npz.

Floating (n, t, c) are series, and `audio` with `offsets` is clips: both become sequences. Images of five
axes are views of items, (n, v, …), and become n · v rows, item by item. Images that are uint8 already and
of the wanted size stay where they are, in a file as in memory.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from likewise.data.cache import Plan, cache_key, fetch
from likewise.data.captions import from_columns
from likewise.data.clips import from_clips
from likewise.data.columns import GROUPS, of_arrays, of_captions
from likewise.data.folder import stamp
from likewise.data.images import fit, over_white, sixteen_bits
from likewise.data.items import ROWS, Captions, DataError, Items, digest, make
from likewise.data.labels import grouped, labelled
from likewise.data.mapped import map_array
from likewise.data.series import from_series, is_series
from likewise.data.views import VIEWED, by_view
from likewise.data.work import in_order

CHANNELS = (1, 3, 4)


def from_array(
    array: NDArray[Any], name: str, size: int | None = None, views: tuple[str, ...] = (), **columns: Any
) -> Items:
    """Items of an array in memory, with what else is known of each; `views` name its second axis of five."""
    if is_series(array):
        return from_series(array, name, **columns)
    rows = layout(array, name)
    if columns.get("captions") is not None or array.ndim == VIEWED:
        rows, columns = by_view(rows, name, array.shape, views, columns)
    ready = vectors(rows, name) if rows.ndim == 2 else images(rows, name, size)
    return make(ready, name, content=digest(ready), native=_native(rows), **columns)


def from_mapping(
    arrays: Mapping[str, Any],
    name: str,
    size: int | None = None,
    *,
    rate: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> Items:
    """Items of named arrays: `x`, or `x_train` and `x_test`, or `audio` and `offsets`, and what is known of them.

    That is `y`…, `is_test`, `group`…, `class_names`, `captions`, for sequences `rate` and `channels`, and for
    images in several views the names of these, `views`; `columns` say which array plays which of these roles
    where it is not the one of that name.
    """
    texts = of_captions(arrays, columns or {}, name)
    roles = of_arrays(arrays, columns or {}, name)
    given = {role: np.asarray(arrays[key]) for role, key in roles.items()}
    if "x_test" in given and "x_train" not in given:  # then x and y are the training part
        renames = {key: f"{key}_train" for key in ("x", "y", *GROUPS)}
        given = {renames.get(key, key): array for key, array in given.items()}
        texts = {part or "_train": keys for part, keys in texts.items()}
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
    if (captions := _captions(arrays, texts, parts, name)) is not None:
        known["captions"] = captions
    if "x" in given or parts:
        x = given["x"] if "x" in given else _joined(parts, name)
        if x.ndim == VIEWED and not {*GROUPS} & {*(columns or {})}:
            known.pop("groups", None)  # an array that is only called so does not part the views of an item
        if not is_series(x):
            return from_array(x, name, size, _names(given, "views"), **known)
        channels = _names(given, "channels")
        return from_series(x, name, rate=_rate(given, name), channels=channels, **known)
    if "audio" in given:
        offsets, found = given.get("offsets"), _rate(given, name)
        return from_clips(given["audio"], offsets, name, rate=found, wanted=rate, **known)
    got = ", ".join(sorted(map(str, arrays))) or "none"
    raise DataError(f"expected an array x, x_train or audio in {name}, got {got}")


def from_npz(
    path: Path,
    name: str,
    size: int | None,
    *,
    rate: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> Items:
    if not zipfile.is_zipfile(path):
        raise DataError(f"cannot read {name}: it is not an .npz archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = set(of_arrays(archive.files, columns or {}, name).values())
            wanted = wanted.union(*of_captions(archive.files, columns or {}, name).values())
            arrays = {key: archive[key] if key in wanted else np.empty(0) for key in archive.files}
    except DataError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"cannot read {name}: {_why(error)}") from None
    return from_mapping(arrays, name, size, rate=rate, columns=columns)


def from_npy(path: Path, name: str, size: int | None, cached: Path, progress: bool) -> Items:
    """A mapped array; images of another depth or size go through the cache, a few at a time."""
    with path.open("rb") as opened:
        if opened.read(6) != b"\x93NUMPY":
            raise DataError(f"cannot read {name}: it is not an .npy array")
    try:
        array = map_array(path)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {name}: {_why(error)}") from None
    if is_series(array):
        return from_series(array, name)
    file = stamp(path)
    rows = layout(array, name)
    if rows.ndim == 2:
        ready = vectors(rows, name)
        return make(ready, name, content=digest(ready, f"{file.size} {file.time}"), native=_native(rows))
    known: dict[str, Any] = {}
    if array.ndim == VIEWED:
        _, known = by_view(rows, name, array.shape, (), known)
    if is_ready(rows, size):
        return make(rows, name, content=digest(rows, f"{file.size} {file.time}"), native=_native(rows), **known)

    def plan() -> Plan:
        return Plan(_row(rows, size), len(rows), converting(rows, name, size))

    stored = fetch(cached, cache_key("npy", path, [file], size), plan, name, progress)
    return make(stored.array, name, content=stored.content, native=_native(rows), **known)


def layout(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The array as (n, c, h, w) or (n, f), without a copy.

    Where both the second and the last axis could be channels, the images are taken to be square; of five
    axes, the first two become one.
    """
    given = array.shape
    if array.ndim == VIEWED:
        array = array.reshape(given[0] * given[1], *given[2:])
    shape = array.shape
    if array.dtype.kind not in "biuf":
        raise DataError(f"items must be numbers, got {array.dtype} in {name}")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and shape[-1] in CHANNELS and (shape[1] not in CHANNELS or _last(shape)):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim not in (2, 4) or (array.ndim == 4 and shape[1] not in CHANNELS):
        raise DataError(
            f"items must be images (n, h, w), (n, h, w, c) or (n, c, h, w) with 1, 3 or 4 channels, "
            f"views of them (n, v, …), or vectors (n, f), got {given} in {name}"
        )
    if 0 in given[1:]:
        raise DataError(f"items must not be empty, got {given} in {name}")
    return array


def _last(shape: tuple[int, ...]) -> bool:
    return shape[1] == shape[2] or shape[2] != shape[3]


def vectors(rows: NDArray[Any], name: str) -> NDArray[np.float32]:
    """(n, f) float32, all finite."""
    with np.errstate(over="ignore"):
        ready = rows if rows.dtype == np.float32 else rows.astype(np.float32)
    for start in range(0, len(ready), ROWS):
        finite = np.isfinite(ready[start : start + ROWS]).all(axis=1)
        if not finite.all():
            raise DataError(f"vectors must be finite, got nan or inf in row {start + int(finite.argmin())} of {name}")
    return ready


def images(rows: NDArray[Any], name: str, size: int | None) -> NDArray[np.uint8]:
    """(n, c, h, w) uint8 with c 1 or 3, square at `size` where one is asked for; in memory."""
    if is_ready(rows, size):
        return rows
    ready = np.empty((len(rows), *_row(rows, size)), dtype=np.uint8)
    start = 0
    for chunk in in_order(converting(rows, name, size)):
        ready[start : start + len(chunk)] = chunk
        start += len(chunk)
    return ready


def is_ready(rows: NDArray[Any], size: int | None) -> bool:
    return rows.dtype == np.uint8 and rows.shape[1] != 4 and size in (None, *_square(rows))


def _square(rows: NDArray[Any]) -> tuple[int, ...]:
    return tuple({*rows.shape[2:]}) if rows.shape[2] == rows.shape[3] else ()


def _row(rows: NDArray[Any], size: int | None) -> tuple[int, int, int]:
    _, c, h, w = rows.shape
    return (1 if c == 1 else 3, size or h, size or w)


def converting(rows: NDArray[Any], name: str, size: int | None) -> Iterator[Callable[[], NDArray[np.uint8]]]:
    """Tasks that make chunks of images ready, in order."""
    depth = _depth(rows, name)
    resized = size if size not in (None, *_square(rows)) else None
    return (partial(_convert, rows, start, depth, resized) for start in range(0, len(rows), ROWS))


def _convert(
    rows: NDArray[Any], start: int, depth: Callable[[NDArray[Any]], NDArray[np.uint8]], size: int | None
) -> NDArray[np.uint8]:
    chunk = depth(rows[start : start + ROWS])
    if chunk.shape[1] == 4:
        chunk = over_white(chunk)
    if size is None:
        return chunk
    squares = [np.asarray(fit(_picture(image), size)) for image in chunk]
    return np.stack([square[None] if square.ndim == 2 else square.transpose(2, 0, 1) for square in squares])


def _picture(image: NDArray[np.uint8]) -> Image.Image:
    """(c, h, w) as Pillow has it."""
    return Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))


def _depth(rows: NDArray[Any], name: str) -> Callable[[NDArray[Any]], NDArray[np.uint8]]:
    """How pixels become 0..255: by what the whole array holds, never by one image of it."""
    if rows.dtype == np.uint8:
        return _plainly
    if rows.dtype.kind == "b":
        return _by_255
    low, high, whole = _range(rows)
    if rows.dtype.kind == "f" and low >= 0 and high <= 1:
        return _by_255
    if low >= 0 and high <= 255 and whole:
        return _plainly
    if rows.dtype.kind == "u" and rows.dtype.itemsize == 2:
        return sixteen_bits
    expected = "in 0..1 or whole numbers in 0..255" if rows.dtype.kind == "f" else "in 0..255, or uint16"
    fraction = "" if whole or not (low >= 0 and high <= 255) else " with fractions"
    raise DataError(f"pixels of {rows.dtype} must be {expected}, got {low:g}..{high:g}{fraction} in {name}")


def _range(rows: NDArray[Any]) -> tuple[float, float, bool]:
    low, high, whole = np.inf, -np.inf, True
    for start in range(0, len(rows), ROWS):
        chunk = rows[start : start + ROWS]
        low, high = float(np.minimum(low, chunk.min())), float(np.maximum(high, chunk.max()))  # nan stays nan
        whole = whole and (chunk.dtype.kind != "f" or bool((chunk == np.rint(chunk)).all()))
    return low, high, whole


def _plainly(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    return pixels.astype(np.uint8)


def _by_255(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(pixels.astype(np.float32) * 255).astype(np.uint8)


def _native(rows: NDArray[Any]) -> int:
    return int(min(rows.shape[2:]) if rows.ndim == 4 else rows.shape[1])


def _rate(given: Mapping[str, NDArray[Any]], name: str) -> int:
    """Samples a second; 0 where it is not said."""
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
    """Those of all items, or of the train and test parts; a part without any has none."""
    if "" in texts:
        return from_columns({key: arrays[key] for key in texts[""]}, name)
    found: Captions = ()
    for part, x in zip(("_train", "_test"), parts, strict=False) if texts else ():
        found += from_columns({key: arrays[key] for key in texts.get(part, ())}, name, len(x))
    return found or None


def _mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.ndim != 1 or values.dtype.kind not in "biu":
        raise DataError(f"is_test must be true or false an item, got {values.shape} of {values.dtype}")
    return values.astype(np.bool_)


def _joined(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    train, test = parts
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"x_test must be like x_train, {train.shape[1:]} of {train.dtype} an item, "
            f"got {test.shape[1:]} of {test.dtype} in {name}"
        )
    return np.concatenate(parts)


def _column(given: Mapping[str, NDArray[Any]], key: str, parts: list[NDArray[Any]]) -> NDArray[Any] | None:
    """`key` itself, or its train and test parts; a part that is missing has no labels."""
    if key in given:
        return given[key]
    names = [f"{key}_train", f"{key}_test"][: len(parts)]
    found = [given[name].reshape(-1) if name in given else None for name in names]
    if all(part is None for part in found):
        return None
    texts = any(part is not None and part.dtype.kind in "US" for part in found)
    empty: str | int = "" if texts else -1
    filled = [np.full(len(x), empty) if part is None else part for part, x in zip(found, parts, strict=True)]
    for name, part, x in zip(names, filled, parts, strict=True):
        if len(part) != len(x):
            raise DataError(f"{name} must have one entry an item, {len(x)}, got {len(part)}")
    return np.concatenate(filled)


def _why(error: Exception) -> str:
    text = str(error)
    if "pickle" in text or "Python object" in text:
        return "it holds Python objects, not arrays of numbers"
    return " ".join(text.split())[:200] or type(error).__name__
