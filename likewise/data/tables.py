"""Read time series from CSV and Parquet tables, in which a row is a point in time and a column is a channel.

One column names the sequence that a row belongs to. If the files of a folder have no such column, each file is a
sequence. A single file without such a column is one log, which is cut into stretches.
"""

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import stretches
from likewise.data.arrow import arrow_errors
from likewise.data.builtin import needed
from likewise.data.cells import TEXTS, Cell, coded, kind_of, numbers, one_each
from likewise.data.columns import check_roles
from likewise.data.folder import File
from likewise.data.gaps import Filling
from likewise.data.items import DataError, Skipped
from likewise.data.labels import collect_labels, from_paths, grouped, label_of, labelled
from likewise.data.memory import check_fits
from likewise.data.ordering import GOES_BACK, Order, order, order_by
from likewise.data.parts import TableColumns
from likewise.data.roles import (
    CALLED,
    CHANNELS,
    NOT_NUMBERS,
    ROLES,
    Moves,
    list_reasons,
    looks_like,
    moves,
    named_channels,
    named_like,
    roles_of,
)
from likewise.data.sequences import Sequences, make_usable
from likewise.data.series import unusable
from likewise.data.table_files import UnreadableError, afterwards, look_into, while_reading

HINT = "say which are channels with --column channels=NAME+NAME"
FRACTIONS = ("float", "double", "halffloat")

# Divides a table without a column of sequences, given its roles and the order of its rows, into sequences: their
# lengths (n,) and names, or None if the table is one sequence.
Divide = Callable[[Any, Mapping[str, str], Order], tuple[NDArray[np.int64], list[str] | None]]


@dataclass(frozen=True)
class _Part:
    """The sequences of one file, one after the other."""

    file: str
    names: list[str] | None  # of the sequences, sorted; None: the file is one sequence
    values: NDArray[np.float32]  # (samples, c)
    lengths: NDArray[np.int64]  # (n,)
    channels: tuple[str, ...]
    moves: tuple[Moves, ...]  # how each channel changes; empty if the user names the channels
    time: str | None  # the column that orders the rows; None: they keep their order
    left_out: dict[str, str]  # the reason for each column that is not used
    labels: list[Cell]
    groups: list[Cell] | None
    test: list[Cell] | None
    timeless: NDArray[np.bool_]  # (n,), true for a sequence in which a row has no time

    @property
    def paths(self) -> list[str]:
        return [self.file] if self.names is None else [f"{self.file}#{name}" for name in self.names]


@dataclass(frozen=True)
class _Channels:
    """The channels of one file, or the columns that may turn out to be channels."""

    channels: dict[str, NDArray[np.float32]]  # (samples,) each, in order
    moves: tuple[Moves, ...]  # how each of them changes
    left_out: dict[str, str]  # the reason for each other column


def is_table(path: Path, columns: Mapping[str, str]) -> bool:
    """Return whether a Parquet file holds series: no column of bytes, and one that names sequences or has fractions."""
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    try:
        schema = parquet.read_schema(path)
    except arrow_errors():  # the reader of images will report the error
        return False
    if any("binary" in str(kind) for kind in schema.types):
        return False
    named = any(name.lower() in ROLES["sequence"] for name in schema.names)
    return bool(columns) or named or any(str(kind).startswith(FRACTIONS) for kind in schema.types)


def from_file(path: Path, name: str, columns: Mapping[str, str], filling: Filling) -> Sequences:
    """Return the sequences of one table, sorted by name, or the stretches of one log."""
    try:
        file = look_into(path)
        check_fits(while_reading(file) + afterwards(file), name)
        table = file.read()
        check_roles({role: key for role, key in columns.items() if role != CHANNELS}, ROLES, table.column_names, name)
        for channel in named_channels(columns, table.column_names):
            check_roles({CHANNELS: channel}, ROLES, table.column_names, name)
        part, about_log = _only_part(table, path.name, name, columns)
    except UnreadableError as error:
        raise DataError(f"cannot read {name}: {error}") from None
    return _joined([part], name, part.names or [part.file], (), filling, _columns_of([part]) | about_log)


def from_folder(
    root: Path,
    table_files: Sequence[File],
    name: str,
    columns: Mapping[str, str],
    filling: Filling,
    skipped: tuple[Skipped, ...] = (),
) -> Sequences:
    """Return the sequences of all tables of a folder, labelled by a column, else by class folders.

    A table without a column of sequences is one sequence, or, if it is the only one, one log.
    """
    readable = []
    parts: list[_Part] = []
    about_log: dict[str, Any] = {}
    for file in table_files:
        try:
            readable.append((file.path, look_into(root / file.path)))
        except UnreadableError as error:
            skipped += (Skipped(file.path, str(error)),)
    largest = max((while_reading(table) for _, table in readable), default=0)
    check_fits(largest + sum(afterwards(table) for _, table in readable), name)
    for path, table in readable:
        try:
            if len(readable) == 1:
                part, about_log = _only_part(table.read(), path, f"{name}{path}", columns)
            else:
                part = _part(table.read(), path, columns, _as_one_sequence)
            parts.append(part)
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
    known = _by_folders(parts) | _columns_of(parts) | about_log
    return _joined(parts, name, paths, skipped, filling, known)


