"""Define the part of items that are texts.

It has the interface of every part (see likewise/data/parts.py). A text is padded, when it is read, with bytes that
UTF-8 does not have, so the data need no mask.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import TEXT
from likewise.data.parts import ROWS_AT_ONCE, Ids, Part, Piece

NO_BYTE = 255  # follows the end of a text; no byte of UTF-8 has this value


def cleaned(text: str) -> str:
    """Return a text without whitespace at its ends, and with one space for any other run of it."""
    return " ".join(text.encode(errors="replace").decode().split())  # lone surrogates cannot be encoded


@dataclass(frozen=True, eq=False, kw_only=True)
class TextPart(Part):
    """One text per item: `array` is (bytes,) uint8, all texts in UTF-8, one after the other."""

    offsets: Ids  # (n + 1,): where each text begins, and where the last ends

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextPart":
        """Return texts as a part, in their order."""
        encoded = [text.encode() for text in texts]
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)])
        words = int(np.median([len(text.split()) for text in texts] or [0]))
        return cls(TEXT, np.frombuffer(b"".join(encoded), dtype=np.uint8), words, offsets=offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the bytes of some texts (m, b), b those of the longest, NO_BYTE after the end of each."""
        rows = np.asarray(rows)
        longest = int(np.diff(self.offsets)[rows].max(initial=1))
        padded = np.full((len(rows), longest), NO_BYTE, dtype=np.uint8)
        for place, row in enumerate(rows):
            content = self.stored(row)
            padded[place, : len(content)] = content
        return padded

    def texts(self, rows: Ids) -> list[str]:
        return [self.stored(row).tobytes().decode() for row in rows]

    def stored(self, row: int) -> NDArray[Any]:
        return self.array[self.offsets[row] : self.offsets[row + 1]]

    def pieces(self, rows: Ids, hop: int = 1) -> Iterator[Piece]:
        """Yield texts of similar length together, so that little of a piece is padding."""
        order = np.argsort(np.diff(self.offsets)[rows], kind="stable")
        for places in np.array_split(order, max(1, -(-len(rows) // ROWS_AT_ONCE))):
            yield Piece(self[rows[places]], places, np.ones(len(places), dtype=np.float32), np.zeros_like(places))

    def contents(self, rows: Ids) -> Iterator[NDArray[Any]]:
        for row in rows:
            yield np.ascontiguousarray(self.stored(row))
