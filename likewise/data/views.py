"""Turn items into rows of an array: one row per view of an item, and none for an item without a caption."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import NO_CAPTION, DataError, Skipped, check_columns

VIEWED = 5  # number of axes of images in several views: (n, v, h, w, c) or (n, v, c, h, w)


def by_view(
    rows: NDArray[Any], name: str, shape: tuple[int, ...], names: tuple[str, ...], columns: dict[str, Any]
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return the rows to keep, and the columns with one entry per row instead of one per item.

    `shape` is that of the original array. The views of an item form a group unless groups are given, and the path of a
    row is its item's index and the view's name in `names`.
    """
    viewed = len(shape) == VIEWED
    count, views = shape[0], shape[1] if viewed else 1
    known = {key: columns.get(key) for key in ("labels", "groups", "test", "paths", "captions")}
    check_columns(count, name, {"is_test" if key == "test" else key: column for key, column in known.items()})
    if viewed and names and len(names) != views:
        raise DataError(f"views must name all {views} views of an item in {name}, got {len(names)}")
    is_kept = np.array([bool(texts) for texts in known["captions"] or [True] * count])
    if not is_kept.any():
        raise DataError(f"expected a caption for at least one item in {name}, got none")
    check_columns(int(is_kept.sum()), name, {})
    left_out = (Skipped(f"item {item}", NO_CAPTION) for item in np.flatnonzero(~is_kept).tolist())
    items = np.repeat(np.flatnonzero(is_kept), views)
    known = {key: _select(column, items) for key, column in known.items()}
    if viewed and known["groups"] is None:
        known["groups"] = items
    if viewed and names:
        known["paths"] = tuple(f"item {item}, {names[row % views]}" for row, item in enumerate(items.tolist()))
    rows = rows if is_kept.all() else rows[np.repeat(is_kept, views)]
    return rows, columns | known | {"skipped": (*columns.get("skipped", ()), *left_out)}


def _select(column: Any, items: NDArray[np.int64]) -> Any:
    if column is None:
        return None
    return column[items] if isinstance(column, np.ndarray) else tuple(column[item] for item in items.tolist())
