"""The scene of the explorer: items on a map, the columns they can be coloured by, and the searcher."""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import Items
from likewise.data.parts import spread
from likewise.explorer.columns import Column, Table, columns
from likewise.explorer.layout import clusters, laid_out
from likewise.search.exact import Places
from likewise.search.searcher import Searcher
from likewise.training.plan import split

MOST_DRAWN = 200_000  # items on the map, at most; a search covers all items


@dataclass(frozen=True)
class Scene:
    """The items of a source, laid out by their embeddings."""

    searcher: Searcher
    drawn: Places  # (m,): the items on the map
    points: NDArray[np.float32]  # (m, 2) in 0 to 1
    how: str  # how the map was made
    doubt: str | None  # how the embeddings have collapsed, if they have
    columns: Mapping[str, Column]
    root: Path | None  # the folder of the items' files, if they have files

    @classmethod
    def open(
        cls,
        run: Path,
        source: Any = None,
        *,
        layer: str | None = None,
        roles: Mapping[str, str] | None = None,
        table: Table | None = None,
        trust: bool = False,
        say: Callable[[str, float], None] = lambda words, share: None,
    ) -> "Scene":
        """Embed and lay out a source, by default the data of the run. The map is saved in the run's folder.

        `say` is called with a description of the current task and the share of it that is done, 0 to 1.
        """
        embedding = partial(say, "Embedding the items …")
        embedding(0)
        searcher = Searcher.open(
            run, source, layer=layer, columns=roles, trust=trust, progress=False, tell_share=embedding
        )
        items, index = searcher.items, searcher.index
        drawing = partial(say, f"Drawing a map of {len(items):,} items …")
        drawing(0)
        drawn = spread(np.arange(len(items)), MOST_DRAWN)
        saved_map = run / "explore" / f"{hashlib.sha256(index.belongs_to.encode()).hexdigest()[:12]}.npz"
        layout = _load_map(saved_map, len(drawn), len(items))
        if layout is None:
            how, points = laid_out(index.vectors[drawn], drawing)
            layout = how, points, clusters(index.vectors, len(items.classes))
            _save_map(saved_map, *layout)
        how, points, cluster_of_item = layout
        source_name = source if source is not None else searcher.encoder.recipe.data.source
        return cls(
            searcher=searcher,
            drawn=drawn,
            points=points,
            how=how,
            doubt=searcher.note_on_collapse(),
            columns=columns(items, cluster_of_item, _held_out(searcher), source_name, table),
            root=_root(source_name, items),
        )


def _held_out(searcher: Searcher) -> Places | None:
    """Return the ids of held-out items, or None if there are none or the source is not the one trained on."""
    encoder, items = searcher.encoder, searcher.items
    if encoder.about.get("fingerprint") != items.fingerprint:
        return None
    test = split(items, encoder.recipe)[1]
    return test if len(test) else None


def _root(source: Any, items: Items) -> Path | None:
    """Return the folder to which the items' paths are relative, or None if the items are not files."""
    if items.paths is None or not isinstance(source, str | Path):
        return None
    folder = Path(source).expanduser()
    return folder if folder.is_dir() and (folder / items.paths[0]).is_file() else None


def _load_map(path: Path, drawn: int, items: int) -> tuple[str, NDArray[np.float32], Places] | None:
    """Return the saved map, or None if there is none, it is damaged, or it has another number of items."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            how, points, cluster_of_item = str(file["how"]), file["points"], file["clusters"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    is_complete = points.shape == (drawn, 2) and cluster_of_item.shape == (items,)
    return (how, points, cluster_of_item) if is_complete else None


def _save_map(path: Path, how: str, points: NDArray[np.float32], cluster_of_item: Places) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # if the run is read-only, the map is made again each time
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, how=np.array(how), points=points, clusters=cluster_of_item)
        temporary.replace(path)
