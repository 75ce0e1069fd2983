"""An index over embeddings: built, asked, and kept in a folder that knows which encoder and data it belongs to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.search import exact, files, structures
from likewise.search.exact import Places, Rows, SearchError, slices

QUERIES_AT_ONCE = 4096

__all__ = ["Index", "SearchError"]


@dataclass(frozen=True, eq=False)
class Index:
    """Unit rows that are searched by cosine. Similarities are exact whatever the kind; `flat` finds all neighbours."""

    vectors: Rows  # (n, d), of length one, or zeros; mapped from its file where the index was loaded
    kind: str  # flat, hnsw or ivfpq
    belongs_to: str  # a fingerprint of encoder, layer and data
    structure: Any = None  # FAISS's; flat needs none

    @classmethod
    def build(cls, vectors: NDArray[Any], kind: str = "auto", *, belongs_to: str) -> "Index":
        """An index of embeddings (n, d).

        `auto` is `flat` up to 50,000 items, compared with every query; `hnsw` up to 1,000,000; `ivfpq` beyond. The
        last two need FAISS, and `ivfpq` 10,000 items.
        """
        units = exact.unit_rows(_checked("vectors", vectors))
        if not len(units):
            raise SearchError(f"vectors must be at least one, got shape {np.shape(vectors)}")
        kind = structures.choose(kind, len(units))
        return cls(units, kind, belongs_to, None if kind == "flat" else structures.build(kind, units))

    @classmethod
    def of(cls, index_or_vectors: "Index | NDArray[Any]") -> "Index":
        """An index as it is, or one of vectors (n, d)."""
        return index_or_vectors if isinstance(index_or_vectors, Index) else cls.build(index_or_vectors, belongs_to="")

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: NDArray[Any], k: int = 10, *, exclude: NDArray[Any] | None = None) -> tuple[Rows, Places]:
        """Cosines (m, k) of queries (m, d) with their nearest items, most alike first, and the items' places (m, k).

        Of equally similar ones that with the smaller place comes first. `exclude` (m,) is one place for each query
        that is not its neighbour: its own. Of fewer than k items there are all.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise SearchError(f"k must be a whole number >= 1, got {k!r}")
        units = exact.unit_rows(_checked("queries", queries, self.vectors.shape[1]))
        own = None if exclude is None else self._places(exclude, len(units))
        k = min(int(k), len(self) - (own is not None))
        if not k or not len(units):
            return np.empty((len(units), k), dtype=np.float32), np.empty((len(units), k), dtype=np.int64)
        count = structures.proposed(k, self.kind)
        if self.structure is None or 4 * count >= len(self):  # so many are found sooner by comparing with all
            return exact.search(self.vectors, units, k, own)
        parts = [
            self._approximate(units[part], k, count, None if own is None else own[part])
            for part in slices(len(units), QUERIES_AT_ONCE)
        ]
        similarity, places = zip(*parts, strict=True)
        return np.concatenate(similarity), np.concatenate(places)

    def neighbours(self, k: int) -> Iterator[tuple[Places, Rows, Places]]:
        """Part by part: places (m,) of items, the cosines (m, k) with their nearest others, and those places (m, k)."""
        for part in slices(len(self), QUERIES_AT_ONCE):
            items = np.arange(part.start, part.stop)
            yield items, *self.search(self.vectors[part], k, exclude=items)

    def save(self, folder: str | Path) -> None:
        """Write the index into a folder, in the place of the one that is there: whole or not at all."""
        files.save(Path(folder), self.vectors, self.kind, self.belongs_to, self.structure)

    @classmethod
    def load(cls, folder: str | Path, belongs_to: str) -> "Index":
        """The index of a folder, if it is whole and belongs to this encoder and these data."""
        return cls(*files.load(Path(folder), belongs_to))

    def _approximate(self, units: Rows, k: int, count: int, own: Places | None) -> tuple[Rows, Places]:
        found = structures.candidates(self.kind, self.structure, units, count + (own is not None))
        if own is not None:
            found[found == own[:, None]] = -1
        few = (found >= 0).sum(axis=1) < k  # an island of the graph, or cells with next to nothing in them
        similarity = np.empty((len(units), k), dtype=np.float32)
        places = np.empty((len(units), k), dtype=np.int64)
        similarity[~few], places[~few] = exact.rerank(self.vectors, units[~few], k, found[~few])
        similarity[few], places[few] = exact.search(self.vectors, units[few], k, None if own is None else own[few])
        return similarity, places

    def _places(self, exclude: NDArray[Any], m: int) -> Places:
        places = np.asarray(exclude)
        if places.shape != (m,) or not np.issubdtype(places.dtype, np.integer):
            raise SearchError(f"exclude must be a place for each of {m} queries, got {places.dtype} {places.shape}")
        if m and not (places.min() >= 0 and places.max() < len(self)):
            raise SearchError(f"exclude must be places below {len(self)}, got {places.min()} to {places.max()}")
        return places.astype(np.int64)


def _checked(what: str, rows: NDArray[Any], d: int | None = None) -> NDArray[np.floating]:
    rows = np.asarray(rows)
    if rows.ndim != 2 or not rows.shape[1] or (d is not None and rows.shape[1] != d):
        raise SearchError(f"{what} must be (n, {d or 'd'}), got shape {rows.shape}")
    if not np.issubdtype(rows.dtype, np.floating):
        raise SearchError(f"{what} must be floating-point numbers, got {rows.dtype}")
    for part in slices(len(rows), exact.ENTRIES_AT_ONCE // rows.shape[1]):
        if not np.isfinite(rows[part]).all():
            raise SearchError(f"{what} must be finite, got NaN or infinity")
    return rows
