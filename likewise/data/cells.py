"""The cells of one column of an Arrow table: as numbers, as times, as places in a list of different cells."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool")
DATES = ("timestamp", "date", "duration")
HOURS = ("time32", "time64")  # of a day
TEXTS = ("string", "large_string", "dictionary")
# Texts that sort as the times do that they name.
YEAR_FIRST = re.compile(r"\d{4}([-/.]?)\d\d\1\d\d(\D.*)?")
HOUR_FIRST = re.compile(r"\d\d:\d\d(:\d\d([.,]\d+)?)?")
ONE_NUMBER = re.compile(r"(\D*)(\d+)(\D*)")  # as in `day 3`

Cell = int | str | float | bool | None


@dataclass(frozen=True)
class Clock:
    """A column as times."""

    values: NDArray[Any]  # (rows,) that sort, NaN or NaT where there is none
    daily: bool  # hours and minutes without a day: they begin anew at midnight

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(rows,)"""
        is_date = self.values.dtype.kind in "mM"
        return np.asarray(np.isnat(self.values) if is_date else np.isnan(self.values.astype(np.float64)))


def kind_of(column: Any) -> str:
    """Say what a column holds: text, or Arrow's name for it."""
    kind = str(column.type)
    return "text" if kind.startswith(TEXTS) else kind


def numbers(column: Any) -> NDArray[np.float64] | None:
    """(rows,) with NaN for what is missing or no number; None for a column of other things, as of text."""
    kind = str(column.type)
    if kind.startswith(NUMBERS):
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=np.float64)
    if kind == "null":
        return np.full(len(column), np.nan)
    if not kind.startswith(TEXTS):
        return None
    codes, cells = coded(column)  # one word among numbers makes all of them text
    return _mostly([number(cell) for cell in cells], codes)


def number(cell: Cell) -> float:
    """Return the number that a cell holds, NaN where it holds none."""
    try:
        return float(cell) if cell is not None else math.nan
    except ValueError:
        return math.nan


def coded(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """(rows,) places in the list of different cells, −1 where there is none."""
    coded = column.combine_chunks()
    coded = coded if str(coded.type).startswith("dictionary") else coded.dictionary_encode()
    codes = coded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, coded.dictionary.to_pylist()


def clock(column: Any) -> Clock | None:
    """Return the times in a column; None where their order is not certain, as of `3/4/2024`."""
    kind = str(column.type)
    if kind.startswith(TEXTS):
        return _text_clock(column)
    if kind.startswith(HOURS):
        return Clock(_plain(column.cast(f"int{kind[4:6]}")), daily=True)
    if kind.startswith((*NUMBERS, *DATES)):
        return Clock(_plain(column), daily=False)
    return None


def _plain(column: Any) -> NDArray[Any]:
    """(rows,) as they are where that can be, so that dates and nanoseconds keep every digit."""
    kind = str(column.type)
    if kind.startswith(DATES) or (kind.startswith(("int", "uint")) and column.null_count == 0):
        return np.asarray(column.to_numpy())
    return np.asarray(numbers(column))


def _text_clock(column: Any) -> Clock | None:
    codes, cells = coded(column)
    texts = ["" if cell is None else str(cell).strip() for cell in cells]
    if (values := _mostly([number(text) for text in texts], codes)) is not None:
        return Clock(values, daily=False)
    for pattern, daily in ((YEAR_FIRST, False), (HOUR_FIRST, True)):
        sorts = [text if pattern.fullmatch(text) else "" for text in texts]
        place = {text: float(i) for i, text in enumerate(sorted(set(sorts) - {""}))}
        if (values := _mostly([place.get(text, math.nan) for text in sorts], codes)) is not None:
            return Clock(values, daily=daily)
    found = [ONE_NUMBER.fullmatch(text) for text in texts]
    if len({match and match.group(1, 3) for match in found}) == 1:
        values = _mostly([float(match[2]) if match else math.nan for match in found], codes)
        return None if values is None else Clock(values, daily=False)
    return None


def _mostly(values: Sequence[float], codes: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """(rows,) by the values of the different cells; None where most rows have none."""
    found = np.array([*values, np.nan])[codes]  # −1 is the last
    return found if 2 * np.count_nonzero(~np.isnan(found)) > len(found) else None


def one_each(column: Any, order: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[list[Cell], int | None]:
    """The cell that all rows of each sequence share, None where they do not; and the first such sequence."""
    codes, cells = coded(column)
    if not len(codes):
        return [None] * len(lengths), None
    codes, starts = codes[order], np.cumsum(lengths) - lengths
    low, high = np.minimum.reduceat(codes, starts), np.maximum.reduceat(codes, starts)
    mixed = np.flatnonzero(low != high).tolist()
    shared = [cells[a] if a == b and a >= 0 else None for a, b in zip(low, high, strict=True)]
    return shared, mixed[0] if mixed else None
