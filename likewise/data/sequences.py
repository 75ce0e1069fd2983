"""Sequences: recordings and sensor logs of any length, one behind the other in one array.

Padding is NaN until the encoder sees it: no sequence may hold one, so a window needs no mask beside it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import Items

SIXTEEN_BITS = 32768.0


@dataclass(frozen=True, eq=False)
class Sequences(Items):
    """Items of kind "sequence": `array` is (samples, c), int16 audio or float32, all sequences in order."""

    offsets: NDArray[np.int64]  # (n + 1,): where each sequence begins, and the end
    rate: int  # samples a second; 0: not known
    channels: tuple[str, ...]  # names

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        """Whole sequences (m, t, c), t the longest of them, NaN behind the end of each."""
        ids = np.asarray(ids)
        longest = int(self.lengths[ids].max(initial=1))
        return self.windows(ids, np.zeros(len(ids), dtype=np.int64), longest)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) in samples."""
        return np.diff(self.offsets)

    def windows(self, ids: NDArray[Any], starts: NDArray[Any], length: int) -> NDArray[np.float32]:
        """(m, length, c) from sample `starts` (m,) of each on, NaN behind the sequence's end; audio in −1 to 1."""
        found = np.full((len(ids), length, self.array.shape[1]), np.nan, dtype=np.float32)
        for row, (item, start) in enumerate(zip(ids, starts, strict=True)):
            first = self.offsets[item] + start
            part = self.array[first : min(first + length, self.offsets[item + 1])]
            found[row, : len(part)] = part
        if self.array.dtype == np.int16:
            found /= SIXTEEN_BITS
        return found
