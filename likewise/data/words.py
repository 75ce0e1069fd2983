"""Words of captions, in any language: which words of a question did no caption have?

The tokenizer reads any text byte by byte, so an encoder of text answers to words that it has never seen, too, but
what it answers means nothing. Only the words themselves tell.
"""

import unicodedata
from collections.abc import Collection, Iterable

# Scripts without spaces between words, in which a letter counts as one: Thai, Lao; Myanmar; Khmer; kana; ideographs.
UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))


class _Spaced(dict[int, str]):
    """A table for `str.translate`: letters, marks and numbers stay, all else becomes a space."""

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
