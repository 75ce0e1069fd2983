"""Define the parts that items are made of. A part is one modality of all items, held as rows of one array.

A `Part` has rows of one shape, such as images; a `RaggedPart` has sequences of any length, one after the other. Both
have the same interface, so code that reads rows need not know which of the two it has. A sequence is padded with NaN
after its end when it is read. Sequences must not hold NaN themselves, so the data need no mask.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.work import in_order

SIXTEEN_BITS = 32768.0
ROWS_AT_ONCE = 256  # rows that are embedded in one forward pass
SAMPLES_AT_ONCE = 2**20  # samples of sequences that are embedded in one forward pass
PIECE = 2**18  # samples; a longer sequence is embedded in several pieces
# How rows are recognised, in words that are stored beside digests; other words mean that they cannot be compared.
# SHA-256 is the fastest hash where the processor has instructions for it. NumPy compares all 16 bytes of an S16.
DIGESTED = "the first 16 bytes of SHA-256 of type, shape and content of a row"
DIGEST = np.dtype("S16")

Ids = NDArray[np.int64]
Digests = NDArray[np.bytes_]  # (m,) of type DIGEST


def spread(ids: Ids, most: int) -> Ids:
    """Return at most `most` of the ids, evenly spaced from first to last."""
    return ids if len(ids) <= most else ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that are not channels."""

    times: tuple[str, ...]  # the columns that order the rows; empty: the rows keep their order
    left_out: dict[str, str]  # the columns that are not used, with the reason


@dataclass(frozen=True)
class Piece:
    """Rows, or pieces of rows, that are embedded together."""

    data: NDArray[Any]  # (m, ...)
    places: Ids  # (m,): the index of each row among the requested rows
    shares: NDArray[np.float32]  # (m,): the fraction of its row that a piece holds; 1 for a whole row
    starts: Ids  # (m,): the first sample of a piece; 0 for a whole row


