"""Define `Sequences`: items that are recordings or sensor logs of any length."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import gaps
from likewise.data.items import (
    AUDIO,
    CAPTION,
    NO_CAPTION,
    SERIES,
    Captions,
    DataError,
    Items,
    Skipped,
    check_columns,
    digest,
    drop_single_class,
    fingerprint,
    text_part,
)
from likewise.data.parts import RaggedPart, TableColumns

CHANNEL = ("audio",)  # the channel names of data that were read as audio


class Sequences(Items):
    """Items whose first part is ragged: recordings or series."""

    @property
    def main(self) -> RaggedPart:
        part = super().main
        assert isinstance(part, RaggedPart)
        return part

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each sequence begins in the array, and where the last ends: (n + 1,)."""
        return self.main.offsets

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each sequence (n,) in samples."""
        return self.main.lengths

    @property
    def rate(self) -> int:
        """Samples per second; 0 if unknown."""
        return self.main.rate

    @property
    def channels(self) -> tuple[str, ...]:
        return self.main.channels

    @property
    def table(self) -> TableColumns | None:
        return self.main.table

    def windows(self, ids: NDArray[Any], starts: NDArray[Any], length: int) -> NDArray[np.float32]:
        """Return (m, length, c) from sample `starts` (m,) on, NaN after a sequence's end."""
        return self.main.windows(ids, starts, length)


def make_sequences(
    array: NDArray[Any],
    offsets: NDArray[np.int64],
    name: str,
    *,
    rate: int,
    channels: tuple[str, ...],
    content: str = "",
    labels: NDArray[np.int64] | None = None,
    classes: tuple[str, ...] = (),
    groups: NDArray[np.int64] | None = None,
    test: NDArray[np.bool_] | None = None,
    paths: tuple[str, ...] | None = None,
    captions: Captions | None = None,
    skipped: tuple[Skipped, ...] = (),
    table: TableColumns | None = None,
    notes: tuple[str, ...] = (),
    consecutive: bool = False,
) -> Sequences:
    """Return sequences, after checking that the columns fit; `content` is the array's digest, if known."""
    columns = {"labels": labels, "groups": groups, "is_test": test, "paths": paths, "captions": captions}
    check_columns(len(offsets) - 1, name, columns, least=1)  # one long recording is enough, since it has many windows
    labels, classes = drop_single_class(labels, classes)
    content = hashlib.sha256((content or digest(array)).encode() + offsets.tobytes()).hexdigest()
    # The modality depends on how the data were read, not on their rate: a fast vibration sensor is a series.
    modality = AUDIO if channels == CHANNEL else SERIES
    native = int(np.median(np.diff(offsets)))
    part = RaggedPart(modality, array, native, offsets=offsets, rate=rate, channels=channels, table=table)
    parts = {modality: part}
    return Sequences(
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
        consecutive=consecutive,
    )


def make_usable(
    array: NDArray[Any],
    offsets: NDArray[np.int64],
    name: str,
    reasons: Sequence[str],
    called: Callable[[int], str],
    *,
    rate: int,
    channels: tuple[str, ...],
    skipped: tuple[Skipped, ...] = (),
    filled: NDArray[np.int64] | None = None,
    notes: tuple[str, ...] = (),
    **columns: Any,
) -> Sequences:
    """Return the sequences whose reason is empty; the others are listed as skipped, under the name `called(row)`.

    `filled` (n,) is how many missing values of each sequence were filled.
    """
    known = {key: columns.get(key) for key in ("labels", "groups", "test", "paths", "captions")}
    check_columns(len(reasons), name, {"is_test" if key == "test" else key: known[key] for key in known}, least=1)
    if known["captions"] is not None:
        rows = zip(reasons, known["captions"], strict=True)
        reasons = [reason or ("" if texts else NO_CAPTION) for reason, texts in rows]
    usable = np.array([not reason for reason in reasons], dtype=np.bool_)
    skipped += tuple(Skipped(called(row), reasons[row]) for row in np.flatnonzero(~usable).tolist())
    if not usable.any():
        raise DataError(f"no usable sequence in {name}: {skipped[-1].path}: {skipped[-1].reason}")
    lengths = np.diff(offsets)
    if not usable.all() or offsets[0] != 0 or offsets[-1] != len(array):
        array = array[offsets[0] : offsets[-1]][np.repeat(usable, lengths)]
    columns |= {key: _rows(column, usable) for key, column in known.items()}
    if filled is not None:
        notes += gaps.note(filled[usable], array.size)
    usable_offsets = np.concatenate([[0], np.cumsum(lengths[usable])]).astype(np.int64)
    return make_sequences(
        array, usable_offsets, name, rate=rate, channels=channels, skipped=skipped, notes=notes, **columns
    )


def _rows(column: Any, usable: NDArray[np.bool_]) -> Any:
    if column is None:
        return None
    return column[usable] if isinstance(column, np.ndarray) else tuple(itertools.compress(column, usable))