def _only_part(table: Any, path: str, name: str, columns: Mapping[str, str]) -> tuple[_Part, dict[str, Any]]:
    """Return the sequences of the only table, or the stretches of the log that it is, and what to say of a log."""
    part = _part(table, path, columns, functools.partial(_into_stretches, name))
    if "sequence" in roles_of(table, columns):
        return part, {}
    return part, {"consecutive": len(part.lengths) > 1, "notes": (stretches.note(part.lengths),)}


def _joined(
    parts: Sequence[_Part],
    name: str,
    paths: Sequence[str],
    skipped: tuple[Skipped, ...],
    filling: Filling,
    known: dict[str, Any],
) -> Sequences:
    channel_indices, left_out = _select_channels(parts, name)
    values = np.concatenate([part.values[:, channel_indices] if left_out else part.values for part in parts])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]).astype(np.int64)
    filled, has_gaps = filling(values, offsets)
    timeless = [lacks_time for part in parts for lacks_time in part.timeless.tolist()]
    reasons = [
        "has a row without a time" if lacks_time else unusable(values[start:stop], has_gaps)
        for (start, stop), lacks_time in zip(itertools.pairwise(offsets), timeless, strict=True)
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
        channels=tuple(parts[0].channels[index] for index in channel_indices),
        skipped=skipped,
        filled=filled,
        paths=tuple(paths),
        table=TableColumns(tuple(dict.fromkeys(part.time for part in parts if part.time is not None)), left_out),
        **known,
    )


def _select_channels(parts: Sequence[_Part], name: str) -> tuple[list[int], dict[str, str]]:
    """Return the indices of the channels, and why others are not channels, by how they change over all files."""
    channels = parts[0].channels
    by_channel = zip(*(part.moves for part in parts), strict=True)
    totals = [functools.reduce(operator.add, of_files) for of_files in by_channel]
    left_out = {channel: why for channel, total in zip(channels, totals, strict=False) if (why := total.why_not())}
    if len(left_out) == len(channels):
        raise DataError(f"expected a column that can be a channel in {name}, got {list_reasons(left_out)}: {HINT}")
    return [index for index, channel in enumerate(channels) if channel not in left_out], left_out


def _by_folders(parts: Sequence[_Part]) -> dict[str, Any]:
    labels, classes, test = from_paths([part.file for part in parts for _ in part.lengths])
    return {"labels": labels, "classes": classes, "test": test}


def _columns_of(parts: Sequence[_Part]) -> dict[str, Any]:
    """Return labels, groups and test part as far as the tables have columns for them."""
    columns: dict[str, Any] = {}
    if (labels := collect_labels([label_of(cell, "y") for part in parts for cell in part.labels])) is not None:
        columns["labels"], columns["classes"] = labelled(labels)
    if all(part.groups is not None for part in parts):
        groups = collect_labels([label_of(cell, "group") for part in parts for cell in part.groups or ()])
        columns["groups"] = None if groups is None else grouped(groups)
    if all(part.test is not None for part in parts):
        columns["test"] = np.array([cell for part in parts for cell in part.test or ()], dtype=np.bool_)
    return columns


def _as_one_sequence(table: Any, roles: Mapping[str, str], ordered: Order) -> tuple[NDArray[np.int64], None]:
    return np.array([len(table)], dtype=np.int64), None


def _into_stretches(
    name: str, table: Any, roles: Mapping[str, str], ordered: Order
) -> tuple[NDArray[np.int64], list[str] | None]:
    """Cut a table into stretches, after checking that it may be one log."""
    hint, why = "say which it is with --column sequence=NAME", ""
    if other := next((column for column in table.column_names if _may_name_sequences(table, column, roles)), None):
        hint += f", or, if the file is one log, say what {other} is, such as --column y={other}"
    elif ordered.time is None and (back := [time for time, reason in ordered.left_out.items() if reason == GOES_BACK]):
        why = f", because {back[0]} goes back in it"
    if other or why:
        got = ", ".join(table.column_names)[:200]
        raise DataError(f"expected a column that names each row's sequence in {name}{why}, got {got}: {hint}")
    lengths = stretches.cut({role: table.column(column) for role, column in roles.items()}, ordered.rows)
    return lengths, stretches.names(lengths) if len(lengths) > 1 else None


