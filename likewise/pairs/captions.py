"""An image and its caption are a pair: the pretext task of CLIP (Radford et al., 2021).

An item's key is one of its captions, drawn anew each step. Items of the same caption, and images of the same
group (an item drawn by several hands), are not each other's negatives: the ids are (group or item, caption).
"""

import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from likewise.data.items import Captions as Texts
from likewise.data.tokens import trimmed


class Captions:
    """`captions` of each item, all of them as `tokens` (captions, t), and `groups` (items,) where there are any."""

    columns = 2

    def __init__(self, captions: Texts, tokens: Tensor, groups: Tensor | None = None) -> None:
        counts = torch.tensor([len(texts) for texts in captions])
        if not len(counts) or counts.min() < 1:
            raise ValueError("captions must have one or more texts of each item, got an item without")
        if len(tokens) != counts.sum():
            raise ValueError(f"tokens must have one row a caption, {int(counts.sum())}, got {len(tokens)}")
        self.tokens = tokens
        self._count = counts
        self._first = counts.cumsum(dim=0) - counts
        self._owner = torch.arange(len(counts)) if groups is None else groups.long()
        if len(self._owner) != len(counts):
            raise ValueError(f"groups must have one entry an item, {len(counts)}, got {len(self._owner)}")
        # By their tokens: captions that differ only in case, or behind the longest that is read, are one.
        different, self._text = torch.unique(tokens, dim=0, return_inverse=True)
        self.distinct = len(different) == len(tokens) and len(set(self._owner.tolist())) == len(counts)

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        """One caption of each item, as its row among the tokens."""
        shares = torch.rand(len(items), generator=rng, dtype=torch.float64)
        count = self._count[items]
        return self._first[items] + (shares * count).long().minimum(count - 1)

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        """(group or item, caption) of each, (n, 2)."""
        return torch.stack([self._owner[items], self._text[partners]], dim=1)

    def read(self, partners: Tensor) -> Tensor:
        """Tokens (n, t) of these captions, as long as the longest."""
        return trimmed(self.tokens[partners])


def flat(captions: Sequence[Sequence[str]]) -> list[str]:
    """All captions, item by item."""
    return [text for texts in captions for text in texts]


def matches(captions: Sequence[Sequence[str]]) -> tuple[list[str], Tensor]:
    """Every caption once, and the pairs (p, 2) of an item and a caption that it has."""
    known: dict[str, tuple[int, str]] = {}
    pairs = {
        (item, known.setdefault(_said(text), (len(known), text))[0])
        for item, texts in enumerate(captions)
        for text in texts
    }
    return [text for _, text in known.values()], torch.tensor(sorted(pairs))


def _said(text: str) -> str:
    """Tokens are composed and of lower case, so texts that differ in nothing else are one caption."""
    return unicodedata.normalize("NFC", text).lower()
