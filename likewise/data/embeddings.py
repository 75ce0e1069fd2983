"""Embeddings in a file, anyone's: vectors with labels, as `.npz` or Parquet."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data import arrays
from likewise.data.archives import open_npz
from likewise.data.builtin import needed
from likewise.data.items import VECTOR, DataError, Items
from likewise.data.memory import check_fits

ENDINGS = (".npz", ".parquet")
VALUE = 16  # bytes of a number in a Parquet file: as read, and as float32, once or twice
# What others call what an .npz of ours calls x, y and is_test.
NAMES = {
    "x": ("x", "vectors", "vector", "embeddings", "embedding", "features"),
    "y": ("y", "labels", "label", "targets", "class"),
    "is_test": ("is_test", "test"),
}


def read_embeddings(path: str | Path) -> Items:
    """Vectors (n, d) with their labels where there are.

    `.npz`: `vectors` or `x` (n, d), `labels` or `y` (n,), `is_test` (n,), or `x_train`, `y_train`, `x_test`,
    `y_test`. Parquet: a column `vector` of lists, and `label`, `is_test`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"embeddings not found: {path}")
    found = _parquet(path) if path.suffix.lower() == ".parquet" else _npz(path)
    if "x_train" not in found and "x" not in found:
        raise DataError(f"expected vectors in {path}, named {' or '.join(NAMES['x'][:2])}, got none")
    items = arrays.from_mapping(found, str(path))
    if items.main.modality != VECTOR:
        raise DataError(f"embeddings must be (n, d), got {items.array.shape} in {path}")
    return items


def _called(name: str) -> str | None:
    """x, y or is_test, whatever it is called; None for what is of no use here."""
    if name in ("x_train", "y_train", "x_test", "y_test", "class_names"):
        return name
    return next((ours for ours, names in NAMES.items() if name in names), None)


def _roles(names: Iterable[str], path: Path) -> dict[str, str]:
    """Which array or column is x, which y, which is_test."""
    found: dict[str, str] = {}
    for name in names:
        ours = _called(name)
        if ours in found:
            raise DataError(f"{path} must have one of {found[ours]} and {name}, got both")
        if ours:
            found[ours] = name
    return found


def _npz(path: Path) -> dict[str, Any]:
    with open_npz(path, str(path)) as archive:
        roles = _roles(archive.keys, path)
        arrays = archive.read(roles.values())
    return {ours: arrays[key] for ours, key in roles.items()}


def _values_in(metadata: Any, columns: Collection[str]) -> int:
    """Return how many values these columns of a Parquet file hold, those within lists included."""
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    parts = (group.column(place) for group in groups for place in range(group.num_columns))
    # A column of lists is known as `vector.list.element` there.
    return sum(
        part.num_values
        for part in parts
        if part.path_in_schema in columns or part.path_in_schema.partition(".")[0] in columns
    )


def _parquet(path: Path) -> dict[str, Any]:
    parquet, compute = (needed(f"pyarrow.{part}", "Parquet", "parquet") for part in ("parquet", "compute"))
    try:
        columns = _roles(parquet.read_schema(path).names, path)
        check_fits(_values_in(parquet.read_metadata(path), columns.values()) * VALUE, str(path))
        table = parquet.read_table(path, columns=list(columns.values()))
    except DataError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's own errors are these
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    found: dict[str, Any] = {}
    for ours, name in columns.items():
        column = table.column(name).combine_chunks()
        if ours == "x":
            is_list = "list" in str(column.type)
            lengths = compute.list_value_length(column).unique().to_pylist() if is_list else []
            if len(lengths) != 1 or None in lengths:
                got = f"lengths {lengths[:5]}" if is_list else str(column.type)
                raise DataError(f"{name} must be vectors of one length in {path}, got {got}")
            flat = column.flatten().to_numpy(zero_copy_only=False)
            found[ours] = flat.astype(np.float32).reshape(len(column), -1)
            continue
        values = column.to_pylist()
        if ours == "y":
            empty: str | int = "" if any(isinstance(value, str) for value in values) else -1
            found[ours] = np.array([empty if value is None else value for value in values])
        else:
            found[ours] = np.array(values, dtype=np.bool_)
    return found
