"""Cut one long log into stretches, so that some of them can be trained on and others held out.

A stretch is an item like any other sequence, so no window goes across its ends. The stretches that are held out are
consecutive, and those beside them are neither trained on nor held out: what is measured just before or after a held-out
stretch would be too much like it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.cells import coded

ROWS = 1_000  # of a stretch, unless that makes too few or too many stretches
WANTED, MOST = 50, 1_000  # stretches; fewer than 50 make few held-out items, on which figures say little
SHORT, FEWEST = 100, 6  # a stretch has fewer rows only if there are not more stretches than these
SHORTEST = 16  # rows of a stretch, on average: a few frames of an encoder
CUTTING = ("y", "group", "is_test")  # roles that should have one value in all rows of a stretch
SPANS = 5  # of the log, at most: the end of each is held out
LEAST = 4  # stretches that are held out in each span, at least, if there are several spans


def cut(columns: Mapping[str, Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths of the stretches of a log.

    The log is also cut where a label, group or test part changes, given as `columns` by role, unless it changes all
    the time. `rows` (n,) is the order of the rows.
    """
    count = max(len(rows) // ROWS, min(WANTED, len(rows) // SHORT), FEWEST)
    count = min(count, MOST, len(rows) // SHORTEST)
    if count < 3:  # too few for a training part, a test part and a gap between them
        return np.array([len(rows)])
    changes = np.zeros(len(rows) - 1, dtype=np.bool_)
    for column in (columns[role] for role in CUTTING if role in columns):
        codes = coded(column)[0][rows]
        changed = codes[1:] != codes[:-1]
        if np.count_nonzero(changed) * SHORTEST <= len(rows):
            changes |= changed
    blocks = np.diff(np.concatenate([[0], np.flatnonzero(changes) + 1, [len(rows)]]))
    pieces = np.maximum(1, np.rint(blocks * count / len(rows)).astype(np.int64))
    cuts = [np.linspace(0, block, number + 1).astype(np.int64) for block, number in zip(blocks, pieces, strict=True)]
    return np.concatenate([np.diff(places) for places in cuts])


def names(lengths: NDArray[np.int64]) -> list[str]:
    """Return the names of stretches, which sort in their order: `rows 0000-0999`."""
    ends = np.cumsum(lengths)
    width = len(str(ends[-1] - 1))
    return [f"rows {end - length:0{width}}-{end - 1:0{width}}" for end, length in zip(ends, lengths, strict=True)]


def note(lengths: NDArray[np.int64]) -> str:
    """Say that a log was cut, or that it was not because it is short."""
    without, hint = "no column names the sequences", "--column sequence=NAME says which one does"
    if len(lengths) == 1:
        return f"{without}, so the file is one sequence, too short to be cut; {hint}"
    stretches = f"{len(lengths):,} stretches of {np.median(lengths):,.0f} rows (median)"
    return f"{without}, so the file is read as one log and cut into {stretches}; {hint}"


def hold_out(count: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stretches to train on and those held out, a share of them; stretches beside them are in neither.

    The last ones are held out, or, if there are many, the last ones of a few equal spans of the log.
    """
    held_out = min(max(1, round(share * count)), count - 2) if share > 0 and count > 2 else 0
    spans = max(1, min(SPANS, held_out // LEAST, (count - held_out) // LEAST))
    is_test = np.zeros(count, dtype=np.bool_)
    for span, wanted in zip(
        np.array_split(np.arange(count), spans), np.array_split(np.arange(held_out), spans), strict=True
    ):
        is_test[span[len(span) - len(wanted) :]] = True
    is_beside = np.zeros(count, dtype=np.bool_)
    is_beside[1:] |= is_test[:-1]
    is_beside[:-1] |= is_test[1:]
    return np.flatnonzero(~is_test & ~is_beside), np.flatnonzero(is_test)
