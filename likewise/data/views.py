"""From items to rows of an array: one for each view of an item, and none for an item without a caption."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import NO_CAPTION, DataError, Skipped, check_columns

VIEWED = 5  # axes of images in several views: (n, v, h, w, c) or (n, v, c, h, w)


def by_view(
    rows: NDArray[Any], name: str, shape: tuple[int, ...], names: tuple[str, ...], columns: dict[str, Any]
) -> tuple[NDArray[Any], dict[str, Any]]:
    """The rows to keep, and the columns of the items that were of `shape` as columns of these rows.

    The views of an item are a group where no other is known, and go by its place and their `names`.
    """
    viewed = len(shape) == VIEWED
    count, views = shape[0], shape[1] if viewed else 1
    known = {key: columns.get(key) for key in ("labels", "groups", "test", "paths", "captions")}
    check_columns(count, name, {"is_test" if key == "test" else key: column for key, column in known.items()})
    if viewed and names and len(names) != views:
        raise DataError(f"views must name all {views} views of an item in {name}, got {len(names)}")
    kept = np.array([bool(texts) for texts in known["captions"] or [True] * count])
    if not kept.any():
        raise DataError(f"expected a caption of some item in {name}, got none")
    check_columns(int(kept.sum()), name, {})
    left_out = (Skipped(f"item {item}", NO_CAPTION) for item in np.flatnonzero(~kept).tolist())
    items = np.repeat(np.flatnonzero(kept), views)
    known = {key: _at(column, items) for key, column in known.items()}
    if viewed and known["groups"] is None:
        known["groups"] = items
    if viewed and names:
        known["paths"] = tuple(f"item {item}, {names[row % views]}" for row, item in enumerate(items.tolist()))
    rows = rows if kept.all() else rows[np.repeat(kept, views)]
    return rows, columns | known | {"skipped": (*columns.get("skipped", ()), *left_out)}


def _at(column: Any, items: NDArray[np.int64]) -> Any:
    if column is None:
        return None
    return column[items] if isinstance(column, np.ndarray) else tuple(column[item] for item in items.tolist())
