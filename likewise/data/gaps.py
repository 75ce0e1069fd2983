"""Fill short gaps in series: missing values between two measured ones are interpolated linearly.

A gap at either end of a sequence and a gap of more than `LONGEST` samples stay as they are, because nobody knows what
was measured there. A sequence with such a gap is left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import DataError

LONGEST = 10  # samples in a row that are filled, at most


class Filled(NamedTuple):
    counts: NDArray[np.int64]  # (n,): how many values were filled in each sequence
    reason: str  # why a sequence that still has a gap is left out


# Fills the gaps of sequences in place, given their values (samples, c) and offsets (n + 1,).
Filling = Callable[[NDArray[np.float32], NDArray[np.int64]], Filled]


def skip(values: NDArray[np.float32], offsets: NDArray[np.int64]) -> Filled:
    """Leave all gaps as they are."""
    return Filled(np.zeros(len(offsets) - 1, dtype=np.int64), "holds NaN")


def fill(values: NDArray[np.float32], offsets: NDArray[np.int64]) -> Filled:
    """Fill the short gaps within each sequence, channel by channel."""
    counts = np.zeros(len(offsets) - 1, dtype=np.int64)
    for channel in values.T:  # a view of one channel (samples,)
        starts, ends = _gaps(np.isnan(channel))
        sequence = np.searchsorted(offsets, starts, side="right") - 1
        within = (starts > offsets[sequence]) & (ends < offsets[sequence + 1])
        within &= ends - starts <= LONGEST
        starts, ends, sequence = starts[within], ends[within], sequence[within]
        if not len(starts):  # then the values may be read-only
            continue
        before, after, lengths = channel[starts - 1].astype(np.float64), channel[ends], ends - starts
        first = np.cumsum(lengths) - lengths
        place = 1 + np.arange(lengths.sum()) - np.repeat(first, lengths)  # 1, 2, … within each gap
        with np.errstate(invalid="ignore"):  # beside infinity, for which the sequence is left out anyway
            steps = (after - before) / (lengths + 1)
            values_between = np.repeat(before, lengths) + place * np.repeat(steps, lengths)
        channel[np.repeat(starts, lengths) + place - 1] = values_between
        counts += np.bincount(sequence, weights=lengths, minlength=len(counts)).astype(np.int64)
    return Filled(counts, f"holds NaN at an end or in a gap of more than {LONGEST} samples")


WAYS: dict[str, Filling] = {"skip": skip, "fill": fill}  # by the value of data.gaps


def way(gaps: Any) -> Filling:
    """Return what data.gaps names."""
    if gaps not in tuple(WAYS):  # a tuple, because a value from a recipe file may not be hashable
        raise DataError(f"gaps must be {' or '.join(WAYS)}, got {gaps!r}")
    return WAYS[gaps]


def note(counts: NDArray[np.int64], cells: int) -> tuple[str, ...]:
    """Say how many of the `cells` values of the sequences that are used were filled; empty if none was."""
    total, sequences = int(counts.sum()), int(np.count_nonzero(counts))
    if not total:
        return ()
    values = f"{total:,} missing value{'s' * (total > 1)} in {sequences:,} sequence{'s' * (sequences > 1)}"
    share = f"{100 * total / cells:.2g} % of all values"
    were = "were" if total > 1 else "was"
    return (f"{values} {were} filled by linear interpolation, {share}; data.gaps=skip leaves such sequences out",)


def _gaps(missing: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each run of missing values begins, and where it ends."""
    edges = np.diff(np.concatenate([[False], missing, [False]]).astype(np.int8))
    return np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
