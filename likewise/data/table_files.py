"""Read CSV and Parquet files as Arrow tables, after estimating how much memory that takes."""

import codecs
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.data.arrow import arrow_errors
from likewise.data.builtin import needed
from likewise.data.cells import TEXTS, number
from likewise.data.items import DataError

START = 1 << 20  # bytes at the start of a CSV file that are inspected; the column names must fit into them
BLOCK = 1 << 24  # bytes of a CSV file that are parsed together; a row must fit into them
DELIMITERS = (",", ";", "\t")
ROWS = 100  # rows of a CSV file that are inspected for decimal commas
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
CELL = 8  # bytes per number in an Arrow table, and for a channel's float32 before and after files are joined


class UnreadableError(Exception):
    """One file cannot be read; the message says why."""


@dataclass(frozen=True)
class Csv:
    """A CSV file whose first rows have been inspected."""

    path: Path
    cells: int  # estimated from the first rows
    text: int  # bytes of memory that its text takes while it is parsed
    delimiter: str
    decimal: str

    def read(self) -> Any:
        """Return its Arrow table."""
        csv = needed("pyarrow.csv", "CSV", "parquet")
        return _read(
            lambda: csv.read_csv(
                self.path,
                read_options=csv.ReadOptions(block_size=BLOCK),
                parse_options=csv.ParseOptions(delimiter=self.delimiter),
                convert_options=csv.ConvertOptions(decimal_point=self.decimal),
            )
        )


@dataclass(frozen=True)
class Parquet:
    """A Parquet file whose footer has been read."""

    path: Path
    cells: int
    text: int  # bytes of all columns, encoded but not compressed
    texts: tuple[str, ...]  # names of the columns that hold text

    def read(self) -> Any:
        """Return its Arrow table."""
        parquet = needed("pyarrow.parquet", "Parquet", "parquet")
        # Text stays dictionary-encoded: a small file that repeats a word in every row could expand to gigabytes.
        return _read(lambda: parquet.read_table(self.path, read_dictionary=list(self.texts)))


def look_into(path: Path) -> Csv | Parquet:
    """Inspect the start of a CSV file or the footer of a Parquet file, without reading the rest."""
    try:
        return _look_into_csv(path) if path.suffix.lower() == ".csv" else _look_into_parquet(path)
    except DataError:
        raise
    except arrow_errors() as error:
        raise UnreadableError(_words(error)) from None


def while_reading(file: Csv | Parquet) -> int:
    """Return how many bytes of memory reading the file takes."""
    return file.cells * CELL + file.text


def afterwards(file: Csv | Parquet) -> int:
    """Return how many bytes of memory its channels take once it has been read."""
    return file.cells * CELL


def _look_into_parquet(path: Path) -> Parquet:
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    with parquet.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        encoded = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        texts = tuple(field.name for field in schema if str(field.type).startswith(TEXTS))
        # Do not read the metadata of single columns: pyarrow 26 crashes the process if they are damaged.
        return Parquet(path, metadata.num_rows * metadata.num_columns, encoded, texts)


def _look_into_csv(path: Path) -> Csv:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(START)
    is_whole = len(start) == size
    lines = [line for line in start.removeprefix(codecs.BOM_UTF8).splitlines() if line]
    if not lines:
        raise UnreadableError("it is empty")
    try:
        names = re.sub(r'"[^"]*"', "", lines[0].decode())  # a name in quotes may hold anything
    except UnicodeDecodeError:
        raise UnreadableError("its first line, which names the columns, must be UTF-8 text") from None
    delimiter = max(DELIMITERS, key=names.count)
    columns = names.count(delimiter) + 1
    if len(lines) == 1 and not is_whole:
        got = f"more than {columns:,} columns" if columns > 1 else "a longer one"
        raise UnreadableError(f"its first line, which names the columns, must be at most 1 MiB long, got {got}")
    rows = len(lines) - 1 if is_whole else size * (len(lines) - 1) // len(start)
    # Measured: besides the numbers, Arrow holds up to twice the size of the file's text.
    return Csv(path, rows * columns, 2 * size, delimiter, _decimal(lines[1 : 1 + ROWS], delimiter))


def _decimal(lines: list[bytes], delimiter: str) -> str:
    """Return the decimal separator in these rows; it can be a comma only if commas do not separate the cells."""
    cells = [cell.strip(' "') for line in lines for cell in line.decode(errors="replace").split(delimiter)]
    has_points = any(DECIMAL_POINT.fullmatch(cell) for cell in cells)
    has_commas = delimiter != "," and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return "," if has_commas and not has_points else "."


def _read(read: Callable[[], Any]) -> Any:
    """Read a table, and check that its columns have distinct names."""
    try:
        table = read()
        names = [name.strip() for name in table.column_names]
    except DataError:
        raise
    except MemoryError as error:  # a damaged Parquet file may declare gigabytes
        raise UnreadableError(_words(error)) from None
    except arrow_errors() as error:
        raise UnreadableError(_words(error)) from None
    if all(number(name) == number(name) for name in names):  # true if all names are numbers: NaN does not equal itself
        raise UnreadableError("its first line must name the columns")
    if repeated := [name for name, count in Counter(names).items() if name and count > 1]:
        raise UnreadableError(f"column names must differ, got {repeated[0]} {Counter(names)[repeated[0]]} times")
    return table.rename_columns(names)


def _words(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(reason.split())[:200]