@dataclass(frozen=True, eq=False)
class Part:
    """One modality of all items, in rows of one shape."""

    modality: str
    array: NDArray[Any]  # images: (n, c, h, w) uint8, c 1 or 3; vectors: (n, f) float32; text: (n,) strings
    native: int = 0  # median shorter side of the original images, or f
    oblong: int = field(default=0, kw_only=True)  # how many images were not square
    # (rows,): the item of each row, in increasing order; None: row i belongs to item i
    item: Ids | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return some rows as a copy, (m, c, h, w) or (m, f)."""
        return np.ascontiguousarray(self.array[np.asarray(rows)])

    @property
    def kind(self) -> str:
        """The word for a row in messages."""
        return self.modality

    def stored(self, row: int) -> NDArray[Any]:
        """Return one row as it is stored, without a copy: two rows are copies if these are equal."""
        stored: NDArray[Any] = self.array[row]
        return stored

    def visits(self, rows: Ids, window: int) -> Ids:
        """Return the indices into `rows` that one epoch visits: each once."""
        return np.arange(len(rows))

    def read(self, rows: Ids, window: int, shares: NDArray[np.float64], grid: int = 1) -> tuple[NDArray[Any], Ids]:
        """Return what a training step sees of some rows, and the sample at which each begins: all of it, from 0."""
        return self[rows], np.zeros(len(rows), dtype=np.int64)

    def windows_per_row(self, window: int) -> float:
        """Return how many windows long a row is on average: training reads one window of a row, embedding all of it."""
        return 1.0

    def is_whole(self, window: int) -> bool:
        """Return whether a training step sees all of a row, so that reading it again returns the same data."""
        return True

    def pieces(self, rows: Ids, hop: int = 1) -> Iterator[Piece]:
        """Yield some rows in pieces that fit in memory."""
        for places in np.array_split(np.arange(len(rows)), max(1, -(-len(rows) // ROWS_AT_ONCE))):
            yield Piece(self[rows[places]], places, np.ones(len(places), dtype=np.float32), np.zeros_like(places))

    def shard_end(self, rows: Ids, start: int, most_rows: int, most_samples: int) -> int:
        """Return where a shard of `rows` that begins at `start` ends."""
        return min(start + most_rows, len(rows))

    def contents(self, rows: Ids) -> Iterator[NDArray[Any]]:
        """Yield the stored content of a few rows, one row after the other."""
        yield from self[rows]

    def texts(self, rows: Ids) -> list[str]:
        """Return some rows of a part that holds texts as strings."""
        return list(map(str, self.array[rows]))

    def digests(self, rows: Ids) -> Digests:
        """Return a hash of each of some rows, (m,): equal for rows of equal content, wherever they are stored."""
        # Hashing releases the GIL if rows are large, so that threads share the work.
        blocks = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
        return np.concatenate([np.empty(0, DIGEST), *in_order(partial(self._digests, block) for block in blocks)])

    def _digests(self, rows: Ids) -> Digests:
        begun = hashlib.sha256(f"{self.array.dtype.str} {self.array.shape[1:]}".encode())
        digests: Digests = np.empty(len(rows), dtype=DIGEST)
        for place, content in enumerate(self.contents(rows)):
            hashed = begun.copy()
            hashed.update(content.data)
            digests[place] = hashed.digest()[: DIGEST.itemsize]
        return digests


@dataclass(frozen=True, eq=False, kw_only=True)
class RaggedPart(Part):
    """Sequences: `array` is (samples, c), int16 audio or float32, all sequences in order."""

    offsets: Ids  # (n + 1,): where each sequence begins, and where the last ends
    rate: int  # samples per second; 0 if unknown
    channels: tuple[str, ...]  # their names
    table: TableColumns | None = None  # None if they do not come from a table

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return whole sequences (m, t, c), t the longest of them, NaN after the end of each."""
        rows = np.asarray(rows)
        longest = int(self.lengths[rows].max(initial=1))
        return self.windows(rows, np.zeros(len(rows), dtype=np.int64), longest)

    @property
    def kind(self) -> str:
        return "sequence"

    @property
    def lengths(self) -> Ids:
        """The length of each sequence (n,) in samples."""
        return np.diff(self.offsets)

    def windows(self, rows: NDArray[Any], starts: NDArray[Any], length: int) -> NDArray[np.float32]:
        """Return (m, length, c) from sample `starts` (m,) on, NaN after the sequence's end; audio in −1 to 1."""
        windows = np.full((len(rows), length, self.array.shape[1]), np.nan, dtype=np.float32)
        for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
            first = self.offsets[row] + start
            samples = self.array[first : min(first + length, self.offsets[row + 1])]
            windows[place, : len(samples)] = samples
        if self.array.dtype == np.int16:
            windows /= SIXTEEN_BITS
        return windows

    def whole(self, row: int) -> NDArray[np.float32]:
        """Return one sequence (t, c)."""
        window: NDArray[np.float32] = self.windows(np.array([row]), np.array([0]), int(self.lengths[row]))[0]
        return window

    def stored(self, row: int) -> NDArray[Any]:
        return self.array[self.offsets[row] : self.offsets[row + 1]]

    def visits(self, rows: Ids, window: int) -> Ids:
        """Return the indices into `rows` that one epoch visits: each once per whole window that fits, at least once."""
        return np.repeat(np.arange(len(rows)), np.maximum(1, self.lengths[rows] // max(1, window)))

    def read(self, rows: Ids, window: int, shares: NDArray[np.float64], grid: int = 1) -> tuple[NDArray[Any], Ids]:
        """Return a window of each sequence, and the sample at which it begins, a multiple of `grid`.

        `shares` (m,) in [0, 1) give the position: 0 is the first possible start, 1 would be just past the last.
        """
        room = np.maximum(0, self.lengths[rows] - window)
        starts = np.floor(shares * (room // grid + 1)).astype(np.int64) * grid
        return self.windows(rows, starts, window), starts

    def windows_per_row(self, window: int) -> float:
        return max(1.0, float(self.lengths.mean()) / window)

    def is_whole(self, window: int) -> bool:
        return not window

    def pieces(self, rows: Ids, hop: int = 1) -> Iterator[Piece]:
        """Yield sequences in pieces of whole frames of `hop` samples; pieces of similar length are batched together."""
        lengths = self.lengths[rows]
        longest = max(1, PIECE // hop) * hop
        counts = -(-lengths // longest)
        places = np.repeat(np.arange(len(rows)), counts)
        starts = (np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)) * longest
        sizes = np.minimum(longest, lengths[places] - starts)
        order = np.argsort(sizes, kind="stable")
        while len(order):
            # Pieces are sorted by size, so the last of a batch is the longest, and all are padded to its length.
            samples = sizes[order] * np.arange(1, len(order) + 1)
            fits = min(max(1, int(np.searchsorted(samples, SAMPLES_AT_ONCE, side="right"))), ROWS_AT_ONCE)
            now, order = order[:fits], order[fits:]
            window = self.windows(rows[places[now]], starts[now], int(sizes[now[-1]]))
            yield Piece(window, places[now], (sizes[now] / lengths[places[now]]).astype(np.float32), starts[now])

    def shard_end(self, rows: Ids, start: int, most_rows: int, most_samples: int) -> int:
        samples = np.cumsum(self.lengths[rows[start : start + most_rows]])
        return start + max(1, int(np.searchsorted(samples, most_samples, side="right")))

    def contents(self, rows: Ids) -> Iterator[NDArray[Any]]:
        for row in rows:
            yield np.ascontiguousarray(self.array[self.offsets[row] : self.offsets[row + 1]])
