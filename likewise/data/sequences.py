"""Sequences: recordings and sensor logs of any length, one behind the other in one array.

Padding is NaN until the encoder sees it: no sequence may hold one, so a window needs no mask beside it.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import (
    NO_CAPTION,
    Captions,
    DataError,
    Items,
    Skipped,
    check_columns,
    digest,
    fingerprint,
    that_tell_apart,
)

SIXTEEN_BITS = 32768.0


@dataclass(frozen=True)
class TableColumns:
    """What became of the columns of a table that are not channels."""

    times: tuple[str, ...]  # those that order the rows; none: rows are as they came
    left_out: dict[str, str]  # those that are not used, with the reason


@dataclass(frozen=True, eq=False)
class Sequences(Items):
    """Items of kind "sequence": `array` is (samples, c), int16 audio or float32, all sequences in order."""

    offsets: NDArray[np.int64]  # (n + 1,): where each sequence begins, and the end
    rate: int  # samples a second; 0: not known
    channels: tuple[str, ...]  # names
    table: TableColumns | None = field(default=None, kw_only=True)  # None: they do not come from a table

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        """Whole sequences (m, t, c), t the longest of them, NaN behind the end of each."""
        ids = np.asarray(ids)
        longest = int(self.lengths[ids].max(initial=1))
        return self.windows(ids, np.zeros(len(ids), dtype=np.int64), longest)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) in samples."""
        return np.diff(self.offsets)

    def windows(self, ids: NDArray[Any], starts: NDArray[Any], length: int) -> NDArray[np.float32]:
        """(m, length, c) from sample `starts` (m,) of each on, NaN behind the sequence's end; audio in −1 to 1."""
        found = np.full((len(ids), length, self.array.shape[1]), np.nan, dtype=np.float32)
        for row, (item, start) in enumerate(zip(ids, starts, strict=True)):
            first = self.offsets[item] + start
            part = self.array[first : min(first + length, self.offsets[item + 1])]
            found[row, : len(part)] = part
        if self.array.dtype == np.int16:
            found /= SIXTEEN_BITS
        return found


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
) -> Sequences:
    """Sequences whose columns have been seen to fit; `content` is the digest of the array where it is known."""
    columns = {"labels": labels, "groups": groups, "is_test": test, "paths": paths, "captions": captions}
    check_columns(len(offsets) - 1, name, columns, least=1)  # one long recording has many windows
    labels, classes = that_tell_apart(labels, classes)
    content = hashlib.sha256((content or digest(array)).encode() + offsets.tobytes()).hexdigest()
    return Sequences(
        array=array,
        kind="sequence",
        name=name,
        fingerprint=fingerprint(content, labels, groups, test, captions=captions),
        labels=labels,
        classes=classes,
        groups=groups,
        test=test,
        paths=paths,
        skipped=skipped,
        native=int(np.median(np.diff(offsets))),
        offsets=offsets,
        rate=rate,
        channels=channels,
        captions=captions,
        table=table,
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
    **columns: Any,
) -> Sequences:
    """Sequences without those that have a reason, which go by what they are called; all columns alike."""
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
    kept = np.concatenate([[0], np.cumsum(lengths[usable])]).astype(np.int64)
    return make_sequences(array, kept, name, rate=rate, channels=channels, skipped=skipped, **columns)


def _rows(column: Any, usable: NDArray[np.bool_]) -> Any:
    if column is None:
        return None
    return column[usable] if isinstance(column, np.ndarray) else tuple(itertools.compress(column, usable))
