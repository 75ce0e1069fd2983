"""Read texts from tables: CSV, TSV, JSONL and Parquet files in which a row is an item and a column holds its text.

text,label
A dog barks,animal
The train leaves,traffic

A table may also hold time series, in which a row is a point in time. It holds texts if the user says which column they
are in, or if a column of text has a usual name and no other column could be a channel of a series.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data import roles, texts
from likewise.data.captions import clean
from likewise.data.cells import number
from likewise.data.columns import check_roles
from likewise.data.folder import File
from likewise.data.items import TEXT, DataError, Items, Skipped
from likewise.data.labels import (
    SPLITS,
    collect_labels,
    grouped,
    is_test_cell,
    label_of,
    labelled,
    split_of,
    split_test,
    whole_numbers,
)
from likewise.data.memory import check_fits
from likewise.data.metadata_lines import shown
from likewise.data.parquet import LABEL_COLUMNS
from likewise.data.table_rows import Table, look_into

# Names, in lower case, that give a column its role; if a table has several of them, the first one wins.
ROLES = {
    TEXT: (
        *("text", "texts", "sentence", "sentences", "document", "body", "content"),
        *("review", "description", "comment"),
    ),
    "y": LABEL_COLUMNS,
    "group": ("group",),
    "is_test": ("is_test",),
}
# Names of columns that may hold numbers and still are no channels: labels, groups, parts, times and names of rows.
BESIDE = {"split", *LABEL_COLUMNS, *(name for names in roles.ROLES.values() for name in names)}
AN_ID = re.compile(r"(.*[_\W])?ids?")
START = 1 << 16  # bytes; the names of the columns must stand in them
ENDS = tuple(".,:;!?…。，：；！？")  # a title that ends in one of these needs no full stop


def is_table(path: Path, columns: Mapping[str, str]) -> bool:
    """Return whether a CSV or Parquet file holds texts, or raise an error if it may as well hold series."""
    if TEXT in columns:
        return True
    if not columns.keys() <= ROLES.keys():  # the others are roles of images or series
        return False
    try:
        if path.suffix.lower() == ".csv" and not _names_text(path):
            return False  # a log may be long, and the next line reads all of it to find out its encoding
        table = look_into(path, path.name, _has_usual_text)
        if table.has_bytes or not _has_usual_text(table.names) or (text := _usual_text(table)) is None:
            return False
        beside = {name.lower() for name in columns.values()}
        channels = [name for name in table.names if name not in beside and _may_be_channel(table, name)]
    except (DataError, OSError):  # the reader of series or images says what is wrong
        return False
    if not channels:
        return True
    if 2 * sum(_is_words(row.get(text)) for row in table.start) < len(table.start):
        return False  # a few remarks in a log
    got = f"a column of text, {text}, and columns of numbers, {roles.shortened(channels)}"
    hint = f"say --column text={text} for texts, or --column channels=NAME+NAME for series"
    raise DataError(f"expected texts or series in {path.name}, got {got}: {hint}")


def _has_usual_text(names: Sequence[str]) -> bool:
    return any(name in names for name in ROLES[TEXT])


def _names_text(path: Path) -> bool:
    """Return whether a usual name of a column of texts stands at the start of a CSV file."""
    with path.open("rb") as file:
        start = file.read(START).decode("latin-1").lower().replace("\0", "")
    return _has_usual_text(re.findall(r"\w+", start))


def _usual_text(table: Table) -> str | None:
    """Return the column of text that has a usual name, if there is one."""
    return next((name for name in ROLES[TEXT] if name in table.names and not _has_numbers(table, name)), None)


def _may_be_channel(table: Table, name: str) -> bool:
    """Return whether a column holds numbers, and is not named like a label, a group, a part, a time or an id."""
    is_beside = name in BESIDE or AN_ID.fullmatch(name) or roles.looks_like(name, "")
    return not is_beside and _has_numbers(table, name)


def _has_numbers(table: Table, name: str) -> bool:
    """Return whether a column holds more numbers than words."""
    cells = [row.get(name) for row in table.start]
    return sum(map(_is_number, cells)) > sum(map(_is_words, cells))


def _is_words(cell: Any) -> bool:
    return bool(clean(cell)) and not _is_number(cell)


def _is_number(cell: Any) -> bool:
    return not math.isnan(_number(cell))


def _number(cell: Any) -> float:
    """Return a cell as a number, or NaN if it is not one; text may be one, possibly with a decimal comma."""
    return number(str(cell).replace(",", ".")) if isinstance(cell, str | int | float) else math.nan


@dataclass
class _Known:
    """What the tables say about the texts: lists with one entry per text."""

    labels: list[int | str | None] = field(default_factory=list)
    groups: list[int | str | None] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)  # an empty string if there is none
    class_names: list[str] = field(default_factory=list)  # if a file has them
    has_test: bool = False  # whether a file has a column for the test part


def from_files(root: Path, files: Sequence[File], name: str, columns: Mapping[str, str]) -> Items:
    """Return the texts of one table, or of several in the order of their names.

    A row whose text repeats is kept if its label differs, or if one row is in the training part and the other in the
    test part. If only its group differs, it is left out.
    """
    check_fits(2 * sum(file.size for file in files), name)
    collector, known = texts.Collector(), _Known()
    notes: tuple[str, ...] = ()
    for file in files:
        if file.size < 0 and len(files) > 1:
            collector.skipped.append(Skipped(file.path, "unreadable"))
            continue
        notes += _read(root / file.path, file.path, columns, collector, known)
    values, groups = (collect_labels(whole_numbers(cells)) for cells in (known.labels, known.groups))
    labels, classes = (None, ()) if values is None else labelled(values, known.class_names)
    test = split_test(known.splits)
    if known.has_test:
        test = np.array([SPLITS.get(split, False) for split in known.splits], dtype=np.bool_)
    return collector.items(
        name,
        "text",
        paths=tuple(collector.paths),
        labels=labels,
        classes=classes,
        groups=None if groups is None else grouped(groups),
        test=test,
        notes=notes,
    )


def _read(
    path: Path, name: str, columns: Mapping[str, str], collector: texts.Collector, known: _Known
) -> tuple[str, ...]:
    """Add the texts of one table to the collector, and what it says about them to `known`; return its notes."""
    column_of = {role: column.lower() for role, column in columns.items()}
    text_columns = [column.strip() for column in column_of.pop(TEXT).split("+")] if TEXT in columns else []
    table = look_into(path, name, lambda names: {*text_columns} <= {*names} if text_columns else _has_usual_text(names))
    for role, column in [*column_of.items(), *((TEXT, column) for column in text_columns)]:
        check_roles({role: column}, ROLES, table.names, name)
    text_columns = text_columns or [_usual_text_of(table, name)]
    column_of = _usual_columns(table, {*text_columns, *column_of.values()}) | column_of
    y, group, is_test = (column_of.get(role) for role in ("y", "group", "is_test"))
    known.has_test |= is_test is not None
    known.class_names = known.class_names or table.class_names.get(y or "", [])
    split = split_of(name)
    for line, row, reason in table.lines([*text_columns, *column_of.values()]):
        where = f"{name}:{line}"
        text = _joined([" ".join(clean(row.get(column))) for column in text_columns])
        if not text and any(_cell(row, column) is not None for column in text_columns):
            reason = reason or "not text"
        if reason:
            collector.skipped.append(Skipped(where, reason))
            continue
        label, group_name = (label_of(_cell(row, column), f"{column} of {name}") for column in (y, group))
        if is_test is not None:
            cell = _cell(row, is_test)
            split = "test" if cell is not None and is_test_cell(cell, f"{is_test} of {name}") else "train"
        if collector.add(text, where, label, SPLITS.get(split)):
            known.labels.append(label)
            known.groups.append(group_name)
            known.splits.append(split)
    return table.notes


def _usual_text_of(table: Table, name: str) -> str:
    if (text := _usual_text(table)) is not None:
        return text
    got = shown(", ".join(table.names)) or "nothing"
    raise DataError(f"expected a column of texts in {name}, got {got}: say which it is with --column {TEXT}=NAME")


def _usual_columns(table: Table, taken: Set[str]) -> dict[str, str]:
    """Return the columns of labels, groups and test part that have a usual name, by role."""
    usual: dict[str, str] = {}
    for role in ("y", "group", "is_test"):
        column = next((name for name in ROLES[role] if name in table.names and name not in taken), None)
        if column is not None and all(_may_be_label(row.get(column)) for row in table.start):
            usual[role] = column
    return usual


def _may_be_label(cell: Any) -> bool:
    """Return whether a cell is a whole number, text, true, false or empty, and not a list or a fraction."""
    return not isinstance(cell, list | dict) and (not _is_number(cell) or _number(cell).is_integer())


def _cell(row: Mapping[str, Any], column: str | None) -> Any:
    """Return a cell without whitespace at its ends, or None if it is empty or there is no such column."""
    cell = None if column is None else row.get(column)
    return (cell.strip() or None) if isinstance(cell, str) else cell


def _joined(parts: Sequence[str]) -> str:
    """Join the texts of several columns, such as a title and a body, with a full stop where one is missing."""
    parts = list(filter(None, parts))
    return " ".join([part if part.endswith(ENDS) else f"{part}." for part in parts[:-1]] + parts[-1:])
