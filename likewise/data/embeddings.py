"""Embeddings in a file, anyone's: vectors with labels, as `.npz` or Parquet."""

from pathlib import Path
from typing import Any

import numpy as np

from likewise.data import arrays
from likewise.data.builtin import needed
from likewise.data.items import DataError, Items

ENDINGS = (".npz", ".parquet")
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
    if items.kind != "vector":
        raise DataError(f"embeddings must be (n, d), got {items.array.shape} in {path}")
    return items


def _called(name: str) -> str | None:
    """x, y or is_test, whatever it is called; None for what is of no use here."""
    if name in ("x_train", "y_train", "x_test", "y_test", "class_names"):
        return name
    return next((ours for ours, names in NAMES.items() if name in names), None)


def _npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {ours: archive[key] for key in archive.files if (ours := _called(key))}
    except Exception as error:  # numpy, zipfile and zlib raise what they like about a broken file
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None


def _parquet(path: Path) -> dict[str, Any]:
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    try:
        columns = {ours: key for key in parquet.read_schema(path).names if (ours := _called(key))}
        table = parquet.read_table(path, columns=list(columns.values()))
    except (OSError, ValueError) as error:  # pyarrow's own errors are these
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    found: dict[str, Any] = {}
    for ours, name in columns.items():
        values = table.column(name).to_pylist()
        if ours == "x":
            lengths = {-1 if value is None else len(value) for value in values}
            if len(lengths) != 1 or -1 in lengths:
                raise DataError(f"{name} must be vectors of one length in {path}, got lengths {sorted(lengths)[:5]}")
            found[ours] = np.array(values, dtype=np.float32)
        elif ours == "y":
            empty: str | int = "" if any(isinstance(value, str) for value in values) else -1
            found[ours] = np.array([empty if value is None else value for value in values])
        else:
            found[ours] = np.array(values, dtype=np.bool_)
    return found
