"""List the images in Parquet files, such as those of Hugging Face, with what other columns say of them.

Only the columns that play a role are read, and images only a few at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from likewise.data.arrow import arrow_errors
from likewise.data.builtin import needed
from likewise.data.captions import TEXTS, clean, none_if_empty
from likewise.data.cells import NUMBERS
from likewise.data.cells import TEXTS as TEXT_TYPES
from likewise.data.columns import CAPTIONS, picture_columns
from likewise.data.folder import File
from likewise.data.images import PEEKED, Listing, Opener, from_memory
from likewise.data.items import DataError
from likewise.data.labels import collect_labels, grouped, is_test_cell, label_of, labelled, split_of, split_test
from likewise.data.memory import check_fits

IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "photo")
LABEL_COLUMNS = ("label", "labels", "y", "class")
LABEL_TYPES = ("int", "uint", "string", "large_string", "dictionary")  # of a label that is found by its name
ROW = 300  # bytes of memory per row: its path, label and caption
BATCH = 64  # rows of a Parquet file that are in memory at once


def listing(root: Path, files: Sequence[File], columns: Mapping[str, str]) -> Listing:
    """Return the images of one Parquet file, or of several in the order of their names; each row is one.

    `columns` are the columns that the user names, by role.
    """
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    tables = [_Table.of(parquet, root, file.path, columns) for file in files]
    starts = np.cumsum([0, *(table.rows for table in tables)]).tolist()
    labels, groups = (
        collect_labels([cell for table in tables for cell in table.known[role]]) for role in ("y", "group")
    )
    known_labels, classes = (None, ()) if labels is None else labelled(labels, tables[0].names)
    test = split_test([split_of(table.path) for table in tables for _ in range(table.rows)])
    if "is_test" in columns:
        test = np.array([cell for table in tables for cell in table.known["is_test"]], dtype=np.bool_)

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        wanted = np.asarray(rows)
        for table, start in zip(tables, starts, strict=False):
            yield from table.openers(wanted[(wanted >= start) & (wanted < start + table.rows)] - start)

    firsts = [start + first for table, start in zip(tables, starts, strict=False) for first in table.firsts]
    paths = tuple(f"{table.path}#{row}" for table in tables for row in range(table.rows))
    return Listing(
        paths,
        openers,
        known_labels,
        classes,
        test,
        groups=None if groups is None else grouped(groups),
        peek=_heads(firsts, len(paths)),
        captions=none_if_empty([texts for table in tables for texts in table.captions]),
    )


def _heads(groups: list[int], count: int) -> list[int]:
    """Return the first rows of some row groups, because other rows cannot be read without reading the whole group."""
    picked = sorted({groups[round(index)] for index in np.linspace(0, len(groups) - 1, 8)}) if groups else []
    stops = [*groups, count]
    return [row for first in picked for row in range(first, min(first + PEEKED // 8, stops[stops.index(first) + 1]))]


@dataclass(frozen=True)
class _Table:
    parquet: ModuleType
    file: Path
    path: str
    column: str
    rows: int
    firsts: list[int]  # the first row of each row group
    known: dict[str, list[Any]]  # the labels, groups and test part, None for a row without one
    names: list[str]  # class names, if Hugging Face's metadata have them
    captions: list[tuple[str, ...]]  # an empty tuple for a row without a caption

    @classmethod
    def of(cls, parquet: ModuleType, root: Path, path: str, columns: Mapping[str, str]) -> "_Table":
        location = root / path
        try:
            with parquet.ParquetFile(location) as table:
                schema, metadata = table.schema_arrow, table.metadata
                check_fits(metadata.num_rows * ROW, path)
                roles = _roles(schema, columns, path)
                used = sorted({name for role, names in roles.items() if role != "x" for name in names})
                cells = {name: table.read(columns=[name])[name].to_pylist() for name in used}
                sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        except DataError:
            raise
        except arrow_errors() as error:
            raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
        firsts = [first for first, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False) if size]
        known: dict[str, list[Any]] = {role: [None] * sum(sizes) for role in ("y", "group", "is_test")}
        for role, read in (("y", label_of), ("group", label_of), ("is_test", is_test_cell)):
            for name in roles.get(role, ()):
                known[role] = [read(cell, f"{name} of {path}") for cell in cells[name]]
        captions: list[tuple[str, ...]] = [()] * sum(sizes)
        for name in roles.get(CAPTIONS, ()):
            captions = [texts + clean(cell) for texts, cell in zip(captions, cells[name], strict=True)]
        names = hugging_names(schema, next(iter(roles.get("y", ())), None))
        return cls(parquet, location, path, roles["x"][0], sum(sizes), firsts, known, names, captions)

    def openers(self, rows: Any) -> Iterator[Opener]:
        """Yield openers of these rows, reading only the row groups that hold them, up to the last such row."""
        with self.parquet.ParquetFile(self.file) as table:
            first = 0
            for group in range(table.metadata.num_row_groups):
                size = table.metadata.row_group(group).num_rows
                wanted = (rows[(rows >= first) & (rows < first + size)] - first).tolist()
                first += size
                row = 0
                try:
                    for batch in table.iter_batches(BATCH, row_groups=[group], columns=[self.column]) if wanted else ():
                        cells = batch.column(0)
                        while wanted and wanted[0] < row + len(cells):
                            yield _cell(cells[wanted.pop(0) - row].as_py())
                        row += len(cells)
                        if not wanted:
                            break
                except arrow_errors() as error:  # damaged: the rest of this row group is lost, others are read
                    # readers of images expect one of these two types
                    raised = error if isinstance(error, OSError | ValueError) else ValueError(str(error))
                    yield from [partial(_raise, raised)] * len(wanted)


def _cell(cell: Any) -> Opener:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return from_memory(content) if content is not None else _nothing


def _raise(error: Exception) -> BinaryIO:
    raise error


def _nothing() -> BinaryIO:
    raise DataError("no image in this row")


def _roles(schema: Any, columns: Mapping[str, str], path: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of each role: those that the user names, else those with the usual names."""
    named = picture_columns(columns, schema.names, path)
    kinds = {column.name: column.type for column in schema}
    for role, name in ((role, name) for role, names in named.items() for name in names):
        what, holds = EXPECTED[role]
        if not holds(kinds[name]):
            raise DataError(f"{role} must hold {what} in {path}, got {name} of {kinds[name]}")
    usual = {"x": _image_column(schema, path) if "x" not in named else None}
    usual |= {"y": _label_column(schema), CAPTIONS: _caption_column(schema)}
    return {role: (name,) for role, name in usual.items() if name is not None} | named


