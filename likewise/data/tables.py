"""Tables of time series: CSV and Parquet, a row a point in time, a column a channel.

A column says which sequence a row belongs to; where a folder's files have none, each file is a sequence.
"""

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.builtin import needed
from likewise.data.cells import Cell, coded, kind_of, numbers, one_each
from likewise.data.columns import checked
from likewise.data.folder import File
from likewise.data.items import DataError, Skipped
from likewise.data.labels import from_paths, grouped, labelled, listed
from likewise.data.memory import check_fits
from likewise.data.ordering import Order, order, order_by
from likewise.data.parts import TableColumns
from likewise.data.roles import (
    CALLED,
    CHANNELS,
    NOT_NUMBERS,
    ROLES,
    Moves,
    looks_like,
    moves,
    named_channels,
    named_like,
    roles_of,
    told,
)
from likewise.data.sequences import Sequences, make_usable
from likewise.data.series import unusable
from likewise.data.table_files import UnreadableError, afterwards, look_into, while_reading

HINT = "say which are channels with --column channels=NAME+NAME"


@dataclass(frozen=True)
class _Part:
    """The sequences of one file, one behind the other."""

    file: str
    names: list[str] | None  # sorted; None: the file is one sequence
    values: NDArray[np.float32]  # (samples, c)
    lengths: NDArray[np.int64]  # (n,)
    channels: tuple[str, ...]
    moves: tuple[Moves, ...]  # of each channel; none where the user has named them
    time: str | None  # the column that orders the rows; None: they are as they came
    left_out: dict[str, str]  # columns, with reasons
    labels: list[Cell]
    groups: list[Cell] | None
    test: list[Cell] | None
    timeless: NDArray[np.bool_]  # (n,), a row has no time

    @property
    def paths(self) -> list[str]:
        return [self.file] if self.names is None else [f"{self.file}#{name}" for name in self.names]


@dataclass(frozen=True)
class _Measured:
    """The channels of one file, or those columns that may be some."""

    channels: dict[str, NDArray[np.float32]]  # (samples,) each, in order
    moves: tuple[Moves, ...]  # how each of them moves
    left_out: dict[str, str]  # other columns, with reasons


