"""Turn arrays (n, t, c) of sensor readings into sequences; NaN after the end makes a series shorter."""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.gaps import Filling, fill
from likewise.data.items import ROWS, DataError
from likewise.data.memory import check_fits
from likewise.data.sequences import Sequences, make_usable

SHORTEST = 2  # samples
SAMPLES = 1 << 16  # checked for NaN at once


def is_series(array: NDArray[Any]) -> bool:
    """Return whether an array is floating-point (n, t, c), t ≠ c; square or integer arrays are grey images."""
    return array.ndim == 3 and array.dtype.kind == "f" and array.shape[1] != array.shape[2]


def unusable(series: NDArray[Any], has_gaps: str) -> str:
    """Return why a series (t, c) cannot be used, or an empty string if it can; `has_gaps` is the reason for NaN."""
    if len(series) < SHORTEST:
        return f"fewer than {SHORTEST} samples"
    low, high = series.min(axis=0), series.max(axis=0)
    if np.isnan(low).any():
        return has_gaps
    if not math.isfinite(float(low.min())) or not math.isfinite(float(high.max())):
        return "holds infinity"
    return "all values are the same" if (low == high).all() else ""


def from_series(
    array: NDArray[Any],
    name: str,
    *,
    filling: Filling = fill,
    rate: int = 0,
    channels: tuple[str, ...] = (),
    **columns: Any,
) -> Sequences:
    """Return the sequences of a floating-point array (n, t, c)."""
    n, t, c = array.shape
    if not array.size:
        raise DataError(f"items must not be empty, got {array.shape} in {name}")
    channels = channels or tuple(map(str, range(c)))
    if len(channels) != c:
        raise DataError(f"channels must name all {c} channels of {name}, got {len(channels)}")
    if array.dtype != np.float32:
        check_fits(array.size * 4, name)
    with np.errstate(over="ignore"):
        ready = array if array.dtype == np.float32 else array.astype(np.float32)
    lengths = np.concatenate([_lengths(ready[start : start + ROWS]) for start in range(0, n, ROWS)])
    rows = ready.reshape(-1, c) if (lengths == t).all() else ready[np.arange(t) < lengths[:, None]]
    if np.may_share_memory(rows, array) and _has_nan(rows):
        rows = rows.copy()  # filling gaps must not change the user's array
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    filled, has_gaps = filling(rows, offsets)
    reasons = [
        unusable(rows[start:stop], has_gaps) if stop > start else "holds NaN"
        for start, stop in itertools.pairwise(offsets)
    ]
    return make_usable(
        rows,
        offsets,
        name,
        reasons,
        "series {}".format,
        rate=rate,
        channels=channels,
        filled=filled,
        **columns,
    )


def _has_nan(rows: NDArray[np.float32]) -> bool:
    return any(bool(np.isnan(rows[start : start + SAMPLES]).any()) for start in range(0, len(rows), SAMPLES))


def _lengths(series: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the lengths (n,) of series: up to the last sample that is not all NaN."""
    is_present: NDArray[np.bool_] = ~np.asarray(np.isnan(series).all(axis=2))  # n, t
    padding = is_present[:, ::-1].argmax(axis=1)
    return np.where(is_present.any(axis=1), is_present.shape[1] - padding, 0).astype(np.int64)
