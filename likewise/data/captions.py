"""Clean captions, which may come as strings, bytes or lists of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from likewise.data.items import Captions, DataError

TEXTS = ("caption", "captions", "text", "texts")  # the usual names of a column of captions


def clean(cell: Any) -> tuple[str, ...]:
    """Return the captions in a cell, which is a string, bytes or a list of them, without empty or invalid ones."""
    if isinstance(cell, list | tuple):
        return tuple(text for entry in cell if isinstance(entry, str | bytes) for text in clean(entry))
    if isinstance(cell, bytes):
        try:
            cell = cell.decode("utf-8-sig")
        except UnicodeDecodeError:
            return ()
    text = " ".join(cell.split()) if isinstance(cell, str) else ""
    return (text,) if text and is_text(text) else ()


def is_text(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; a lone surrogate, which JSON may hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def captions_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the captions of a row or JSON object: those under the first of the usual names that has any."""
    return next((captions for name in TEXTS if (captions := clean(row.get(name)))), ())


def none_if_empty(texts: Sequence[tuple[str, ...]]) -> Captions | None:
    """Return the texts of all items, or None if no item has any."""
    return tuple(texts) if any(texts) else None


def from_columns(columns: Mapping[str, Any], source: str, count: int | None = None) -> Captions:
    """Return the captions of all items, collected from columns (n,) or (n, several) of strings.

    `count` is the number of items, if it is known; each column adds captions to every item.
    """
    rows: list[tuple[str, ...]] = [()] * (count or 0)
    for name, column in columns.items():
        # as objects, because lists may hold different numbers of captions per item
        array = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        if array.ndim not in (1, 2) or array.dtype.kind not in "USO":
            raise DataError(
                f"{name} must be strings of shape (n,) or (n, several), got {array.shape} of {array.dtype} in {source}"
            )
        if count is None:
            count, rows = len(array), [()] * len(array)
        if len(array) != count:
            raise DataError(f"{name} must have one entry per item, {count} in {source}, got {len(array)}")
        rows = [captions + clean(cell) for captions, cell in zip(rows, array.tolist(), strict=True)]
    return tuple(rows)
