"""Read embeddings, made by any program, from `.npz` or Parquet: vectors with labels."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data import arrays
from likewise.data.archives import open_npz
from likewise.data.arrow import arrow_errors
from likewise.data.builtin import needed
from likewise.data.items import VECTOR, DataError, Items
from likewise.data.memory import check_fits

ENDINGS = (".npz", ".parquet")
VALUE = 16  # bytes of memory per number of a Parquet file: as read, and as float32, once or twice
# Common names for the arrays that are called x, y and is_test here.
NAMES = {
    "x": ("x", "vectors", "vector", "embeddings", "embedding", "features"),
    "y": ("y", "labels", "label", "targets", "class"),
    "is_test": ("is_test", "test"),
}


def read_embeddings(path: str | Path) -> Items:
    """Read vectors (n, d), with their labels if the file has any.

    `.npz`: `vectors` or `x` (n, d), `labels` or `y` (n,), `is_test` (n,), or `x_train`, `y_train`, `x_test`,
    `y_test`. Parquet: a column `vector` of lists, and `label`, `is_test`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"embeddings not found: {path}")
    arrays_by_role = _parquet(path) if path.suffix.lower() == ".parquet" else _npz(path)
    if "x_train" not in arrays_by_role and "x" not in arrays_by_role:
        raise DataError(f"expected vectors in {path}, named {' or '.join(NAMES['x'][:2])}, got none")
    items = arrays.from_mapping(arrays_by_role, str(path))
    if items.main.modality != VECTOR:
        raise DataError(f"embeddings must be (n, d), got {items.array.shape} in {path}")
    return items


def _role_of(name: str) -> str | None:
    """Return the role of an array or column by its name, such as x, y or is_test; None if it has none."""
    if name in ("x_train", "y_train", "x_test", "y_test", "class_names"):
        return name
    return next((role for role, names in NAMES.items() if name in names), None)


def _roles(names: Iterable[str], path: Path) -> dict[str, str]:
    """Return the array or column that plays each role."""
    name_of_role: dict[str, str] = {}
    for name in names:
        role = _role_of(name)
        if role in name_of_role:
            raise DataError(f"{path} must have one of {name_of_role[role]} and {name}, got both")
        if role:
            name_of_role[role] = name
    return name_of_role


def _npz(path: Path) -> dict[str, Any]:
    with open_npz(path, str(path)) as archive:
        roles = _roles(archive.keys, path)
        arrays = archive.read(roles.values())
    return {role: arrays[key] for role, key in roles.items()}


def _values_in(metadata: Any, columns: Collection[str]) -> int:
    """Return how many values these columns of a Parquet file hold, those within lists included."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    parts = (group.column(index) for group in groups for index in range(group.num_columns))
    # Parquet calls a column of lists `vector.list.element`.
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
    except arrow_errors() as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    arrays_by_role: dict[str, Any] = {}
    for role, name in columns.items():
        column = table.column(name).combine_chunks()
        if role == "x":
            is_list = "list" in str(column.type)
            lengths = compute.list_value_length(column).unique().to_pylist() if is_list else []
            if len(lengths) != 1 or None in lengths:
                got = f"lengths {lengths[:5]}" if is_list else str(column.type)
                raise DataError(f"{name} must be vectors of one length in {path}, got {got}")
            flat = column.flatten().to_numpy(zero_copy_only=False)
            arrays_by_role[role] = flat.astype(np.float32).reshape(len(column), -1)
            continue
        values = column.to_pylist()
        if role == "y":
            empty: str | int = "" if any(isinstance(value, str) for value in values) else -1
            arrays_by_role[role] = np.array([empty if value is None else value for value in values])
        else:
            arrays_by_role[role] = np.array(values, dtype=np.bool_)
    return arrays_by_role
