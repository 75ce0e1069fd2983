"""Words as numbers: byte-level BPE (Sennrich et al., 2016), learned on the captions of a run and saved with it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from likewise.data.builtin import needed
from likewise.data.items import DataError

PADDING, START, END = 0, 1, 2  # tokens that are no text
SPECIAL = ("<padding>", "<start>", "<end>")  # their names, in this order
SMALLEST = len(SPECIAL) + 256  # tokens: every byte is one, so that no text is unknown


class Tokenizer:
    """Text in any language and script to tokens; the same text gives the same tokens ever after."""

    def __init__(self, text: str) -> None:
        self.text = text  # its whole state, as JSON
        library = needed("tokenizers", "text", "captions")
        try:
            self._inner = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more special
            raise DataError(f"a tokenizer must be JSON as the tokenizers library writes it, got: {error}") from None

    @classmethod
    def learned(cls, captions: Iterable[str], vocabulary: int = 4096) -> "Tokenizer":
        """On these captions, in lower case: at most so many tokens."""
        if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < SMALLEST:
            raise DataError(f"vocabulary must be a whole number >= {SMALLEST}, every byte being one, got {vocabulary}")
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
        # Sorted, and each once for each time it occurs: the order in which items lie says nothing.
        inner.train_from_iterator(sorted(captions), trainer)
        return cls(inner.to_str())

    @property
    def vocabulary(self) -> int:
        return int(self._inner.get_vocab_size())

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Return tokens (n, t) int64, t at most `length`; a text that is too long is cut, and still has its end."""
        return self.encode_counting(texts, length)[0]

    def encode_counting(self, texts: Sequence[str], length: int) -> tuple[Tensor, int]:
        """Return the same tokens, and how many texts were cut."""
        texts = [text.encode(errors="replace").decode() for text in texts]  # half a surrogate is no text
        # A caption that spells the name of a token that is no text must not end there: the name is left out.
        found = [words.ids for words in self._inner.encode_batch(texts, add_special_tokens=False)]
        texts_only = [[token for token in ids if token > END] for ids in found]
        rows = [[START, *ids[: length - 2], END] for ids in texts_only]
        tokens = torch.full((len(rows), max(map(len, rows), default=0)), PADDING, dtype=torch.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return tokens, sum(len(ids) > length - 2 for ids in texts_only)

    def decode(self, tokens: Tensor) -> str:
        return str(self._inner.decode([token for token in tokens.tolist() if token > END])).strip()


def trimmed(tokens: Tensor) -> Tensor:
    """Tokens (n, t) without the columns that only pad."""
    return tokens[:, : int((tokens != PADDING).sum(dim=1).max())]
