"""CSV and Parquet files as Arrow tables: how much memory one would take, how its cells are separated, its content."""

import codecs
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.data.builtin import needed
from likewise.data.cells import TEXTS, number
from likewise.data.items import DataError

START = 1 << 20  # bytes at a CSV file's start that are looked at; its column names must fit into them
BLOCK = 1 << 24  # bytes of a CSV file that are parsed together; a row must fit into them
DELIMITERS = (",", ";", "\t")
ROWS = 100  # of a CSV file that show whether decimals are written with a comma
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
CELL = 8  # bytes of a number in an Arrow table, and of a channel's float32 twice, before and after files are joined


class UnreadableError(Exception):
    """What is wrong with one file."""


@dataclass(frozen=True)
class Csv:
    """A CSV file whose first rows have been looked at."""

    path: Path
    cells: int  # as estimated from the first rows
    text: int  # bytes that its text takes while it is parsed
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
    texts: tuple[str, ...]  # the columns of text

    def read(self) -> Any:
        """Return its Arrow table."""
        parquet = needed("pyarrow.parquet", "Parquet", "parquet")
        # Text stays encoded: a word that a small file repeats in every row could take gigabytes.
        return _read(lambda: parquet.read_table(self.path, read_dictionary=list(self.texts)))


def look_into(path: Path) -> Csv | Parquet:
    """Look at the start of a CSV file, or at the footer of a Parquet file."""
    try:
        return _look_into_csv(path) if path.suffix.lower() == ".csv" else _look_into_parquet(path)
    except DataError:
        raise
    except (OSError, ValueError) as error:  # Arrow's own errors are these two
        raise UnreadableError(_words(error)) from None


def while_reading(file: Csv | Parquet) -> int:
    """Return how many bytes of memory the file takes while it is read."""
    return file.cells * CELL + file.text


def afterwards(file: Csv | Parquet) -> int:
    """Return how many bytes of memory its channels take from then on."""
    return file.cells * CELL


def _look_into_parquet(path: Path) -> Parquet:
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    with parquet.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        encoded = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        texts = tuple(field.name for field in schema if str(field.type).startswith(TEXTS))
        # Not asked of each column's own metadata: pyarrow 26 ends the process where those are damaged.
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
        raise UnreadableError(f"its first line must name the columns in at most 1 MiB, got {got}")
    rows = len(lines) - 1 if is_whole else size * (len(lines) - 1) // len(start)
    # As measured, Arrow holds up to twice the text of the file beside the numbers in it.
    return Csv(path, rows * columns, 2 * size, delimiter, _decimal(lines[1 : 1 + ROWS], delimiter))


def _decimal(lines: list[bytes], delimiter: str) -> str:
    """Return how decimals are written in these rows: with a comma only where commas do not separate the cells."""
    cells = [cell.strip(' "') for line in lines for cell in line.decode(errors="replace").split(delimiter)]
    has_points = any(DECIMAL_POINT.fullmatch(cell) for cell in cells)
    has_commas = delimiter != "," and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return "," if has_commas and not has_points else "."


def _read(read: Callable[[], Any]) -> Any:
    """Read a table, and see that its columns have names that differ."""
    try:
        table = read()
        names = [name.strip() for name in table.column_names]
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise UnreadableError(_words(error)) from None
    if all(number(name) == number(name) for name in names):  # NaN, which names become, equals nothing
        raise UnreadableError("its first line must name the columns")
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise UnreadableError(f"column names must differ, got {twice[0]} {Counter(names)[twice[0]]} times")
    return table.rename_columns(names)


def _words(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(reason.split())[:200]
