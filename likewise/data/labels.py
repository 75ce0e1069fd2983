"""Turn numbers, strings and folder names into the labels, groups and test part of items."""

import math
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.bounded import read_bounded
from likewise.data.items import DataError

SPLITS = {"train": False, "training": False, "test": True, "val": True, "valid": True, "validation": True}
LARGEST_NAMES = 16 << 20  # bytes of a file with class names, at most
TRUE_OR_FALSE = {"true": True, "false": False, "1": True, "0": False, **SPLITS}  # values of is_test as text
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")  # not 007, which is a name, nor what needs more than 64 bits
LARGEST_LABEL = 65_535  # larger whole numbers are treated as class names instead of class indices


def labelled(values: NDArray[Any], names: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels (n,) and the names of their classes, from (n,) or (n, 1) whole numbers or strings.

    Whole numbers keep their values, so that two sources agree on them. Strings are numbered in sorted order, or in the
    order of `names`. A negative number or an empty string means no label, −1.
    """
    values = _column("labels", values)
    if values.dtype.kind in "US":
        texts = _texts(values)
        names = tuple(names) or tuple(sorted(set(texts) - {""}))
        index = {"": -1} | {name: i for i, name in enumerate(names)}
        if unknown := set(texts) - set(index):
            raise DataError(f"labels must be among the class names, got {min(unknown)!r}")
        return np.array([index[text] for text in texts], dtype=np.int64), tuple(names)
    labels = np.maximum(values.astype(np.int64), -1)
    largest = int(labels.max(initial=-1))
    if names:
        if largest >= len(names):
            raise DataError(f"class names must name every label, got {len(names)} names and label {largest}")
        return labels, tuple(names)
    if largest > LARGEST_LABEL:
        distinct = np.unique(labels[labels >= 0])
        return np.where(labels < 0, -1, np.searchsorted(distinct, labels)), tuple(map(str, distinct))
    return labels, tuple(map(str, range(largest + 1)))


def grouped(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return groups (n,): whole numbers as they are, strings numbered in sorted order.

    A negative number and an empty string mean no group, −1.
    """
    values = _column("groups", values)
    if values.dtype.kind in "US":
        groups = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return np.where(np.char.str_len(values) == 0, -1, groups)
    return np.maximum(values.astype(np.int64), -1)


def label_of(cell: Any, what: str) -> int | str | None:
    """Return a cell of a table as a label or group, None if it is empty; `what` names the column in messages.

    Floats become whole numbers if possible, as empty cells make a column floating.
    """
    if isinstance(cell, float):
        return None if math.isnan(cell) else int(cell) if cell.is_integer() else str(cell)
    if cell is None or isinstance(cell, int | str):
        return cell
    raise DataError(f"{what} must hold whole numbers or text, got {str(cell)[:40]!r}")


def is_test_cell(cell: Any, what: str) -> bool:
    """Return whether a cell of a table says that its item belongs to the test part: true, or the name of a split."""
    known = TRUE_OR_FALSE.get(str(int(cell) if isinstance(cell, bool) else cell).strip().lower())
    if known is None:
        raise DataError(f"{what} must be true or false, or a split such as train or test, got {str(cell)[:40]!r}")
    return known


def whole_numbers(cells: Sequence[int | str | None]) -> Sequence[int | str | None]:
    """Return the cells of a column as whole numbers if all of them are, as a CSV file has nothing but text."""
    if all(cell is None or (isinstance(cell, str) and WHOLE.fullmatch(cell)) for cell in cells):
        return [None if cell is None else int(cell) for cell in cells]
    return cells


def collect_labels(values: Sequence[int | str | None]) -> NDArray[Any] | None:
    """Collect labels into an array, or return None if no item has one."""
    if all(value is None for value in values):
        return None
    if all(value is None or (isinstance(value, int) and abs(value) < 2**63) for value in values):
        return np.array([-1 if value is None else value for value in values], dtype=np.int64)
    return np.array(["" if value is None else str(value) for value in values])


def from_paths(
    paths: Sequence[str],
) -> tuple[NDArray[np.int64] | None, tuple[str, ...], NDArray[np.bool_] | None]:
    """Return labels, classes and test part of files in class folders: `[train|test|val/]class/.../file`.

    If any file lies outside a class folder, the folders are not classes and there are no labels. If all files lie in
    one class folder, `items.drop_single_class` later drops the labels, as it does for every source.
    """
    folders = [PurePosixPath(path).parts[:-1] for path in paths]
    splits = [parts[0].lower() if parts else "" for parts in folders]
    test = split_test(splits)
    if all(split in SPLITS for split in splits) and any(not SPLITS[split] for split in splits):
        folders = [parts[1:] for parts in folders]
    if not all(folders):
        return None, (), test
    labels, classes = labelled(np.array([parts[0] for parts in folders]))
    return labels, classes, test


def split_test(splits: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return which items are in a test split; None unless all splits are known and there are both kinds."""
    if not all(split in SPLITS for split in splits):
        return None
    test = np.array([SPLITS[split] for split in splits], dtype=np.bool_)
    return test if test.any() and not test.all() else None


def split_of(path: str) -> str:
    """Return the split that a path names, as in `train/0.tar` or `data/test-00000-of-00002.parquet`; empty if none."""
    words = [re.split(r"[-_.\d]", part, maxsplit=1)[0] for part in path.lower().split("/")]
    return next((word for word in words if word in SPLITS), "")


def _column(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iubUS":
        raise DataError(f"{name} must be whole numbers or strings of shape (n,), got {values.shape} of {values.dtype}")
    return values


def _texts(values: NDArray[Any]) -> list[str]:
    return [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in values.tolist()]


def read_names(path: str | Path) -> list[str]:
    """Read class names from a text file, one per line, ignoring empty lines."""
    try:
        lines = read_bounded(path, LARGEST_NAMES).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"class names must be UTF-8 text, got {path}") from None
    except OSError as error:
        raise DataError(f"cannot read class names: {path} ({(error.strerror or str(error)).lower()})") from None
    return [" ".join(line.split()) for line in lines if line.strip()]
