"""Define `Items`, which every source is read into: one or more parts, with labels, groups and so on per item."""

import hashlib
import json
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.parts import Part

LARGEST_DIGEST = 1 << 30  # bytes; a larger mapped file is hashed only in samples
ROWS = 256  # rows processed at once
HASHED = 1 << 20  # bytes hashed at once, because a row may be a single sample of a recording
NO_CAPTION = "no caption"  # the reason for skipping an item if others have captions

IMAGE, VECTOR, AUDIO, SERIES, TEXT = "image", "vector", "audio", "series", "text"  # names of modalities
CAPTION = "caption"  # the name of the part that holds captions

Captions = tuple[tuple[str, ...], ...]  # one tuple of texts per item


class DataError(ValueError):
    """Data cannot be used; the message says why in one sentence."""


@dataclass(frozen=True)
class Skipped:
    """A file, clip or series that could not be read or used."""

    path: str
    reason: str
    kind: str = ""  # the extension, such as ".heic", of a file that is left out because of its type


@dataclass(frozen=True, eq=False)
class Items:
    """The items of one source, in sorted order; an item's id is its index.

    The first part is the main one: it has exactly one row per item.
    """

    parts: Mapping[str, Part]  # by name
    name: str  # the source as given, for messages
    fingerprint: str  # a hash of the data, independent of where they are stored
    labels: NDArray[np.int64] | None  # (n,), −1 for an item without a label
    classes: tuple[str, ...]  # names of the labels
    groups: NDArray[np.int64] | None  # (n,), −1 for an item without a group
    test: NDArray[np.bool_] | None  # (n,), true for items of the source's test part
    paths: tuple[str, ...] | None  # one per item, relative to the source
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()  # sentences that say what was done to the data, for the plan
    consecutive: bool = False  # whether the items are stretches of one log, in order

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
        """The word for an item in messages: image, vector, sequence or text."""
        return self.main.kind

    @property
    def native(self) -> int:
        """The median shorter side of the images, the features of a vector, or the median length; of texts in words."""
        return self.main.native

    @property
    def oblong(self) -> int:
        """How many of the original images were not square."""
        return self.main.oblong

    @cached_property
    def captions(self) -> Captions | None:
        """The captions of each item, one or more; None if the items have no captions."""
        return None if CAPTION not in self.parts else by_item(self.parts[CAPTION], len(self))

    def texts_of(self, item: int) -> tuple[str, ...]:
        """Return the texts that stand for an item where it is shown: its captions, or itself if it is a text."""
        if self.captions is not None:
            return self.captions[item]
        return tuple(self.main.texts(np.array([item]))) if self.main.modality == TEXT else ()


def text_part(texts: Captions) -> Part:
    """Return texts, one or more for each item, as a part with a row for each text."""
    rows = np.array([text for item_texts in texts for text in item_texts], dtype=object)
    return Part(TEXT, rows, item=np.repeat(np.arange(len(texts)), [len(item_texts) for item_texts in texts]))


def by_item(part: Part, count: int) -> Captions:
    """Return the rows of a part, such as texts, as one tuple for each of `count` items."""
    assert part.item is not None
    ends = np.searchsorted(part.item, np.arange(count), side="right").tolist()
    rows = part.array.tolist()
    return tuple(tuple(rows[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def digest(array: NDArray[Any], stamp: str = "") -> str:
    """Return a hash of the array's row shape and content, independent of its memory layout.

    Of a mapped file larger than `LARGEST_DIGEST`, only its `stamp` (size and time) and evenly spaced rows are hashed.
    """
    content = start_digest(array.shape[1:])
    if stamp and array.nbytes > LARGEST_DIGEST:
        content.update(stamp.encode())
        array = array[np.linspace(0, len(array) - 1, 4096).astype(np.int64)]
    rows = max(ROWS, HASHED // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        content.update(np.ascontiguousarray(array[start : start + rows]).data)
    return content.hexdigest()


def start_digest(row: tuple[int, ...]) -> "hashlib._Hash":
    """Start a content hash for rows of shape `row`."""
    return hashlib.sha256(repr(tuple(map(int, row))).encode())


def fingerprint(content: str, *columns: NDArray[Any] | None, captions: Captions | None = None) -> str:
    """Return one hash of the rows' content and of their labels, groups, test part and captions."""
    combined = hashlib.sha256(content.encode())
    for column in columns:
        combined.update(b"-" if column is None else b"+" + column.tobytes())
    for texts in captions or ():
        combined.update(json.dumps(texts).encode())  # JSON, so that two captions differ from one joined caption
    return combined.hexdigest()


def check_columns(count: int, name: str, columns: Mapping[str, Sized | None], least: int = 2) -> None:
    """Raise an error unless every column has one entry per item and there are at least `least` items."""
    for key, column in columns.items():
        if column is not None and len(column) != count:
            raise DataError(f"{key} must have one entry per item, {count} in {name}, got {len(column)}")
    if count < least:
        raise DataError(f"expected at least {least} item{'s' * (least > 1)} in {name}, got {count}")


def drop_single_class(
    labels: NDArray[np.int64] | None, classes: tuple[str, ...]
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return the labels and classes, or None and () if all labelled items share one class.

    Images often lie in a single subfolder. Its name is not a useful label: every classifier would always be right.
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
    notes: tuple[str, ...] = (),
    native: int,
    oblong: int = 0,
) -> Items:
    """Return the items of one array, after checking that the columns fit it."""
    modality = IMAGE if array.ndim == 4 else VECTOR
    return of_part(
        Part(modality, array, native, oblong=oblong),
        name,
        content=content,
        labels=labels,
        classes=classes,
        groups=groups,
        test=test,
        paths=paths,
        captions=captions,
        skipped=skipped,
        notes=notes,
    )


def of_part(
    part: Part,
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
    notes: tuple[str, ...] = (),
) -> Items:
    """Return the items of one part, after checking that the columns fit it."""
    columns = {"labels": labels, "groups": groups, "is_test": test, "paths": paths, "captions": captions}
    check_columns(len(part), name, columns)
    labels, classes = drop_single_class(labels, classes)
    parts = {part.modality: part}
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
        notes=notes,
    )
