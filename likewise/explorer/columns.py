"""What items can be coloured by: label, cluster, group, and any column beside them."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import DataError, Items
from likewise.data.builtin import needed
from likewise.data.columns import ARRAYS, CAPTIONS
from likewise.data.sequences import Sequences
from likewise.search.exact import Places

FEW = 20  # different whole numbers are names up to here, and beyond a scale
MOST_CLASSES = 2_000  # different names; with more a column tells no items apart


@dataclass(frozen=True)
class Column:
    """A value of each item: a class by its place, −1 for none, or a number, NaN for none."""

    name: str
    values: NDArray[np.int32] | NDArray[np.float32]  # (n,)
    classes: tuple[str, ...] | None  # None: numbers

    def told(self, item: int) -> str | float | None:
        """The value of an item, for people."""
        value = self.values[item].item()
        if self.classes is not None:
            return self.classes[value] if value >= 0 else None
        return None if np.isnan(value) else float(f"{value:.6g}")


def columns(
    items: Items, clusters: Places, held_out: Places | None, source: Any, table: Path | None
) -> dict[str, Column]:
    """All there is to colour by, by name; label first, where there is one. `held_out` are ids, where they are known."""
    found = []
    if items.labels is not None:
        found.append(Column("label", items.labels.astype(np.int32), items.classes))
    found.append(Column("cluster", clusters.astype(np.int32), tuple(map(str, range(1, int(clusters.max()) + 2)))))
    if held_out is not None:
        is_held_out = np.isin(np.arange(len(items)), held_out)
        found.append(Column("part", is_held_out.astype(np.int32), ("trained on", "held out")))
    if items.groups is not None:
        found += made("group", items.groups.tolist())
    if isinstance(items, Sequences):
        unit = "seconds" if items.rate else "samples"
        found.append(Column(unit, (items.lengths / (items.rate or 1)).astype(np.float32), None))
    for name, values in beside(items, source).items():
        found += made(name, values)
    for name, values in (read(table, items) if table is not None else {}).items():
        found += made(name, values)
    named: dict[str, Column] = {}
    for column in found:
        named.setdefault(column.name, column)
    return named


def made(name: str, values: Sequence[Any]) -> list[Column]:
    """A column of these, if they tell items apart: of numbers where all are, else of classes."""
    known = [value for value in values if value not in (None, "")]
    numbers = [_number(value) for value in known]
    if known and all(number is not None for number in numbers):
        different = set(numbers)
        if len(different) > FEW or not all(float(number or 0).is_integer() for number in different):
            row = [np.nan if value in (None, "") else _number(value) for value in values]
            return [Column(name, np.array(row, dtype=np.float32), None)]
    texts = ["" if value is None else str(value) for value in values]
    classes = sorted({text for text in texts if text}, key=lambda text: (len(text) if text.isdigit() else 0, text))
    if not 1 <= len(classes) <= MOST_CLASSES:
        return []
    places = {text: place for place, text in enumerate(classes)}
    return [Column(name, np.array([places.get(text, -1) for text in texts], dtype=np.int32), tuple(classes))]


def beside(items: Items, source: Any) -> dict[str, list[Any]]:
    """Arrays of an .npz that have one number or word for each item, where none was left out."""
    if not isinstance(source, str | Path) or Path(source).suffix.lower() != ".npz" or items.skipped:
        return {}
    with np.load(Path(source).expanduser(), allow_pickle=False) as arrays:
        others = {name: arrays[name] for name in arrays.files if name not in (*ARRAYS, CAPTIONS)}
    fits = {name: array for name, array in others.items() if array.shape == (len(items),)}
    return {name: array.tolist() for name, array in fits.items() if array.dtype.kind in "iufbU"}


def read(table: Path, items: Items) -> dict[str, list[Any]]:
    """The columns of a CSV or Parquet file in which a column `id` or `path` names the item."""
    rows = _rows(table)
    names = list(rows[0]) if rows else []
    key = next((name for name in ("id", "path") if name in names), None)
    if key is None:
        raise DataError(f"--table must have a column id or path and a row an item, got {', '.join(names) or 'nothing'}")
    if key == "path" and items.paths is None:
        raise DataError(f"--table must have a column id, as the items of {items.name} have no paths")
    ids = {str(item): item for item in range(len(items))}
    if key == "path":
        ids = {path: item for item, path in enumerate(items.paths or ())}
    values: dict[str, list[Any]] = {name: [None] * len(items) for name in names if name not in ("id", "path")}
    matched = 0
    for row in rows:
        item = ids.get(str(row[key]))
        if item is None:
            continue
        matched += 1
        for name in values:
            values[name][item] = row[name]
    if not matched:
        raise DataError(f"--table must name items of {items.name} by {key}, got none of them in {table}")
    return values


def _rows(table: Path) -> list[Mapping[str, Any]]:
    kind = table.suffix.lower()
    if kind == ".parquet":
        found = needed("pyarrow.parquet", "Parquet", "parquet").read_table(table)
        flat = [field.name for field in found.schema if not field.type.num_fields]  # no lists, such as vectors
        return found.select(flat).to_pylist()  # type: ignore[no-any-return]
    if kind != ".csv":
        raise DataError(f"--table must be a .csv or .parquet file, got {table}")
    with table.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
