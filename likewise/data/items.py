"""What every source becomes: items, made of one or more parts, and what is known of each item."""

import hashlib
import json
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.parts import Part

LARGEST_DIGEST = 1 << 30  # bytes of a file that are read to tell whether it has changed
ROWS = 256  # rows looked at together
HASHED = 1 << 20  # bytes hashed together: a row may be one sample of a recording
NO_CAPTION = "no caption"  # why an item is left out where others have captions

IMAGE, VECTOR, AUDIO, SERIES, TEXT = "image", "vector", "audio", "series", "text"  # names of modalities
CAPTION = "caption"  # the name of the part that holds captions

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
    """Items of one source in sorted order; an item's id is its place in it.

    The first part is the one that an item is known by: it has one row for each item.
    """

    parts: Mapping[str, Part]  # by name
    name: str  # the source as given, for people
    fingerprint: str  # same data, same fingerprint, wherever it lies
    labels: NDArray[np.int64] | None  # (n,), −1 for none
    classes: tuple[str, ...]  # names of the labels
    groups: NDArray[np.int64] | None  # (n,), −1 for none
    test: NDArray[np.bool_] | None  # (n,), the source's own test part
    paths: tuple[str, ...] | None  # of each item, relative to the source
    skipped: tuple[Skipped, ...]

    def __len__(self) -> int:
        return len(self.main)

    def __getitem__(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Return rows of the first part by id, as a copy: (m, c, h, w), (m, f) or (m, t, c)."""
        return self.main[ids]

    @property
    def main(self) -> Part:
        """The first part."""
        return next(iter(self.parts.values()))

    @property
    def array(self) -> NDArray[Any]:
        """The array of the first part."""
        return self.main.array

    @property
    def kind(self) -> str:
        """What the items are called in messages: image, vector or sequence."""
        return self.main.kind

    @property
    def native(self) -> int:
        """Median shorter side of the images as they were found, features of a vector, or median length."""
        return self.main.native

    @property
    def oblong(self) -> int:
        """How many images were not square as they were found."""
        return self.main.oblong

    @cached_property
    def captions(self) -> Captions | None:
        """The captions of each item, one or more; None where the items have none."""
        return None if CAPTION not in self.parts else by_item(self.parts[CAPTION], len(self))


def text_part(texts: Captions) -> Part:
    """Return texts, one or more for each item, as a part with a row for each text."""
    rows = np.array([text for own in texts for text in own], dtype=object)
    return Part(TEXT, rows, item=np.repeat(np.arange(len(texts)), [len(own) for own in texts]))


def by_item(part: Part, count: int) -> Captions:
    """Return the rows of a part, such as texts, as one tuple for each of `count` items."""
    assert part.item is not None
    ends = np.searchsorted(part.item, np.arange(count), side="right").tolist()
    rows = part.array.tolist()
    return tuple(tuple(rows[start:end]) for start, end in zip([0, *ends], ends, strict=False))


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
    """Start a content hash for rows of shape `row`."""
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
    """Return items of one array, after checking that the columns fit it."""
    columns = {"labels": labels, "groups": groups, "is_test": test, "paths": paths, "captions": captions}
    check_columns(len(array), name, columns)
    labels, classes = that_tell_apart(labels, classes)
    modality = IMAGE if array.ndim == 4 else VECTOR
    parts = {modality: Part(modality, array, native, oblong=oblong)}
    return Items(
        parts=parts if captions is None else parts | {CAPTION: text_part(captions)},
        name=name,
        fingerprint=fingerprint(content, labels, groups, test, captions=captions),
        labels=labels,
        classes=classes,
        groups=groups,
        test=test,
        paths=paths,
        skipped=skipped,
    )
