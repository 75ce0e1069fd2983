"""What every source becomes: rows of one array, and what is known of each row."""

import hashlib
import json
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LARGEST_DIGEST = 1 << 30  # bytes of a file that are read to tell whether it has changed
ROWS = 256  # rows looked at together
HASHED = 1 << 20  # bytes hashed together: a row may be one sample of a recording
NO_CAPTION = "no caption"  # why an item is left out where others have captions

Captions = tuple[tuple[str, ...], ...]  # of each item


class DataError(ValueError):
    """Data that cannot be used, and why, in one sentence."""


@dataclass(frozen=True)
class Skipped:
    """A file, clip or series that could not be read or used."""

    path: str
    reason: str
    kind: str = ""  # the ending, as in ".heic", of a file that is left out because of its kind


@dataclass(frozen=True, eq=False)
class Items:
    """Items of one source in sorted order; an item's id is its row."""

    array: NDArray[Any]  # images: (n, c, h, w) uint8, c 1 or 3; vectors: (n, f) float32; sequences: see there
    kind: Literal["image", "vector", "sequence"]
    name: str  # the source as given, for people
    fingerprint: str  # same data, same fingerprint, wherever it lies
    labels: NDArray[np.int64] | None  # (n,), −1 for none
    classes: tuple[str, ...]  # names of the labels
    groups: NDArray[np.int64] | None  # (n,)
    test: NDArray[np.bool_] | None  # (n,), the source's own test part
    paths: tuple[str, ...] | None  # of each item, relative to the source
    skipped: tuple[Skipped, ...]
    native: int  # median shorter side of the images as found, f, or the sequences' median length
    captions: Captions | None = field(default=None, kw_only=True)  # one or more of each item; None: not captioned
    oblong: int = field(default=0, kw_only=True)  # images that are not square as found

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Rows by id as a copy of their own, (m, c, h, w) or (m, f)."""
        return np.ascontiguousarray(self.array[np.asarray(ids)])


def digest(array: NDArray[Any], stamp: str = "") -> str:
    """A hash of the array's shape and content, in row order whatever its memory layout.

    A mapped file above `LARGEST_DIGEST` is known by its `stamp` (size and time) and rows spread over it.
    """
    found = start_digest(array.shape[1:])
    if stamp and array.nbytes > LARGEST_DIGEST:
        found.update(stamp.encode())
        array = array[np.linspace(0, len(array) - 1, 4096).astype(np.int64)]
    rows = max(ROWS, HASHED // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        found.update(np.ascontiguousarray(array[start : start + rows]).data)
    return found.hexdigest()


def start_digest(row: tuple[int, ...]) -> "hashlib._Hash":
    """The hash of no rows yet of the shape `row`."""
    return hashlib.sha256(repr(tuple(map(int, row))).encode())


def fingerprint(content: str, *columns: NDArray[Any] | None, captions: Captions | None = None) -> str:
    """One digest of the rows' content and of what is known of them: labels, groups, test, captions."""
    found = hashlib.sha256(content.encode())
    for column in columns:
        found.update(b"-" if column is None else b"+" + column.tobytes())
    for texts in captions or ():
        found.update(json.dumps(texts).encode())  # ["a", "b"] is not ["a, b"]
    return found.hexdigest()


def check_columns(count: int, name: str, columns: Mapping[str, Sized | None], least: int = 2) -> None:
    """Each column has one entry an item, and there are items."""
    for key, column in columns.items():
        if column is not None and len(column) != count:
            raise DataError(f"{key} must have one entry an item, {count} in {name}, got {len(column)}")
    if count < least:
        raise DataError(f"expected at least {least} item{'s' * (least > 1)} in {name}, got {count}")


def that_tell_apart(
    labels: NDArray[np.int64] | None, classes: tuple[str, ...]
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return the labels and classes, or none: where all labelled items share one class, it tells none of them apart.

    A folder of images often lies in a single subfolder, and k-NN would find its name in every case.
    """
    if labels is None or len(np.unique(labels[labels >= 0])) < 2:
        return None, ()
    return labels, classes


def make(
    array: NDArray[Any],
    name: str,
    *,
    content: str,
    labels: NDArray[np.int64] | None = None,
    classes: tuple[str, ...] = (),
    groups: NDArray[np.int64] | None = None,
    test: NDArray[np.bool_] | None = None,
    paths: tuple[str, ...] | None = None,
    captions: Captions | None = None,
    skipped: tuple[Skipped, ...] = (),
    native: int,
    oblong: int = 0,
) -> Items:
    """Items whose columns have been seen to fit the array."""
    columns = {"labels": labels, "groups": groups, "is_test": test, "paths": paths, "captions": captions}
    check_columns(len(array), name, columns)
    labels, classes = that_tell_apart(labels, classes)
    return Items(
        array=array,
        kind="image" if array.ndim == 4 else "vector",
        name=name,
        fingerprint=fingerprint(content, labels, groups, test, captions=captions),
        labels=labels,
        classes=classes,
        groups=groups,
        test=test,
        paths=paths,
        skipped=skipped,
        native=native,
        captions=captions,
        oblong=oblong,
    )
