"""Tables of time series: CSV and Parquet, a row a point in time, a column a channel.

A column says which sequence a row belongs to; where a folder's files have none, each file is a sequence.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.builtin import needed
from likewise.data.columns import checked
from likewise.data.folder import File
from likewise.data.items import DataError, Skipped
from likewise.data.labels import from_paths, grouped, labelled, listed
from likewise.data.sequences import Sequences, make_usable
from likewise.data.series import unusable

# Names of the columns that are not channels, the first of them that is there.
ROLES = {
    "sequence": ("sequence", "sequence_id", "series", "series_id", "recording", "session", "id"),
    "time": ("time", "timestamp", "t"),
    "y": ("label", "y", "class", "activity"),
    "group": ("group", "subject", "speaker"),
    "is_test": ("is_test", "test"),
}
NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool")
DATES = ("timestamp", "date", "duration")
TEXTS = ("string", "large_string", "dictionary")

Cell = int | str | float | bool | None


@dataclass(frozen=True)
class _Part:
    """The sequences of one file, one behind the other."""

    file: str
    names: list[str] | None  # sorted; None: the file is one sequence
    values: NDArray[np.float32]  # (samples, c)
    lengths: NDArray[np.int64]  # (n,)
    channels: tuple[str, ...]
    labels: list[Cell]
    groups: list[Cell] | None
    test: list[Cell] | None
    timeless: NDArray[np.bool_]  # (n,), a row has no time

    @property
    def paths(self) -> list[str]:
        return [self.file] if self.names is None else [f"{self.file}#{name}" for name in self.names]


class _UnreadableError(Exception):
    """What is wrong with one file."""


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
        table = _read(path)
        checked(columns, ROLES, table.column_names, name)
        if "sequence" not in _roles(table, columns):
            got = ", ".join(table.column_names)[:200]
            raise DataError(
                f"expected a column that names each row's sequence in {name}, got {got}: "
                "say which it is with --column sequence=NAME"
            )
        part = _part(table, path.name, columns)
    except _UnreadableError as error:
        raise DataError(f"cannot read {name}: {error}") from None
    return _joined([part], name, part.names or [], (), _known([part]))


def from_folder(
    root: Path, files: Sequence[File], name: str, columns: Mapping[str, str], skipped: tuple[Skipped, ...] = ()
) -> Sequences:
    """The sequences of all tables, labelled by a column, else by class folders."""
    parts: list[_Part] = []
    for file in files:
        try:
            parts.append(_part(_read(root / file.path), file.path, columns))
        except _UnreadableError as error:
            skipped += (Skipped(file.path, str(error)),)
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
    values = np.concatenate([part.values for part in parts])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]).astype(np.int64)
    timeless = [without for part in parts for without in part.timeless.tolist()]
    reasons = [
        "has a row without a time" if without else unusable(values[start:stop])
        for (start, stop), without in zip(itertools.pairwise(offsets), timeless, strict=True)
    ]
    return make_usable(
        values,
        offsets,
        name,
        reasons,
        paths.__getitem__,
        rate=0,
        channels=parts[0].channels,
        skipped=skipped,
        paths=tuple(paths),
        **known,
    )


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


def _read(path: Path) -> Any:
    """The table of a file, whose column names are names."""
    is_csv = path.suffix.lower() == ".csv"
    try:
        if is_csv:
            table = needed("pyarrow.csv", "CSV", "parquet").read_csv(path)
        else:
            table = needed("pyarrow.parquet", "Parquet", "parquet").read_table(path)
        table.column_names  # noqa: B018 - whose bytes may not be text
    except DataError:
        raise
    except (OSError, ValueError) as error:  # Arrow's own are these two
        raise _UnreadableError(" ".join(str(error).split())[:200]) from None
    if not any(math.isnan(_number(name)) for name in table.column_names):
        raise _UnreadableError("its first line must name the columns")
    return table


def _part(table: Any, path: str, columns: Mapping[str, str]) -> _Part:
    checked(columns, ROLES, table.column_names, path)
    roles = _roles(table, columns)
    channels = _channels(table, roles)
    cells = {role: table.column(table.column_names.index(name)) for role, name in roles.items()}
    codes, names = _by_name(cells["sequence"], path) if "sequence" in cells else (np.zeros(len(table), np.int64), None)
    times = _times(cells["time"]) if "time" in cells else np.zeros(len(table))
    count = 1 if names is None else len(names)
    lengths = np.bincount(codes, minlength=count).astype(np.int64)
    order = np.lexsort((times, codes))  # stable: rows of the same time stay as they came
    with np.errstate(over="ignore"):
        values = np.stack([numbers[order] for numbers in channels.values()], axis=1).astype(np.float32)
    shared: dict[str, list[Cell]] = {}
    for role in cells.keys() & {"y", "group", "is_test"}:
        shared[role], mixed = _one_each(cells[role], order, lengths)
        if mixed is not None and role != "y":
            where = path if names is None else names[mixed]
            raise DataError(f"{roles[role]} must be the same in all rows of a sequence, got several in {where}")
    if any(cell not in (0, 1) for cell in shared.get("is_test", ())):  # True and False are 1 and 0
        raise DataError(f"{roles['is_test']} must be true or false in {path}, got {cells['is_test'].type}")
    missing = np.isnat(times) if times.dtype.kind in "mM" else np.isnan(times.astype(np.float64))
    return _Part(
        file=path,
        names=names,
        values=values,
        lengths=lengths,
        channels=tuple(channels),
        labels=shared.get("y", [None] * count),
        groups=shared.get("group"),
        test=shared.get("is_test"),
        timeless=np.bincount(codes, weights=missing, minlength=count) > 0,
    )


def _channels(table: Any, roles: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    reserved = _reserved(table)
    found: dict[str, NDArray[np.float64]] = {}
    for place, name in enumerate(table.column_names):
        if name in roles.values() or name.lower() in reserved:
            continue
        if (numbers := _numbers(table.column(place))) is not None:
            found[name] = numbers
    if not found:
        raise _UnreadableError(f"expected a column of numbers, got {', '.join(table.column_names)[:200]}")
    return found


def _by_name(column: Any, path: str) -> tuple[NDArray[np.int64], list[str]]:
    """(rows,) which sequence each row belongs to, and their names, sorted."""
    codes, cells = _coded(column)
    if (codes < 0).any():
        raise DataError(f"expected the name of a sequence in every row, got none in row {codes.argmin()} of {path}")
    order = sorted(range(len(cells)), key=cells.__getitem__)
    return np.argsort(order)[codes] if order else codes, [str(cells[code]) for code in order]


def _reserved(table: Any) -> set[str]:
    """Names that are never channels; beside x, and with fractions, y is one."""
    names = {name.lower() for known in ROLES.values() for name in known}
    kinds = {name.lower(): str(kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)}
    is_channel = "x" in kinds or kinds.get("y", "").startswith(("float", "double", "halffloat"))
    return names - {"y"} if is_channel else names


def _roles(table: Any, columns: Mapping[str, str]) -> dict[str, str]:
    """Which column plays which role, as given or by its name."""
    found = dict(columns)
    reserved = _reserved(table)
    lower: dict[str, str] = {}
    for name in table.column_names:
        if name not in columns.values():
            lower.setdefault(name.lower(), name)
    for role, known in ROLES.items():
        usual = [lower[name] for name in known if name in lower and name in reserved]
        if usual:
            found.setdefault(role, usual[0])
    return found


def _numbers(column: Any) -> NDArray[np.float64] | None:
    """(rows,) with NaN for what is missing or no number; None for a column of other things, as of text."""
    kind = str(column.type)
    if kind.startswith(NUMBERS):
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=np.float64)
    if kind == "null":
        return np.full(len(column), np.nan)
    if not kind.startswith(TEXTS):
        return None
    codes, cells = _coded(column)  # one word among numbers makes all of them text
    numbers = np.array([_number(cell) for cell in cells] + [np.nan])[codes]
    return numbers if 2 * np.count_nonzero(~np.isnan(numbers)) > len(numbers) else None


def _number(cell: Cell) -> float:
    try:
        return float(cell) if cell is not None else math.nan
    except ValueError:
        return math.nan


def _coded(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """(rows,) places in the list of different cells, −1 where there is none."""
    coded = column.combine_chunks()
    coded = coded if str(coded.type).startswith("dictionary") else coded.dictionary_encode()
    codes = coded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, coded.dictionary.to_pylist()


def _times(column: Any) -> NDArray[Any]:
    """(rows,) that sort: numbers, dates, or the places of texts in their order."""
    kind = str(column.type)
    if kind.startswith(TEXTS):
        codes, cells = _coded(column)
        places = np.argsort(np.argsort([str(cell) for cell in cells] or [""])).astype(np.float64)
        return np.append(places, np.nan)[codes]
    if kind.startswith(("time32", "time64")):  # of the day
        column = column.cast(f"int{kind[4:6]}")
    # as they are, dates and nanoseconds keep every digit
    return np.asarray(column.to_numpy() if column.null_count == 0 or kind.startswith(DATES) else _numbers(column))


def _one_each(column: Any, order: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[list[Cell], int | None]:
    """The cell that all rows of each sequence share, None where they do not; and the first such sequence."""
    codes, cells = _coded(column)
    if not len(codes):
        return [None] * len(lengths), None
    codes, starts = codes[order], np.cumsum(lengths) - lengths
    low, high = np.minimum.reduceat(codes, starts), np.maximum.reduceat(codes, starts)
    mixed = np.flatnonzero(low != high).tolist()
    shared = [cells[a] if a == b and a >= 0 else None for a, b in zip(low, high, strict=True)]
    return shared, mixed[0] if mixed else None