def _holds_bytes(kind: Any) -> bool:
    if kind.num_fields and str(kind).startswith("struct"):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return any(part.name == "bytes" and _holds_bytes(part.type) for part in fields)
    return str(kind).startswith(("binary", "large_binary", "fixed_size_binary"))


def _holds_labels(kind: Any) -> bool:
    return str(kind).startswith((*NUMBERS, *TEXT_TYPES))


def _holds_text(kind: Any) -> bool:
    inner = getattr(kind, "value_type", kind)  # the type inside a list or a dictionary
    return str(inner).startswith(("string", "large_string"))


# What a column that the user names for a role must hold.
EXPECTED = {
    "x": ("image bytes", _holds_bytes),
    "y": ("whole numbers or text", _holds_labels),
    "group": ("whole numbers or text", _holds_labels),
    "is_test": ("true or false, or names of splits", _holds_labels),
    CAPTIONS: ("text", _holds_text),
}


def _image_column(schema: Any, path: str) -> str:
    columns = [column.name for column in schema if _holds_bytes(column.type)]
    if not columns:
        got = ", ".join(f"{column.name} ({column.type})" for column in schema)
        raise DataError(f"expected a column of image bytes in {path}, got {got[:200] or 'no columns'}")
    preferred = (column for name in IMAGE_COLUMNS for column in columns if column.lower() == name)
    return str(next(preferred, columns[0]))


def _label_column(schema: Any) -> str | None:
    kinds = {column.name: str(column.type) for column in schema}
    return next((name for name in LABEL_COLUMNS if kinds.get(name, "").startswith(LABEL_TYPES)), None)


def _caption_column(schema: Any) -> str | None:
    columns = {column.name.lower(): str(column.name) for column in schema if _holds_text(column.type)}
    return next((columns[name] for name in TEXTS if name in columns), None)


def hugging_names(schema: Any, label: str | None) -> list[str]:
    """Return the class names that Hugging Face stores in the schema for a column of labels; empty if there are none."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return []
