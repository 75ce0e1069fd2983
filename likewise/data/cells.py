"""Read one column of an Arrow table as numbers, as times, or as indices into its distinct values."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool")
DATES = ("timestamp", "date", "duration")
HOURS = ("time32", "time64")  # times of day
TEXTS = ("string", "large_string", "dictionary")
# Texts in which alphabetical order is chronological order.
YEAR_FIRST = re.compile(r"\d{4}([-/.]?)\d\d\1\d\d(\D.*)?")
HOUR_FIRST = re.compile(r"\d\d:\d\d(:\d\d([.,]\d+)?)?")
ONE_NUMBER = re.compile(r"(\D*)(\d+)(\D*)")  # as in `day 3`

Cell = int | str | float | bool | None


@dataclass(frozen=True)
class Clock:
    """A column read as times."""

    values: NDArray[Any]  # (rows,) sortable, NaN or NaT if missing
    daily: bool  # times of day without a date, which start again at midnight

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Return (rows,), true where a row has no time."""
        is_date = self.values.dtype.kind in "mM"
        return np.asarray(np.isnat(self.values) if is_date else np.isnan(self.values.astype(np.float64)))


def kind_of(column: Any) -> str:
    """Say what a column holds: text, or Arrow's name for it."""
    kind = str(column.type)
    return "text" if kind.startswith(TEXTS) else kind


def numbers(column: Any) -> NDArray[np.float64] | None:
    """Return a column as numbers (rows,), NaN where a cell is missing or not a number; None if most are not numbers."""
    kind = str(column.type)
    if kind.startswith(NUMBERS):
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=np.float64)
    if kind == "null":
        return np.full(len(column), np.nan)
    if not kind.startswith(TEXTS):
        return None
    codes, cells = coded(column)  # a single word among numbers makes Arrow read the whole column as text
    return _values_by_row([number(cell) for cell in cells], codes)


def number(cell: Cell) -> float:
    """Return a cell as a number, NaN if it is not one."""
    try:
        return float(cell) if cell is not None else math.nan
    except ValueError:
        return math.nan


def coded(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the index (rows,) of each cell among the distinct cells, −1 if it is empty, and these distinct cells."""
    encoded = column.combine_chunks()
    encoded = encoded if str(encoded.type).startswith("dictionary") else encoded.dictionary_encode()
    codes = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.to_pylist()


def clock(column: Any) -> Clock | None:
    """Return the times in a column, or None if their order is uncertain, as with `3/4/2024`."""
    kind = str(column.type)
    if kind.startswith(TEXTS):
        return _text_clock(column)
    if kind.startswith(HOURS):
        return Clock(_unconverted(column.cast(f"int{kind[4:6]}")), daily=True)
    if kind.startswith((*NUMBERS, *DATES)):
        return Clock(_unconverted(column), daily=False)
    return None


def _unconverted(column: Any) -> NDArray[Any]:
    """Return the values (rows,) without converting them if possible, so that dates and nanoseconds stay exact."""
    kind = str(column.type)
    if kind.startswith(DATES) or (kind.startswith(("int", "uint")) and column.null_count == 0):
        return np.asarray(column.to_numpy())
    return np.asarray(numbers(column))


def _text_clock(column: Any) -> Clock | None:
    codes, cells = coded(column)
    texts = ["" if cell is None else str(cell).strip() for cell in cells]
    if (values := _values_by_row([number(text) for text in texts], codes)) is not None:
        return Clock(values, daily=False)
    for pattern, daily in ((YEAR_FIRST, False), (HOUR_FIRST, True)):
        sortable = [text if pattern.fullmatch(text) else "" for text in texts]
        rank = {text: float(i) for i, text in enumerate(sorted(set(sortable) - {""}))}
        if (values := _values_by_row([rank.get(text, math.nan) for text in sortable], codes)) is not None:
            return Clock(values, daily=daily)
    matches = [ONE_NUMBER.fullmatch(text) for text in texts]
    if len({match and match.group(1, 3) for match in matches}) == 1:
        values = _values_by_row([float(match[2]) if match else math.nan for match in matches], codes)
        return None if values is None else Clock(values, daily=False)
    return None


def _values_by_row(values: Sequence[float], codes: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return the value of each row (rows,), given those of the distinct cells; None if most rows are NaN."""
    by_row = np.array([*values, np.nan])[codes]  # index −1, an empty cell, picks the NaN
    return by_row if 2 * np.count_nonzero(~np.isnan(by_row)) > len(by_row) else None


def one_each(column: Any, order: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[list[Cell], int | None]:
    """Return the value that all rows of each sequence share, and the first sequence whose rows differ.

    The value is None for a sequence whose rows differ; the index is None if there is no such sequence.
    """
    codes, cells = coded(column)
    if not len(codes):
        return [None] * len(lengths), None
    codes, starts = codes[order], np.cumsum(lengths) - lengths
    low, high = np.minimum.reduceat(codes, starts), np.maximum.reduceat(codes, starts)
    mixed = np.flatnonzero(low != high).tolist()
    shared = [cells[a] if a == b and a >= 0 else None for a, b in zip(low, high, strict=True)]
    return shared, mixed[0] if mixed else None
