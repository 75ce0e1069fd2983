"""Tokenize text by byte-level BPE (Sennrich et al., 2016), learned on the texts of a run, or by a given tokenizer.json.

The tokenizer of a run is saved with it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from likewise.data.builtin import needed
from likewise.data.items import DataError

PADDING, START, END = 0, 1, 2  # special tokens
SPECIAL = ("<padding>", "<start>", "<end>")  # their names, in this order
BERTS = ("[PAD]", "[CLS]", "[SEP]")  # their names in the files of BERT and of models like it
LONGEST_WORD = 6  # tokens
SMALLEST = len(SPECIAL) + 256  # every byte is a token, so that any text can be encoded


class Tokenizer:
    """Convert text in any language to tokens; once learned, the same text always gives the same tokens.

    `text` is a tokenizer.json as the tokenizers library writes it: one learned here, or that of a BERT. `start`
    and `end` are the ids of these special tokens; that of padding is always 0.
    """

    def __init__(self, text: str) -> None:
        self.text = text  # its whole state, as JSON
        library = needed("tokenizers", "text", "captions")
        try:
            self._inner = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises no more specific type
            raise DataError(f"a tokenizer must be JSON as the tokenizers library writes it, got: {error}") from None
        # Some files have texts cut or padded to a length of their own, but here the encoder determines the length.
        self._inner.no_truncation()
        self._inner.no_padding()
        self.start, self.end = _special_tokens(self._inner)

    @classmethod
    def learned(cls, captions: Iterable[str], vocabulary: int = 4096) -> "Tokenizer":
        """Learn a tokenizer of at most `vocabulary` tokens on these captions, in lower case."""
        if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < SMALLEST:
            expected = f"a whole number >= {SMALLEST}, since every byte is a token"
            raise DataError(f"vocabulary must be {expected}, got {vocabulary}")
        library = needed("tokenizers", "text", "captions")
        inner = library.Tokenizer(library.models.BPE())
        inner.normalizer = library.normalizers.Sequence([library.normalizers.NFC(), library.normalizers.Lowercase()])
        inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        inner.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        # Sorted, with repetitions, so that the result does not depend on the order of the items.
        inner.train_from_iterator(sorted(captions), trainer)
        return cls(inner.to_str())

    @property
    def vocabulary(self) -> int:
        return 1 + int(max(self._inner.get_vocab().values()))  # a file may leave out numbers

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Return tokens (n, t) int64, t at most `length`; a text that is too long is cut before its end token."""
        return self.encode_counting(texts, length)[0]

    def encode_counting(self, texts: Sequence[str], length: int) -> tuple[Tensor, int]:
        """Return the same tokens as `encode`, and how many texts were truncated."""
        texts = [text.encode(errors="replace").decode() for text in texts]  # lone surrogates cannot be encoded
        # A caption may spell the name of a special token, such as <end>; that token is removed.
        encoded = [encoding.ids for encoding in self._inner.encode_batch(texts, add_special_tokens=False)]
        texts_only = [self._without_special(ids) for ids in encoded]
        return self.padded(texts_only, length), sum(len(ids) > length - 2 for ids in texts_only)

    def padded(self, texts: Sequence[Sequence[int]], length: int) -> Tensor:
        """Return the tokens of texts between start and end, padded: (n, t) int64, t at most `length`."""
        rows = [[self.start, *ids[: length - 2], self.end] for ids in texts]
        tokens = torch.full((len(rows), max(map(len, rows), default=0)), PADDING, dtype=torch.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return tokens

    def words(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """Return for each text its words, and for each word its tokens.

        Where there are no spaces, as in Chinese, what looks like a long word are several: each token counts as one.
        """
        words: list[list[list[int]]] = []
        texts = [text.encode(errors="replace").decode() for text in texts]  # lone surrogates cannot be encoded
        for encoding in self._inner.encode_batch(texts, add_special_tokens=False):
            of_text: dict[int, list[int]] = {}
            for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
                of_text.setdefault(word, []).append(token)
            words.append([part for ids in of_text.values() for part in _parts(self._without_special(ids))])
        return words

    def decode(self, tokens: Tensor) -> str:
        return str(self._inner.decode(self._without_special(tokens.tolist()))).strip()

    def _without_special(self, ids: list[int]) -> list[int]:
        special = (PADDING, self.start, self.end)
        return [token for token in ids if token not in special]


def _parts(word: list[int]) -> list[list[int]]:
    """Return a word of these tokens, or its tokens one by one if it is very long; nothing if there are none."""
    return [[token] for token in word] if len(word) > LONGEST_WORD else [word] if word else []


def _special_tokens(inner: Any) -> tuple[int, int]:
    """Return the ids of start and end; padding must be 0, so that padding a batch takes no tokenizer."""
    for names in (SPECIAL, BERTS):
        padding, start, end = map(inner.token_to_id, names)
        if padding == PADDING and start is not None and end is not None:
            return start, end
    vocabulary = inner.get_vocab()
    got = ", ".join(f"{name} as {vocabulary[name]}" for name in (*SPECIAL, *BERTS) if name in vocabulary)
    expected = f"{', '.join(SPECIAL)} or {', '.join(BERTS)}, the first of them as 0"
    raise DataError(f"a tokenizer must have the special tokens {expected}, got {got or 'none of them'}")


def trimmed(tokens: Tensor) -> Tensor:
    """Return tokens (n, t) without the last columns that hold only padding."""
    return tokens[:, : int((tokens != PADDING).sum(dim=1).max())]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return the rows of several batches as one; tokens are padded to the longest of them."""
    if parts[0].is_floating_point():
        return torch.cat(list(parts))
    widest = max(part.shape[1] for part in parts)
    return torch.cat([nn.functional.pad(part, (0, widest - part.shape[1]), value=PADDING) for part in parts])