def is_table(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether a Parquet file holds series: no column of bytes, and one that names sequences."""
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    try:
        schema = parquet.read_schema(path)
    except (OSError, ValueError):  # who reads images will say what is wrong
        return False
    if any("binary" in str(kind) for kind in schema.types):
        return False
    return bool(columns) or any(name.lower() in ROLES["sequence"] for name in schema.names)


def from_file(path: Path, name: str, columns: Mapping[str, str]) -> Sequences:
    """The sequences of one table, by their names."""
    try:
        file = look_into(path)
        check_fits(while_reading(file) + afterwards(file), name)
        table = file.read()
        checked({role: key for role, key in columns.items() if role != CHANNELS}, ROLES, table.column_names, name)
        for channel in named_channels(columns, table.column_names):
            checked({CHANNELS: channel}, ROLES, table.column_names, name)
        if "sequence" not in roles_of(table, columns):
            got = ", ".join(table.column_names)[:200]
            raise DataError(
                f"expected a column that names each row's sequence in {name}, got {got}: "
                "say which it is with --column sequence=NAME"
            )
        part = _part(table, path.name, columns)
    except UnreadableError as error:
        raise DataError(f"cannot read {name}: {error}") from None
    return _joined([part], name, part.names or [], (), _known([part]))


def from_folder(
    root: Path, found: Sequence[File], name: str, columns: Mapping[str, str], skipped: tuple[Skipped, ...] = ()
) -> Sequences:
    """The sequences of all tables, labelled by a column, else by class folders."""
    files = []
    parts: list[_Part] = []
    for file in found:
        try:
            files.append((file.path, look_into(root / file.path)))
        except UnreadableError as error:
            skipped += (Skipped(file.path, str(error)),)
    largest = max((while_reading(table) for _, table in files), default=0)
    check_fits(largest + sum(afterwards(table) for _, table in files), name)
    for path, table in files:
        try:
            parts.append(_part(table.read(), path, columns))
        except UnreadableError as error:
            skipped += (Skipped(path, str(error)),)
    if not parts:
        raise DataError(f"no readable table in {name}: {skipped[-1].path}: {skipped[-1].reason}")
    ((channels, _),) = Counter(part.channels for part in parts).most_common(1)
    for part in parts:
        if part.channels != channels:
            reason = f"has channels {', '.join(part.channels)}, not {', '.join(channels)}"
            skipped += (Skipped(part.file, reason[:200]),)
    parts = [part for part in parts if part.channels == channels]
    paths = [path for part in parts for path in part.paths]
    return _joined(parts, name, paths, skipped, _by_folders(parts) | _known(parts))


def _joined(
    parts: Sequence[_Part], name: str, paths: Sequence[str], skipped: tuple[Skipped, ...], known: dict[str, Any]
) -> Sequences:
    kept, left_out = _judged(parts, name)
    values = np.concatenate([part.values[:, kept] if left_out else part.values for part in parts])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]).astype(np.int64)
    timeless = [without for part in parts for without in part.timeless.tolist()]
    reasons = [
        "has a row without a time" if without else unusable(values[start:stop])
        for (start, stop), without in zip(itertools.pairwise(offsets), timeless, strict=True)
    ]
    for part in parts:
        left_out = part.left_out | left_out
    return make_usable(
        values,
        offsets,
        name,
        reasons,
        paths.__getitem__,
        rate=0,
        channels=tuple(parts[0].channels[place] for place in kept),
        skipped=skipped,
        paths=tuple(paths),
        table=TableColumns(tuple(dict.fromkeys(part.time for part in parts if part.time is not None)), left_out),
        **known,
    )


def _judged(parts: Sequence[_Part], name: str) -> tuple[list[int], dict[str, str]]:
    """Return the places of the channels, and why others are none by how they move in all files together."""
    channels = parts[0].channels
    together = [functools.reduce(operator.add, found) for found in zip(*(part.moves for part in parts), strict=True)]
    left_out = {channel: why for channel, found in zip(channels, together, strict=False) if (why := found.why_not())}
    if len(left_out) == len(channels):
        raise DataError(f"expected a column that can be a channel in {name}, got {told(left_out)}: {HINT}")
    return [place for place, channel in enumerate(channels) if channel not in left_out], left_out


def _by_folders(parts: Sequence[_Part]) -> dict[str, Any]:
    labels, classes, test = from_paths([part.file for part in parts for _ in part.lengths])
    return {"labels": labels, "classes": classes, "test": test}


def _known(parts: Sequence[_Part]) -> dict[str, Any]:
    """Labels, groups and test part as the tables have them."""
    known: dict[str, Any] = {}
    if (labels := listed([_label(cell) for part in parts for cell in part.labels])) is not None:
        known["labels"], known["classes"] = labelled(labels)
    if all(part.groups is not None for part in parts):
        groups = listed([_label(cell) for part in parts for cell in part.groups or ()])
        known["groups"] = None if groups is None else grouped(groups)
    if all(part.test is not None for part in parts):
        known["test"] = np.array([cell for part in parts for cell in part.test or ()], dtype=np.bool_)
    return known


def _label(cell: Cell) -> int | str | None:
    """Whole numbers remain so: with empty cells between them they are read as floats."""
    if isinstance(cell, float):
        return None if math.isnan(cell) else int(cell) if cell.is_integer() else str(cell)
    return cell


def _part(table: Any, path: str, columns: Mapping[str, str]) -> _Part:
    checked({role: name for role, name in columns.items() if role != CHANNELS}, ROLES, table.column_names, path)
    roles = roles_of(table, columns)
    cells = {role: table.column(table.column_names.index(name)) for role, name in roles.items()}
    codes, names = _by_name(cells["sequence"], path) if "sequence" in cells else (np.zeros(len(table), np.int64), None)
    count = 1 if names is None else len(names)
    lengths = np.bincount(codes, minlength=count).astype(np.int64)
    ordered = order_by(roles["time"], cells["time"], codes, path) if "time" in cells else order(table, roles, codes)
    shared: dict[str, list[Cell]] = {}
    for role in cells.keys() & {"y", "group", "is_test"}:
        shared[role], mixed = one_each(cells[role], ordered.rows, lengths)
        if mixed is not None and role != "y":
            where = path if names is None else names[mixed]
            raise DataError(f"{roles[role]} must be the same in all rows of a sequence, got several in {where}")
    if any(cell not in (0, 1) for cell in shared.get("is_test", ())):  # True and False are 1 and 0
        raise DataError(f"{roles['is_test']} must be true or false in {path}, got {kind_of(cells['is_test'])}")
    named = named_channels(columns, table.column_names)
    measured = _measured(table, named, roles, ordered, lengths)
    return _Part(
        file=path,
        names=names,
        values=np.stack(list(measured.channels.values()), axis=1),
        lengths=lengths,
        channels=tuple(measured.channels),
        moves=() if named else measured.moves,
        time=ordered.time,
        left_out=measured.left_out,
        labels=shared.get("y", [None] * count),
        groups=shared.get("group"),
        test=shared.get("is_test"),
        timeless=np.bincount(codes, weights=ordered.missing, minlength=count) > 0,
    )


def _measured(
    table: Any, named: Sequence[str], roles: Mapping[str, str], ordered: Order, lengths: NDArray[np.int64]
) -> _Measured:
    """Return the columns that the user names as channels, else all that may be some."""
    places = {name: place for place, name in enumerate(table.column_names)}
    used = {*roles.values()} if ordered.time is None else {*roles.values(), ordered.time}
    left_out = ordered.left_out if named else _by_looks(table, used) | ordered.left_out
    left_out = {name: reason for name, reason in left_out.items() if name not in named}
    channels: dict[str, NDArray[np.float32]] = {}
    moved: list[Moves] = []
    for name in named or [name for name in places if name not in used and name not in left_out]:
        if name not in places:
            raise UnreadableError(f"has no column {name} to be a channel")
        found = numbers(table.column(places[name]))
        if found is not None:
            found = found[ordered.rows]
            moved.append(moves(found, lengths))
            with np.errstate(over="ignore"):
                channels[name] = found.astype(np.float32)
        elif named:
            raise UnreadableError(f"channels must be numbers, got {name} of {kind_of(table.column(places[name]))}")
        else:
            left_out[name] = NOT_NUMBERS
    if not channels:
        if set(left_out.values()) <= {NOT_NUMBERS}:
            raise UnreadableError(f"expected a column of numbers, got {', '.join(places)[:200]}")
        raise UnreadableError(f"expected a column that can be a channel, got {told(left_out)}: {HINT}")
    return _Measured(channels, tuple(moved), left_out)


def _by_looks(table: Any, used: Set[str]) -> dict[str, str]:
    """Return the columns that are not used otherwise and are no channels by their names and kinds, and why."""
    found: dict[str, str] = {}
    by_name = named_like(table)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in used:
            continue
        if name.lower() in by_name:
            found[name] = f"named like {CALLED[by_name[name.lower()]]}"
        elif looks := looks_like(name, str(column.type)):
            found[name] = looks
    return found


def _by_name(column: Any, path: str) -> tuple[NDArray[np.int64], list[str]]:
    """(rows,) which sequence each row belongs to, and their names, sorted."""
    codes, cells = coded(column)
    if (codes < 0).any():
        raise DataError(f"expected the name of a sequence in every row, got none in row {codes.argmin()} of {path}")
    by_name = sorted(range(len(cells)), key=cells.__getitem__)
    return np.argsort(by_name)[codes] if by_name else codes, [str(cells[code]) for code in by_name]
