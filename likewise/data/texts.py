"""Read texts: the lines of a file, or strings in memory. Each text is one item.

Whitespace at both ends of a text is removed, and any other run of whitespace becomes one space. Empty texts are left
out. So are repeated ones, unless their labels differ or one is in the training part and the other in the test part: two
items of the same text would be negatives of each other. Of strings in memory all are kept, because whoever made them
knows each by its position.
"""

import codecs
import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from likewise.data import metadata_lines
from likewise.data.items import TEXT, DataError, Items, Skipped, digest, fingerprint, of_part
from likewise.data.memory import check_fits
from likewise.data.text_part import TextPart, cleaned

UTF_16 = "utf-16"
HAS_NUL = "it holds NUL bytes, so it is not text"
UNDECODABLE = "it cannot be decoded"


class Collector:
    """Collect cleaned texts in UTF-8, one after the other, and count those that are left out."""

    def __init__(self) -> None:
        self.paths: list[str] = []  # one per text
        self.skipped: list[Skipped] = []
        self.empty = 0
        self.repeated = 0
        self._content = bytearray()
        self._offsets = array("q", [0])
        self._words = array("q")  # how many each text has
        self._known: set[bytes] = set()  # digests, because they are smaller than the texts

    def add(self, text: str, path: str, *columns: object) -> bool:
        """Add a text unless it cannot be used or repeats one with the same columns; return whether it was added."""
        if "\0" in text:
            self.skipped.append(Skipped(path, HAS_NUL))
            return False
        words = text.split()
        try:
            content = " ".join(words).encode()
        except UnicodeEncodeError:  # bytes that could not be decoded have become surrogates
            self.skipped.append(Skipped(path, UNDECODABLE))
            return False
        if not content:
            self.empty += 1
            return False
        known = hashlib.blake2b(repr(columns).encode() + b"\0" + content, digest_size=16).digest()
        if known in self._known:
            self.repeated += 1
            return False
        self._known.add(known)
        self._content += content
        self._offsets.append(len(self._content))
        self._words.append(len(words))
        self.paths.append(path)
        return True

    def items(
        self,
        name: str,
        called: str,
        *,
        paths: tuple[str, ...] | None,
        labels: NDArray[np.int64] | None = None,
        classes: tuple[str, ...] = (),
        groups: NDArray[np.int64] | None = None,
        test: NDArray[np.bool_] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Items:
        """Return the texts as items; `called` is the word for a text in notes, such as line."""
        count = len(self._words)
        if not count and self.skipped:
            raise DataError(f"no readable text in {name}: {self.skipped[0].path}: {self.skipped[0].reason}")
        offsets = np.array(self._offsets, dtype=np.int64)
        content = np.frombuffer(self._content, dtype=np.uint8)
        part = TextPart(TEXT, content, int(np.median(self._words or [0])), offsets=offsets)
        return of_part(
            part,
            name,
            content=content_of(part),
            labels=labels,
            classes=classes,
            groups=groups,
            test=test,
            paths=paths,
            skipped=tuple(self.skipped),
            notes=notes + _note_of_left_out(self.empty, self.repeated, called),
        )


def content_of(part: TextPart) -> str:
    """Return a hash of some texts, also of where each ends."""
    return fingerprint(digest(part.array), part.offsets)


def _note_of_left_out(empty: int, repeated: int, called: str) -> tuple[str, ...]:
    """Return a note that counts what was left out: `3 empty lines and 2 repeated ones are left out`."""
    counts = {"empty": empty, "repeated": repeated}
    words: list[str] = []
    for what, count in counts.items():
        if count:
            noun = "one" if words else called
            words.append(f"{count:,} {what} {noun}{'s' * (count > 1)}")
    return (f"{' and '.join(words)} {'is' if empty + repeated == 1 else 'are'} left out",) if words else ()


def encoding_of(path: Path) -> str:
    """Return the encoding of a text file: UTF-16 if its first bytes say so, else UTF-8 or Windows-1252."""
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return UTF_16
    return metadata_lines.encoding_of(path)


def from_lines(path: Path, name: str) -> Items:
    """Return the lines of a text file."""
    check_fits(2 * path.stat().st_size, name)
    encoding, number = encoding_of(path), 0
    collector = Collector()
    with open_text(path, encoding) as lines:
        try:
            for number, line in enumerate(lines, 1):
                collector.add(line, f"{path.name}:{number}")
        except UnicodeDecodeError:  # UTF-16 that ends in the middle of a letter; other errors have become surrogates
            collector.skipped.append(Skipped(f"{path.name}:{number + 1}", UNDECODABLE))
    notes = metadata_lines.note_of_encoding(path.name, encoding)
    return collector.items(name, "line", paths=tuple(collector.paths), notes=notes)


def open_text(path: Path, encoding: str) -> TextIO:
    """Open a text file so that bytes that cannot be decoded become surrogates."""
    return path.open(encoding=encoding, errors="surrogatepass" if encoding == UTF_16 else "surrogateescape")


def from_memory(
    texts: Sequence[str | bytes] | NDArray[Any],
    name: str,
    *,
    labels: NDArray[np.int64] | None = None,
    classes: tuple[str, ...] = (),
    groups: NDArray[np.int64] | None = None,
    test: NDArray[np.bool_] | None = None,
) -> Items:
    """Return a list of strings, or an array (n,) of them, as items."""
    if isinstance(texts, str | bytes) or not hasattr(texts, "__len__") or getattr(texts, "ndim", 1) != 1:
        got = f"an array of shape {texts.shape}" if isinstance(texts, np.ndarray) else type(texts).__name__
        raise DataError(f"texts must be a list of strings or an array (n,) of them, got {got} in {name}")
    strings = []
    for row, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise DataError(f"texts must be strings, got {type(text).__name__} in row {row} of {name}")
        strings.append(cleaned(text.decode(errors="replace") if isinstance(text, bytes) else text))
    # Nothing is left out, also no empty text, because whoever made them knows each by its position.
    part = TextPart.of(strings)
    return of_part(part, name, content=content_of(part), labels=labels, classes=classes, groups=groups, test=test)
