"""Prepare texts as tokens, and augment them: take a span of each, and leave out some of its words.

Taking spans: Giorgi et al., 2021 (DeCLUTR). The preset "dropout" changes nothing: the dropout of the encoder makes the
two views of a text differ (Gao et al., 2021, SimCSE).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.data.text_part import NO_BYTE
from likewise.data.tokens import Tokenizer
from likewise.views.augmentation import Draws, check_draws

WORDS_DRAWN = 256  # random numbers per text; those of a longer text repeat


@dataclass(frozen=True)
class TextViews:
    """Map texts as bytes (n, b) uint8 to tokens (n, t) int64, t at most `length`.

    A view is a random span of whole words, whose share of the text is drawn from [`shortest`, 1]. Each of its words is
    left out with probability `left_out`; one word at least is kept.
    """

    tokenizer: Tokenizer
    length: int
    shortest: float = 1.0
    left_out: float = 0.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def changes(self) -> bool:
        return self.shortest < 1 or self.left_out > 0

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        share = torch.rand(n, generator=rng, dtype=torch.float64) * (1 - self.shortest) + self.shortest
        start = torch.rand(n, generator=rng, dtype=torch.float64)
        return Draws({"share": share, "start": start, "words": torch.rand(n, WORDS_DRAWN, generator=rng)})

    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Return the tokens of random views of texts, on their device."""
        check_draws("texts", items, draws)
        if not self.changes:
            return self.plain(items)
        shares, starts = draws.values["share"].tolist(), draws.values["start"].tolist()
        is_kept = (draws.values["words"] >= self.left_out).tolist()
        words = self.tokenizer.words(strings(items))
        views = [
            [token for word in self._view(each, share, start, kept) for token in word]
            for each, share, start, kept in zip(words, shares, starts, is_kept, strict=True)
        ]
        return self.tokenizer.padded(views, self.length).to(items.device)

    def _view(self, words: list[list[int]], share: float, start: float, is_kept: list[bool]) -> list[list[int]]:
        count = max(1, round(share * len(words)))
        first = int(start * (len(words) - count + 1))
        span = words[first : first + count]
        kept = [word for place, word in enumerate(span, first) if is_kept[place % WORDS_DRAWN]]
        return kept or span[:1]

    def plain(self, items: Tensor) -> Tensor:
        """Return the tokens of texts, on their device."""
        return self.tokenizer.encode(strings(items), self.length).to(items.device)


def strings(items: Tensor) -> list[str]:
    """Return texts that come as bytes (n, b) uint8, NO_BYTE after the end of each, as strings."""
    if items.ndim != 2 or items.dtype is not torch.uint8:
        raise ValueError(f"texts must be bytes (n, b) of torch.uint8, got {items.dtype} of {tuple(items.shape)}")
    return [row.tobytes().rstrip(bytes([NO_BYTE])).decode() for row in items.cpu().numpy()]


PRESETS: dict[str, Callable[[Tokenizer, int], TextViews]] = {
    "text": lambda tokenizer, length: TextViews(tokenizer, length, shortest=0.5, left_out=0.2),
    "dropout": TextViews,
}
