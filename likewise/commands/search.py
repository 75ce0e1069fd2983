"""`likewise search`: what is most like this file, this item or these words; what is double, lonely or mislabelled?"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from likewise.printing import note
from likewise.report.pictures import magnified, of_items
from likewise.search import SearchError
from likewise.search.searcher import Searcher
from likewise.training.encoder import Encoder

GAP = 4  # pixels between pictures
ROWS = 100  # of them that are drawn
LARGEST_SHARE = 0.1  # of all items that one group of near-duplicates may be


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
    say: Callable[[str], None] = note,
    **options: Any,
) -> list[dict[str, Any]]:
    """What `Searcher.open(run, source, **options)` finds for one question.

    `grid` is a picture of it to be drawn, k items a row, a group on rows of its own; the first 100 rows. `say` is
    called with what makes the answer doubtful: embeddings that have collapsed, words that no caption had, a threshold
    that tells nothing apart.
    """
    asked = {"QUERY": query, "duplicates": duplicates, "outliers": outliers, "suspects": suspects}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise SearchError(f"ask one thing, QUERY, duplicates, outliers or suspects, got {got}")
    if k < 1:
        raise SearchError(f"k must be a whole number >= 1, got {k!r}")
    searcher = Searcher.open(run, source, **options)
    notes = [searcher.note_on_collapse()]
    if query is not None:
        meant = searcher.meant(query)
        found = searcher.like(meant, k)
        notes.append(searcher.note_on_words(meant) if isinstance(meant, str) else None)
    elif duplicates is not None:
        found = searcher.duplicates(duplicates)
        notes.append(note_on_groups(found, duplicates, len(searcher.items)))
    else:
        found = searcher.outliers(outliers) if outliers is not None else searcher.suspects(suspects or 0)
    if grid is not None and found:
        save_grid(searcher, in_rows(found, k)[:ROWS], grid)
    for words in filter(None, notes):
        say(words)
    return found


def note_on_groups(found: Sequence[Mapping[str, Any]], threshold: float, items: int) -> str | None:
    """Say that a threshold says nothing, if it makes near-duplicates of a large share of all items."""
    largest = max((len(group["items"]) for group in found), default=0)
    if largest <= LARGEST_SHARE * items:
        return None
    return (
        f"one group holds {largest:,} of the {items:,} items: unless so many are copies, a threshold of {threshold:g} "
        "says nothing here; raise it"
    )


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
