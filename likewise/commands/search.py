"""`likewise search`: find similar items, near-duplicates, outliers and doubtful labels."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from likewise.guide import see
from likewise.printing import note
from likewise.report.pictures import magnified, of_items
from likewise.search import SearchError
from likewise.search.searcher import Searcher
from likewise.training.encoder import Encoder

GAP = 4  # pixels between pictures
ROWS = 100  # rows of pictures that are drawn, at most
LARGEST_SHARE = 0.1  # share of all items in one group of near-duplicates, above which the threshold is doubtful


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
    """Answer one question with `Searcher.open(run, source, **options)`: a query, duplicates, outliers or suspects.

    `grid` is the path of a picture of the results: k items in a row, each group on its own rows, at most 100 rows.
    `say` is called with a note if the result is doubtful: the embeddings have collapsed, a query has words that no
    caption had, or a threshold makes near-duplicates of most items.
    """
    questions = {"QUERY": query, "duplicates": duplicates, "outliers": outliers, "suspects": suspects}
    given = [name for name, value in questions.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise SearchError(f"give exactly one of QUERY, duplicates, outliers and suspects, got {got}")
    if k < 1:
        raise SearchError(f"k must be a whole number >= 1, got {k!r}")
    searcher = Searcher.open(run, source, **options)
    notes = [searcher.note_on_collapse()]
    if query is not None:
        parsed = searcher.parse_query(query)
        matches = searcher.like(parsed, k)
        notes.append(searcher.note_on_words(parsed) if isinstance(parsed, str) else None)
    elif duplicates is not None:
        matches = searcher.duplicates(duplicates)
        notes.append(note_on_groups(matches, duplicates, len(searcher.items)))
    else:
        matches = searcher.outliers(outliers) if outliers is not None else searcher.suspects(suspects or 0)
    if grid is not None and matches:
        save_grid(searcher, in_rows(matches, k)[:ROWS], grid)
    for words in filter(None, notes):
        say(words)
    return matches


def note_on_groups(groups: Sequence[Mapping[str, Any]], threshold: float, items: int) -> str | None:
    """Return a note that the threshold is too low if one group holds a large share of all items, else None."""
    largest = max((len(group["items"]) for group in groups), default=0)
    if largest <= LARGEST_SHARE * items:
        return None
    return (
        f"one group holds {largest:,} of the {items:,} items; unless so many really are copies, the threshold of "
        f"{threshold:g} is too low for this encoder: raise it {see('threshold')}"
    )


def in_rows(matches: Sequence[Mapping[str, Any]], k: int) -> list[list[int]]:
    """Return the ids of the matches in rows of at most k; each group starts a new row."""
    groups = [group["items"] for group in matches] if matches and "items" in matches[0] else [matches]
    return [[item["id"] for item in group[start : start + k]] for group in groups for start in range(0, len(group), k)]


def save_grid(searcher: Searcher, rows: Sequence[Sequence[int]], path: str | Path) -> None:
    """Draw rows of items as one picture."""
    tiles = magnified(of_items(searcher.items, np.array([item for row in rows for item in row])))
    side, width = tiles.shape[1] + GAP, max(map(len, rows))
    picture = np.full((len(rows) * side - GAP, width * side - GAP, 3), 255, dtype=np.uint8)
    next_tile = iter(tiles)
    for y, row in enumerate(rows):
        for x in range(len(row)):
            picture[y * side : (y + 1) * side - GAP, x * side : (x + 1) * side - GAP] = next(next_tile)
    try:
        Image.fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise SearchError(f"the picture could not be written to {path}: {error}") from None
