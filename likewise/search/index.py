"""An index over embeddings, which can be saved to a folder together with the encoder and data that it belongs to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.parts import Digests
from likewise.guide import see
from likewise.search import exact, files, structures
from likewise.search.exact import Places, Rows, SearchError, slices

QUERIES_AT_ONCE = 4096

__all__ = ["Index", "SearchError"]


@dataclass(frozen=True, eq=False)
class Index:
    """Unit rows to be searched by cosine.

    Similarities are exact for every kind. `flat` finds all neighbours; the others may miss some.
    """

    vectors: Rows  # (n, d), of length one or zero; memory-mapped if the index was loaded
    kind: str  # flat, hnsw or ivfpq
    belongs_to: str  # a fingerprint of encoder, layer and data
    structure: Any = None  # the FAISS index; None for flat
    digests: Digests | None = None  # (n,) of the items' contents, by which a later index recognises them; None: unknown
    source: str = ""  # a hash of where the items were read from; empty if they were in memory

    @classmethod
    def build(
        cls,
        vectors: NDArray[Any],
        kind: str = "auto",
        *,
        belongs_to: str,
        digests: Digests | None = None,
        source: str = "",
    ) -> "Index":
        """Build an index of embeddings (n, d).

        `auto` is `flat`, which compares a query with every item, up to 50,000 items; `hnsw` up to 1,000,000; and
        `ivfpq` beyond. The last two need FAISS, and `ivfpq` needs at least 10,000 items.
        """
        units = exact.unit_rows(_checked("vectors", vectors))
        if not len(units):
            raise SearchError(f"vectors must have at least one row, got shape {np.shape(vectors)}")
        kind = structures.choose(kind, len(units))
        structure = None if kind == "flat" else structures.build(kind, units)
        return cls(units, kind, belongs_to, structure, digests, source)

    @classmethod
    def of(cls, index_or_vectors: "Index | NDArray[Any]") -> "Index":
        """Return an index unchanged, or build one from vectors (n, d)."""
        return index_or_vectors if isinstance(index_or_vectors, Index) else cls.build(index_or_vectors, belongs_to="")

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: NDArray[Any], k: int = 10, *, exclude: NDArray[Any] | None = None) -> tuple[Rows, Places]:
        """Return cosines (m, k) of queries (m, d) with their nearest items, highest first, and their places (m, k).

        Among equal cosines the smaller place comes first. `exclude` (m,) is one place for each query, such as its
        own, that does not count as a neighbour. If there are fewer than k items, all of them are returned.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise SearchError(f"k must be a whole number >= 1, got {k!r}")
        units = exact.unit_rows(_checked("queries", queries, self.vectors.shape[1]))
        own = None if exclude is None else self._places(exclude, len(units))
        k = min(int(k), len(self) - (own is not None))
        if not k or not len(units):
            return np.empty((len(units), k), dtype=np.float32), np.empty((len(units), k), dtype=np.int64)
        count = structures.proposed(k, self.kind)
        if self.structure is None or 4 * count >= len(self):  # comparing with all items is faster for so many
            return exact.search(self.vectors, units, k, own)
        parts = [
            self._approximate(units[part], k, count, None if own is None else own[part])
            for part in slices(len(units), QUERIES_AT_ONCE)
        ]
        similarity, places = zip(*parts, strict=True)
        return np.concatenate(similarity), np.concatenate(places)

    def neighbours(self, k: int) -> Iterator[tuple[Places, Rows, Places]]:
        """Yield, block by block, places (m,) of items, cosines (m, k) with their nearest others, and places (m, k)."""
        for part in slices(len(self), QUERIES_AT_ONCE):
            items = np.arange(part.start, part.stop)
            yield items, *self.search(self.vectors[part], k, exclude=items)

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder, atomically replacing any index that is there."""
        fields = (self.vectors, self.kind, self.belongs_to, self.structure, self.digests, self.source)
        files.save(Path(folder), *fields)

    @classmethod
    def load(cls, folder: str | Path, belongs_to: str) -> "Index":
        """Load the index in a folder; raise SearchError if damaged or of another encoder or other data."""
        return cls(*files.load(Path(folder), belongs_to))

    def _approximate(self, units: Rows, k: int, count: int, own: Places | None) -> tuple[Rows, Places]:
        candidates = structures.candidates(self.kind, self.structure, units, count + (own is not None))
        if own is not None:
            candidates[candidates == own[:, None]] = -1
        few = (candidates >= 0).sum(axis=1) < k  # a disconnected part of the graph, or nearly empty cells
        similarity = np.empty((len(units), k), dtype=np.float32)
        places = np.empty((len(units), k), dtype=np.int64)
        similarity[~few], places[~few] = exact.rerank(self.vectors, units[~few], k, candidates[~few])
        similarity[few], places[few] = exact.search(self.vectors, units[few], k, None if own is None else own[few])
        return similarity, places

    def _places(self, exclude: NDArray[Any], m: int) -> Places:
        places = np.asarray(exclude)
        if places.shape != (m,) or not np.issubdtype(places.dtype, np.integer):
            raise SearchError(f"exclude must be one place for each of {m} queries, got {places.dtype} {places.shape}")
        if m and not (places.min() >= 0 and places.max() < len(self)):
            raise SearchError(f"exclude must be places below {len(self)}, got {places.min()} to {places.max()}")
        return places.astype(np.int64)


def _checked(what: str, rows: NDArray[Any], d: int | None = None) -> NDArray[np.floating]:
    rows = np.asarray(rows)
    if rows.ndim != 2 or not rows.shape[1] or (d is not None and rows.shape[1] != d):
        raise SearchError(f"{what} must be of shape (n, {d or 'd'}), got {rows.shape}")
    if not np.issubdtype(rows.dtype, np.floating):
        raise SearchError(f"{what} must be floating-point numbers, got {rows.dtype}")
    for part in slices(len(rows), exact.ENTRIES_AT_ONCE // rows.shape[1]):
        if not np.isfinite(rows[part]).all():
            raise SearchError(f"{what} must be finite, got NaN or infinity {see('not finite')}")
    return rows
