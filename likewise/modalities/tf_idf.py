"""Compute TF-IDF, the baseline for encoders of text: how often a text has each word, rare words counting more."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

NUMBERS = 2**28  # of a matrix of features, at most, so that it fits in memory
# Chinese and Japanese write words without spaces; there each letter counts.
WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"
MOST_WORDS, FEWEST_WORDS = 8192, 256


class TfIdf:
    """Map texts to unit rows; the words, the most frequent ones, and their weights are those of `train`."""

    def __init__(self, train: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second, which other data need not wait

        most = int(np.clip(NUMBERS // max(1, len(train)), FEWEST_WORDS, MOST_WORDS))
        self.vectorizer = TfidfVectorizer(sublinear_tf=True, max_features=most, dtype=np.float32, token_pattern=WORD)
        self.has_words = any(re.search(WORD, text) for text in train)
        if self.has_words:
            self.vectorizer.fit(train)

    def rows(self, texts: Sequence[str]) -> Tensor:
        """Return (n, words)."""
        if not self.has_words:  # they may be emoji
            return torch.zeros(len(texts), 1)
        return torch.from_numpy(self.vectorizer.transform(texts).toarray())