def _may_name_sequences(table: Any, name: str, roles: Mapping[str, str]) -> bool:
    """Return whether a column has no role and holds words, the same ones again and again, in every row."""
    column = table.column(name)
    if name in roles.values() or not str(column.type).startswith(TEXTS) or numbers(column) is not None:
        return False
    codes, cells = coded(column)
    is_full = bool((codes >= 0).all()) and "" not in cells
    return is_full and 1 < len(cells) <= len(codes) / 2 and not looks_like(name, str(column.type))


def _part(table: Any, path: str, columns: Mapping[str, str], divide: Divide) -> _Part:
    check_roles({role: name for role, name in columns.items() if role != CHANNELS}, ROLES, table.column_names, path)
    roles = roles_of(table, columns)
    cells = {role: table.column(table.column_names.index(name)) for role, name in roles.items()}
    codes, names = (
        _sequences(cells["sequence"], path) if "sequence" in cells else (np.zeros(len(table), np.int64), None)
    )
    ordered = order_by(roles["time"], cells["time"], codes, path) if "time" in cells else order(table, roles, codes)
    if names is None:
        lengths, names = divide(table, roles, ordered)
    else:
        lengths = np.bincount(codes, minlength=len(names)).astype(np.int64)
    shared: dict[str, list[Cell]] = {}
    for role in cells.keys() & {"y", "group", "is_test"}:
        shared[role], mixed = one_each(cells[role], ordered.rows, lengths)
        if mixed is not None and role != "y":
            where = path if names is None else names[mixed]
            raise DataError(f"{roles[role]} must be the same in all rows of a sequence, got several in {where}")
    if any(cell not in (0, 1) for cell in shared.get("is_test", ())):  # True and False are 1 and 0
        raise DataError(f"{roles['is_test']} must be true or false in {path}, got {kind_of(cells['is_test'])}")
    named = named_channels(columns, table.column_names)
    channels = _read_channels(table, named, roles, ordered, lengths)
    return _Part(
        file=path,
        names=names,
        values=np.stack(list(channels.channels.values()), axis=1),
        lengths=lengths,
        channels=tuple(channels.channels),
        moves=() if named else channels.moves,
        time=ordered.time,
        left_out=channels.left_out,
        labels=shared.get("y", [None] * len(lengths)),
        groups=shared.get("group"),
        test=shared.get("is_test"),
        timeless=np.bincount(
            np.repeat(np.arange(len(lengths)), lengths), weights=ordered.missing[ordered.rows], minlength=len(lengths)
        )
        > 0,
    )


def _read_channels(
    table: Any, named: Sequence[str], roles: Mapping[str, str], ordered: Order, lengths: NDArray[np.int64]
) -> _Channels:
    """Return the columns that the user names as channels, else all columns that may be channels."""
    indices = {name: index for index, name in enumerate(table.column_names)}
    used = {*roles.values()} if ordered.time is None else {*roles.values(), ordered.time}
    left_out = ordered.left_out if named else _unlike_channels(table, used) | ordered.left_out
    left_out = {name: reason for name, reason in left_out.items() if name not in named}
    channels: dict[str, NDArray[np.float32]] = {}
    moved: list[Moves] = []
    for name in named or [name for name in indices if name not in used and name not in left_out]:
        if name not in indices:
            raise UnreadableError(f"has no column {name} to be a channel")
        values = numbers(table.column(indices[name]))
        if values is not None:
            values = values[ordered.rows]
            moved.append(moves(values, lengths))
            with np.errstate(over="ignore"):
                channels[name] = values.astype(np.float32)
        elif named:
            raise UnreadableError(f"channels must be numbers, got {name} of {kind_of(table.column(indices[name]))}")
        else:
            left_out[name] = NOT_NUMBERS
    if not channels:
        if set(left_out.values()) <= {NOT_NUMBERS}:
            raise UnreadableError(f"expected a column of numbers, got {', '.join(indices)[:200]}")
        raise UnreadableError(f"expected a column that can be a channel, got {list_reasons(left_out)}: {HINT}")
    return _Channels(channels, tuple(moved), left_out)


def _unlike_channels(table: Any, used: Set[str]) -> dict[str, str]:
    """Return the columns that have no role but are not channels either, by their names and types, and why."""
    left_out: dict[str, str] = {}
    by_name = named_like(table)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in used:
            continue
        if name.lower() in by_name:
            left_out[name] = f"named like {CALLED[by_name[name.lower()]]}"
        elif looks := looks_like(name, str(column.type)):
            left_out[name] = looks
    return left_out


def _sequences(column: Any, path: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the index (rows,) of each row's sequence, and the sorted names of the sequences."""
    codes, cells = coded(column)
    if (codes < 0).any():
        raise DataError(f"expected the name of a sequence in every row, got none in row {codes.argmin()} of {path}")
    by_name = sorted(range(len(cells)), key=cells.__getitem__)
    return np.argsort(by_name)[codes] if by_name else codes, [str(cells[code]) for code in by_name]
