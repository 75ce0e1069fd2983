"""`likewise search`: what is most like this file, this item or these words; what is double, lonely or mislabelled?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from likewise.report.pictures import magnified, of_items
from likewise.search import SearchError
from likewise.search.searcher import Searcher
from likewise.training.run import Encoder

GAP = 4  # pixels between pictures
ROWS = 100  # of them that are drawn


def search(
    run: str | Path | Encoder,
    query: str | int | Path | None = None,
    source: Any = None,
    *,
    k: int = 10,
    duplicates: float | None = None,
    outliers: int | None = None,
    suspects: int | None = None,
    grid: str | Path | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """What `Searcher.open(run, source, **options)` finds for one question.

    `grid` is a picture of it to be drawn, k items a row, a group on rows of its own; the first 100 rows.
    """
    asked = {"QUERY": query, "duplicates": duplicates, "outliers": outliers, "suspects": suspects}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise SearchError(f"ask one thing, QUERY, duplicates, outliers or suspects, got {got}")
    if k < 1:
        raise SearchError(f"k must be a whole number >= 1, got {k!r}")
    searcher = Searcher.open(run, source, **options)
    if query is not None:
        found = searcher.like(query, k)
    elif duplicates is not None:
        found = searcher.duplicates(duplicates)
    else:
        found = searcher.outliers(outliers) if outliers is not None else searcher.suspects(suspects or 0)
    if grid is not None and found:
        save_grid(searcher, in_rows(found, k)[:ROWS], grid)
    return found


def in_rows(found: Sequence[Mapping[str, Any]], k: int) -> list[list[int]]:
    """The ids of what was found, k at most on a row; each group begins on one of its own."""
    groups = [group["items"] for group in found] if found and "items" in found[0] else [found]
    return [[item["id"] for item in group[start : start + k]] for group in groups for start in range(0, len(group), k)]


def save_grid(searcher: Searcher, rows: Sequence[Sequence[int]], path: str | Path) -> None:
    """Draw rows of items as one picture."""
    tiles = magnified(of_items(searcher.items, np.array([place for row in rows for place in row])))
    side, wide = tiles.shape[1] + GAP, max(map(len, rows))
    picture = np.full((len(rows) * side - GAP, wide * side - GAP, 3), 255, dtype=np.uint8)
    place = iter(tiles)
    for y, row in enumerate(rows):
        for x in range(len(row)):
            picture[y * side : (y + 1) * side - GAP, x * side : (x + 1) * side - GAP] = next(place)
    try:
        Image.fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise SearchError(f"the picture could not be written to {path}: {error}") from None
