"""The columns by which items can be coloured: label, cluster, group, and columns of the data or of a table."""

import contextlib
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise import modalities
from likewise.data import DataError, Items
from likewise.data.archives import open_npz
from likewise.data.builtin import needed
from likewise.data.columns import ARRAYS, CAPTIONS
from likewise.search.exact import Places

FEW = 20  # up to so many different whole numbers are classes, more are a scale
MOST_CLASSES = 2_000  # a column with more classes is not offered
LONGEST_NAME = 200  # letters
MISSING = ("", "nan", "na", "n/a", "null", "none")  # how tables write a missing value


@dataclass(frozen=True)
class Column:
    """One value per item: the index of a class, −1 if it is missing, or a number, NaN if it is missing."""

    name: str
    values: NDArray[np.int32] | NDArray[np.float32]  # (n,)
    classes: tuple[str, ...] | None  # None if the values are numbers
    given: Sequence[Any] | None = None  # the original values, which may have more digits

    def shown(self, item: int) -> Any:
        """Return the value of an item as it is shown to users, or None if it is missing."""
        if self.given is not None:
            return None if _is_missing(self.given[item]) else self.given[item]
        value = self.values[item].item()
        if self.classes is not None:
            return self.classes[value] if value >= 0 else None
        return round(value, 4)


@dataclass(frozen=True)
class Table:
    """The rows of a CSV or Parquet file with a column `id` or `path` that names the item."""

    path: Path
    rows: Sequence[Mapping[str, Any]]
    key: str

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read a table; raise DataError if it has no column `id` or `path`."""
        readers = {".csv": _read_csv, ".parquet": _read_parquet}
        if not path.is_file():
            raise DataError(f"--table must be an existing file, got {path}")
        if path.suffix.lower() not in readers:
            raise DataError(f"--table must be a .csv or .parquet file, got {path}")
        try:
            rows = readers[path.suffix.lower()](path)
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"--table must be readable as UTF-8 text, got {path}: {error}") from None
        names = [str(name) for name in rows[0]] if rows else []
        key = next((name for name in ("id", "path") if name in names), None)
        if key is None:
            raise DataError(
                f"--table must have a column id or path and a row for each item, got {', '.join(names) or 'none'}"
            )
        return cls(path, rows, key)

    def of(self, items: Items) -> dict[str, list[Any]]:
        """Return the other columns with one value per item, None for items without a row."""
        if self.key == "path" and items.paths is None:
            raise DataError(f"--table must have a column id, as the items of {items.name} have no paths")
        known = items.paths if self.key == "path" else map(str, range(len(items)))
        places = {name: place for place, name in enumerate(known or ())}
        names = [name for name in self.rows[0] if name not in ("id", "path")]
        values: dict[str, list[Any]] = {name: [None] * len(items) for name in names}
        matched = [(row, places[str(row[self.key])]) for row in self.rows if str(row[self.key]) in places]
        for row, place in matched:
            for name in names:
                values[name][place] = row[name]
        if not matched:
            example = f", such as {items.paths[0]}" if self.key == "path" and items.paths else ""
            words = f"--table must name items of {items.name} by {self.key}{example}"
            raise DataError(f"{words}, got none of them in {self.path}")
        return values


def _read_csv(path: Path) -> list[Mapping[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    for line, row in enumerate(rows, 2):
        if None in row:
            raise DataError(f"--table must have {len(row) - 1} cells in each row, got more in row {line} of {path}")
    return list(rows)


def _read_parquet(path: Path) -> list[Mapping[str, Any]]:
    arrow, parquet = (needed(name, "Parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:  # Arrow's errors are subclasses of these two
        raise DataError(f"--table must be a Parquet file, got {path}: {error}") from None
    kinds = arrow.types
    plain = [
        field.name
        for field in table.schema
        if not (field.type.num_fields or kinds.is_binary(field.type) or kinds.is_large_binary(field.type))
    ]  # leave out columns of vectors and of pictures
    return table.select(plain).to_pylist()  # type: ignore[no-any-return]


def columns(
    items: Items, clusters: Places, held_out: Places | None, source: Any, table: Table | None
) -> dict[str, Column]:
    """Return all columns by name, the label first if there is one. `held_out` are ids of held-out items, if known."""
    offered = []
    if items.labels is not None:
        offered.append(Column("label", items.labels.astype(np.int32), items.classes))
    offered.append(Column("cluster", clusters.astype(np.int32), tuple(map(str, range(1, int(clusters.max()) + 2)))))
    if held_out is not None:
        is_held_out = np.isin(np.arange(len(items)), held_out)
        offered.append(Column("part", is_held_out.astype(np.int32), ("trained on", "held out")))
    if items.groups is not None:
        offered += made("group", items.groups.tolist())
    if (lengths := modalities.of(items.main).lengths(items.main)) is not None:
        offered.append(Column(*lengths, None))
    for name, values in beside(items, source).items():
        offered += made(name, values)
    taken = {column.name for column in offered}
    for name, values in (table.of(items) if table is not None else {}).items():
        offered += made(f"{name} (table)" if name in taken else name, values)
    return {column.name: column for column in offered}


def made(name: str, values: Sequence[Any]) -> list[Column]:
    """Return a column of numbers if all values are numbers, else of classes; none if classes are none or too many."""
    numbers = [np.nan if _is_missing(value) else _number(value) for value in values]
    if None not in numbers:
        row = np.array(numbers, dtype=np.float64)
        different = np.unique(row[~np.isnan(row)])
        if len(different) > FEW or (different % 1 != 0).any():
            return [Column(name, row.astype(np.float32), None, values)]
    texts = ["" if _is_missing(value) else str(value)[:LONGEST_NAME] for value in values]
    classes = sorted({text for text in texts if text}, key=lambda text: (len(text) if text.isdigit() else 0, text))
    if not 1 <= len(classes) <= MOST_CLASSES:
        return []
    places = {text: place for place, text in enumerate(classes)}
    return [Column(name, np.array([places.get(text, -1) for text in texts], dtype=np.int32), tuple(classes), values)]


def beside(items: Items, source: Any) -> dict[str, list[Any]]:
    """Return the arrays of an .npz source that have one number or text per item; none if items were skipped."""
    if not isinstance(source, str | Path) or Path(source).suffix.lower() != ".npz" or items.skipped:
        return {}
    arrays: dict[str, NDArray[Any]] = {}
    with open_npz(Path(source).expanduser(), str(source)) as archive:
        for name in archive.keys:
            with contextlib.suppress(DataError):  # skip an array of objects, which would have to be unpickled
                shape, dtype = archive.header(name)
                if name not in (*ARRAYS, CAPTIONS) and shape == (len(items),) and dtype.kind in "iufbU":
                    arrays |= archive.read([name])
    return {name: array.tolist() for name, array in arrays.items()}


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().casefold() in MISSING
    return value is None or (isinstance(value, float) and np.isnan(value))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
