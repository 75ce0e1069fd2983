"""Order the rows of a table by the time column that the user names, else by a column that certainly is a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.cells import Clock, clock
from likewise.data.items import DataError
from likewise.data.roles import A_TIME, ROLES, looks_like

EXAMPLE = "2024-05-31 12:00:00"
GOES_BACK = f"{A_TIME}, but its rows are not in order and some share a time"


@dataclass(frozen=True)
class Order:
    """The order of a table's rows: by sequence, and within each sequence by time."""

    rows: NDArray[np.int64]  # (rows,) indices into the table
    time: str | None  # the column that orders them; None: they keep the order of the table
    missing: NDArray[np.bool_]  # (rows,) in the table's order: true for a row without a time
    left_out: dict[str, str]  # the reason for each column that looks like a time but does not order the rows


@dataclass(frozen=True)
class _Candidate:
    """A column that looks like a time, and the rows sorted by it."""

    name: str
    clock: Clock
    rows: NDArray[np.int64]
    rises: bool  # whether it increases anywhere, in the table's order of rows
    falls: bool  # whether it decreases anywhere, in the table's order of rows
    repeats: bool  # whether two rows of a sequence share a time

    @property
    def why_not(self) -> str:
        """Return why it does not order the rows."""
        if self.falls and self.clock.daily:
            return f"{A_TIME} of day, which starts again at midnight"
        if self.falls and self.repeats:
            return GOES_BACK
        return A_TIME


def order_by(name: str, column: Any, codes: NDArray[np.int64], path: str) -> Order:
    """Order the rows of each sequence by the column that the user names; codes (rows,) number the sequences."""
    times = clock(column)
    if times is None:
        got = next((str(cell)[:40] for cell in column[:100].to_pylist() if cell is not None), "nothing")
        raise DataError(f"time must be numbers or dates such as {EXAMPLE} in {path}, got {got} in {name}")
    return Order(np.lexsort((times.values, codes)), name, times.missing, {})


def order(table: Any, roles: Mapping[str, str], codes: NDArray[np.int64]) -> Order:
    """Order the rows of each sequence by a column that looks like a time, if it certainly is one.

    `codes` (rows,) number the sequences. A column certainly is a time if the rows are sorted by it already. Otherwise
    the rows are sorted by it only if no value repeats within a sequence (measured values would), if it is not a time of
    day, which starts again at midnight, and if the columns by which the rows are sorted already stay sorted.
    """
    table_order = np.lexsort((codes,))
    left_out: dict[str, str] = {}
    candidates: list[_Candidate] = []
    for name, column in _like_times(table, roles):
        left_out[name] = A_TIME
        times = clock(column)
        if times is not None and 2 * np.count_nonzero(times.missing) < len(codes):
            candidates.append(_candidate(name, times, codes, table_order))
        elif times is None and column.null_count < len(codes):
            left_out[name] = f"{A_TIME}, but is not written as one that can be sorted, such as {EXAMPLE}"
    in_order = [candidate for candidate in candidates if candidate.rises and not candidate.falls]
    strictly_in_order = [candidate for candidate in in_order if not candidate.repeats]
    movable = [
        candidate
        for candidate in candidates
        if candidate.falls
        and not candidate.repeats
        and not candidate.clock.daily
        and not any(_falls(*_neighbours(other.clock, codes, candidate.rows)) for other in in_order)
    ]
    chosen = next(iter([*strictly_in_order, *movable, *in_order]), None)
    left_out |= {candidate.name: candidate.why_not for candidate in candidates}
    if chosen is None:
        return Order(table_order, None, np.zeros(len(codes), dtype=np.bool_), left_out)
    del left_out[chosen.name]
    if chosen in movable:
        return Order(chosen.rows, chosen.name, chosen.clock.missing, left_out)
    return Order(table_order, chosen.name, np.zeros(len(codes), dtype=np.bool_), left_out)


def _like_times(table: Any, roles: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the columns without a role that look like times, those with the usual names first."""
    usual = {name: index for index, name in enumerate(ROLES["time"])}
    names = {name: index for index, name in enumerate(table.column_names) if name not in roles.values()}
    for name in sorted(names, key=lambda name: usual.get(name.lower(), len(usual))):
        column = table.column(names[name])
        if looks_like(name, str(column.type)) == A_TIME:
            yield name, column


def _candidate(name: str, times: Clock, codes: NDArray[np.int64], table_order: NDArray[np.int64]) -> _Candidate:
    rows = np.lexsort((times.values, codes))
    before, after = _neighbours(times, codes, table_order)
    first, second = _neighbours(times, codes, rows)
    rises, repeats = bool((after > before).any()), bool((first == second).any())
    return _Candidate(name, times, rows, rises, _falls(before, after), repeats)


def _neighbours(times: Clock, codes: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the times of rows and of the rows that follow them in the same sequence, ignoring rows without a time."""
    rows = rows[~times.missing[rows]]
    values, same_sequence = times.values[rows], codes[rows][1:] == codes[rows][:-1]
    return values[:-1][same_sequence], values[1:][same_sequence]


def _falls(before: NDArray[Any], after: NDArray[Any]) -> bool:
    return bool((after < before).any())
