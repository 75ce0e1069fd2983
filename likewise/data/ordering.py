"""The order of a table's rows: by the time that the user names, else by a column that certainly is one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.cells import Clock, clock
from likewise.data.items import DataError
from likewise.data.roles import A_TIME, ROLES, looks_like

EXAMPLE = "2024-05-31 12:00:00"


@dataclass(frozen=True)
class Order:
    """The rows of a table, sequence by sequence and within each in the order of time."""

    rows: NDArray[np.int64]  # (rows,)
    time: str | None  # the column that orders them; None: they stay as they came
    missing: NDArray[np.bool_]  # (rows,) as in the table: cannot be placed, for want of a time
    left_out: dict[str, str]  # columns that look like times and do not order the rows, and why


@dataclass(frozen=True)
class _Candidate:
    """A column that looks like a time, and the rows in its order."""

    name: str
    clock: Clock
    rows: NDArray[np.int64]
    rises: bool  # somewhere, in the rows as they came
    falls: bool
    repeats: bool  # somewhere, in the rows in its order

    @property
    def why_not(self) -> str:
        """Say why it does not order the rows."""
        if self.falls and self.clock.daily:
            return f"{A_TIME} of day, which begins anew at midnight"
        if self.falls and self.repeats:
            return f"{A_TIME}, but its rows are not in order and some share a time"
        return A_TIME


def order_by(name: str, column: Any, codes: NDArray[np.int64], path: str) -> Order:
    """Order the rows of the sequences, codes (rows,), by the column that the user names."""
    found = clock(column)
    if found is None:
        got = next((str(cell)[:40] for cell in column[:100].to_pylist() if cell is not None), "nothing")
        raise DataError(f"time must be numbers or dates such as {EXAMPLE} in {path}, got {got} in {name}")
    return Order(np.lexsort((found.values, codes)), name, found.missing, {})


def order(table: Any, roles: Mapping[str, str], codes: NDArray[np.int64]) -> Order:
    """Order the rows of the sequences, codes (rows,), by a column that looks like a time, where that is certain.

    It is certain where the rows are in the column's order already. They are moved only by a time that no sequence has
    twice, as a measured value would be, that does not begin anew at midnight, and that keeps in order whatever other
    times are.
    """
    as_they_came = np.lexsort((codes,))
    left_out: dict[str, str] = {}
    candidates: list[_Candidate] = []
    for name, column in _like_times(table, roles):
        left_out[name] = A_TIME
        found = clock(column)
        if found is not None and 2 * np.count_nonzero(found.missing) < len(codes):
            candidates.append(_candidate(name, found, codes, as_they_came))
        elif found is None and column.null_count < len(codes):
            left_out[name] = f"{A_TIME}, but is not written as one that can be sorted, such as {EXAMPLE}"
    in_order = [one for one in candidates if one.rises and not one.falls]
    strictly = [one for one in in_order if not one.repeats]
    movable = [
        one
        for one in candidates
        if one.falls
        and not one.repeats
        and not one.clock.daily
        and not any(_falls(*_neighbours(other.clock, codes, one.rows)) for other in in_order)
    ]
    chosen = next(iter([*strictly, *movable, *in_order]), None)
    left_out |= {one.name: one.why_not for one in candidates}
    if chosen is None:
        return Order(as_they_came, None, np.zeros(len(codes), dtype=np.bool_), left_out)
    del left_out[chosen.name]
    if chosen in movable:
        return Order(chosen.rows, chosen.name, chosen.clock.missing, left_out)
    return Order(as_they_came, chosen.name, np.zeros(len(codes), dtype=np.bool_), left_out)


def _like_times(table: Any, roles: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the columns without a role that look like times, those of the usual names first."""
    usual = {name: place for place, name in enumerate(ROLES["time"])}
    names = {name: place for place, name in enumerate(table.column_names) if name not in roles.values()}
    for name in sorted(names, key=lambda name: usual.get(name.lower(), len(usual))):
        column = table.column(names[name])
        if looks_like(name, str(column.type)) == A_TIME:
            yield name, column


def _candidate(name: str, found: Clock, codes: NDArray[np.int64], as_they_came: NDArray[np.int64]) -> _Candidate:
    rows = np.lexsort((found.values, codes))
    before, after = _neighbours(found, codes, as_they_came)
    first, second = _neighbours(found, codes, rows)
    rises, repeats = bool((after > before).any()), bool((first == second).any())
    return _Candidate(name, found, rows, rises, _falls(before, after), repeats)


def _neighbours(found: Clock, codes: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the times of rows and of those that follow them in their sequences; rows without a time do not count."""
    rows = rows[~found.missing[rows]]
    values, inside = found.values[rows], codes[rows][1:] == codes[rows][:-1]
    return values[:-1][inside], values[1:][inside]


def _falls(before: NDArray[Any], after: NDArray[Any]) -> bool:
    return bool((after < before).any())
