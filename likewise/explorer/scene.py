"""What there is to look at: items on a map, what they are coloured by, and the searcher that is asked."""

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

MOST_DRAWN = 200_000  # items on the map; search looks at all


@dataclass(frozen=True)
class Scene:
    """Items of a source as an encoder sees them."""

    searcher: Searcher
    drawn: Places  # (m,): the items on the map
    points: NDArray[np.float32]  # (m, 2) in 0 to 1
    how: str  # the map was made
    doubt: str | None  # how the embeddings have collapsed, if they have
    columns: Mapping[str, Column]
    root: Path | None  # where the items' files lie, if they have any

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
        """The scene of a run's encoder on a source, by default the run's own. What takes long is kept in the run.

        `say` is called with what is being done and the share of it that is done, 0 to 1.
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
        kept = run / "explore" / f"{hashlib.sha256(index.belongs_to.encode()).hexdigest()[:12]}.npz"
        found = _kept(kept, len(drawn), len(items))
        if found is None:
            how, points = laid_out(index.vectors[drawn], drawing)
            found = how, points, clusters(index.vectors, len(items.classes))
            _keep(kept, *found)
        how, points, grouped = found
        named = source if source is not None else searcher.encoder.recipe.data.source
        return cls(
            searcher=searcher,
            drawn=drawn,
            points=points,
            how=how,
            doubt=searcher.note_on_collapse(),
            columns=columns(items, grouped, _held_out(searcher), named, table),
            root=_root(named, items),
        )


def _held_out(searcher: Searcher) -> Places | None:
    """Ids of the items that the encoder was not trained on, where the source is that of its run."""
    encoder, items = searcher.encoder, searcher.items
    if encoder.about.get("fingerprint") != items.fingerprint:
        return None
    test = split(items, encoder.recipe)[1]
    return test if len(test) else None


def _root(source: Any, items: Items) -> Path | None:
    """The folder in which the items' paths are files."""
    if items.paths is None or not isinstance(source, str | Path):
        return None
    folder = Path(source).expanduser()
    return folder if folder.is_dir() and (folder / items.paths[0]).is_file() else None


def _kept(path: Path, drawn: int, items: int) -> tuple[str, NDArray[np.float32], Places] | None:
    """A map that was made before, whole and of as many items."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            how, points, grouped = str(file["how"]), file["points"], file["clusters"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return (how, points, grouped) if points.shape == (drawn, 2) and grouped.shape == (items,) else None


def _keep(path: Path, how: str, points: NDArray[np.float32], grouped: Places) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # where nothing can be written it is made anew each time
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, how=np.array(how), points=points, clusters=grouped)
        temporary.replace(path)
