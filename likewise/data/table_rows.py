"""Read tables in CSV, TSV, JSONL and Parquet files row by row, each row as a dictionary.

Names of columns are in lower case throughout, so that `Text` and `text` are the same column.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from likewise.data import metadata_lines, texts
from likewise.data.arrow import arrow_errors
from likewise.data.builtin import needed
from likewise.data.items import DataError
from likewise.data.metadata_lines import Line
from likewise.data.parquet import hugging_names

INSPECTED = 1000  # rows from which it is concluded what the columns hold
BATCH = 256  # rows of a Parquet file that are in memory at once


@dataclass(frozen=True)
class Table:
    """The columns of a table, and a function that reads its rows."""

    names: list[str]
    lines: Callable[[Sequence[str]], Iterator[Line]]  # yields the rows, with at least the columns that it is given
    has_bytes: bool = False  # whether there are columns of bytes, such as images, which are not among `names`
    class_names: Mapping[str, list[str]] = field(
        default_factory=dict
    )  # of the labels in a column, if the file has them
    notes: tuple[str, ...] = ()

    @cached_property
    def start(self) -> list[Mapping[str, Any]]:
        """The first rows."""
        return [row for _, row, reason in itertools.islice(self.lines(self.names), INSPECTED) if not reason]


def look_into(path: Path, name: str, is_chosen: Callable[[Sequence[str]], bool]) -> Table:
    """Return a table, of which little has been read.

    `is_chosen` says whether names make sense, to find out what separates the cells of a CSV file.
    """
    try:
        if path.suffix.lower() == ".parquet":
            return _parquet(path, name)
        encoding = texts.encoding_of(path)
        if encoding == texts.UTF_16:
            raise DataError(f"expected UTF-8 text in {name}, got UTF-16")
        notes = metadata_lines.note_of_encoding(name, encoding)
        if metadata_lines.is_jsonl(path.name):
            start = itertools.islice(metadata_lines.read(path, encoding, (), name), INSPECTED)
            names = [*dict.fromkeys(column for _, row, _ in start for column in row)]
            return Table(names, lambda columns: metadata_lines.read(path, encoding, (), name), notes=notes)
        names = metadata_lines.columns_of(path, is_chosen, encoding)
    except OSError as error:
        raise DataError(f"cannot read {name}: {(error.strerror or str(error)).lower()}") from None

    def lines(columns: Sequence[str]) -> Iterator[Line]:
        return metadata_lines.read(path, encoding, [(column,) for column in columns], name)

    return Table(names, lines, notes=notes)


def _parquet(path: Path, name: str) -> Table:
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    try:
        schema = parquet.read_schema(path)
    except arrow_errors() as error:
        raise _unreadable(name, error) from None
    has_bytes = {column.name: "binary" in str(column.type) for column in schema}
    spelt = {column.lower(): column for column in schema.names if not has_bytes[column]}

    def lines(columns: Sequence[str]) -> Iterator[Line]:
        return _parquet_lines(path, name, [spelt[column] for column in columns])

    class_names = {column: hugging_names(schema, spelt[column]) for column in spelt}
    return Table([*spelt], lines, any(has_bytes.values()), class_names)


def _parquet_lines(path: Path, name: str, columns: Sequence[str]) -> Iterator[Line]:
    """Yield the rows of a Parquet file, numbered from 1."""
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    try:
        with parquet.ParquetFile(path) as file:
            batches = file.iter_batches(BATCH, columns=columns)
            rows = (row for batch in batches for row in batch.to_pylist())
            for row_number, row in enumerate(rows, 1):
                yield row_number, {column.lower(): cell for column, cell in row.items()}, ""
    except arrow_errors() as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> DataError:
    return DataError(f"cannot read {name}: {' '.join(str(error).split())[:200]}")
