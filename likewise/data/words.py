"""Split captions in any language into words, and find the words of a query that occur in no caption.

The tokenizer accepts any text, so a text encoder also embeds words that it has never seen, but such an embedding means
nothing. Only comparing the words themselves shows this.
"""

import unicodedata
from collections.abc import Collection, Iterable

# Scripts without spaces between words, where each letter counts as a word: Thai, Lao; Myanmar; Khmer; kana; ideographs.
UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))


class _Spaced(dict[int, str]):
    """A table for `str.translate` that keeps letters, marks and numbers and replaces all else by a space."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        kept = letter if unicodedata.category(letter)[0] in "LMN" else " "
        self[code] = f" {kept} " if any(first <= code <= last for first, last in UNSPACED) else kept
        return self[code]


_spaced = _Spaced()


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return unicodedata.normalize("NFC", text).lower().translate(_spaced).split()


def all_words(captions: Iterable[str]) -> list[str]:
    """Return the words of all captions, each once, sorted."""
    return sorted({word for caption in captions for word in words_of(caption)})


def unseen_words(text: str, known: Collection[str]) -> list[str]:
    """Return the words of a text that are not among the known ones, each once, in order."""
    return [word for word in dict.fromkeys(words_of(text)) if word not in known]
