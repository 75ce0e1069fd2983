"""Tokenize text by byte-level BPE (Sennrich et al., 2016), learned on the captions of a run and saved with it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from likewise.data.builtin import needed
from likewise.data.items import DataError

PADDING, START, END = 0, 1, 2  # special tokens
SPECIAL = ("<padding>", "<start>", "<end>")  # their names, in this order
SMALLEST = len(SPECIAL) + 256  # every byte is a token, so that any text can be encoded


class Tokenizer:
    """Convert text in any language to tokens; once learned, the same text always gives the same tokens."""

    def __init__(self, text: str) -> None:
        self.text = text  # its whole state, as JSON
        library = needed("tokenizers", "text", "captions")
        try:
            self._inner = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises no more specific type
            raise DataError(f"a tokenizer must be JSON as the tokenizers library writes it, got: {error}") from None

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
        return int(self._inner.get_vocab_size())

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Return tokens (n, t) int64, t at most `length`; a text that is too long is cut before its end token."""
        return self.encode_counting(texts, length)[0]

    def encode_counting(self, texts: Sequence[str], length: int) -> tuple[Tensor, int]:
        """Return the same tokens as `encode`, and how many texts were truncated."""
        texts = [text.encode(errors="replace").decode() for text in texts]  # lone surrogates cannot be encoded
        # A caption may spell the name of a special token, such as <end>; that token is removed.
        encoded = [encoding.ids for encoding in self._inner.encode_batch(texts, add_special_tokens=False)]
        texts_only = [[token for token in ids if token > END] for ids in encoded]
        rows = [[START, *ids[: length - 2], END] for ids in texts_only]
        tokens = torch.full((len(rows), max(map(len, rows), default=0)), PADDING, dtype=torch.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return tokens, sum(len(ids) > length - 2 for ids in texts_only)

    def decode(self, tokens: Tensor) -> str:
        return str(self._inner.decode([token for token in tokens.tolist() if token > END])).strip()


def trimmed(tokens: Tensor) -> Tensor:
    """Return tokens (n, t) without the last columns that hold only padding."""
    return tokens[:, : int((tokens != PADDING).sum(dim=1).max())]
