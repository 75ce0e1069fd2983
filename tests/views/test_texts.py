"""Augmentations of texts: spans of whole words, words left out, and nothing at all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.data.text_part import TextPart
from likewise.data.tokens import END, PADDING, START, Tokenizer
from likewise.randomness import generator
from likewise.views.texts import PRESETS, TextViews, strings

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "one",
    "a library that learns which of your texts are alike, without any labels",
    "Ein Mädchen läuft über die Straße",
    "",
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learned(TEXTS * 3, 400)


def rows(texts):
    return torch.from_numpy(TextPart.of(texts)[np.arange(len(texts))])


def words_of(tokenizer, view):
    return tokenizer.decode(view).split()


def test_without_changes_a_view_is_the_text(tokenizer):
    views = TextViews(tokenizer, 64)
    plain = views.plain(rows(TEXTS))
    assert torch.equal(plain, tokenizer.encode(TEXTS, 64))
    assert torch.equal(views.apply(rows(TEXTS), views.draw(len(TEXTS), generator(0, "view"))), plain)


@given(st.integers(0, 50))
def test_a_span_is_consecutive_words_of_the_text_and_as_long_as_asked_for(tokenizer, seed):
    views = TextViews(tokenizer, 64, shortest=0.5)
    draws = views.draw(len(TEXTS), generator(seed, "view"))
    for text, view in zip(TEXTS, views.apply(rows(TEXTS), draws), strict=True):
        all_words = words_of(tokenizer, tokenizer.encode([text], 64)[0])
        span = words_of(tokenizer, view)
        assert len(span) >= len(all_words) // 2
        assert " ".join(span) in " ".join(all_words)


@given(st.integers(0, 50))
def test_words_left_out_are_whole_and_the_others_keep_their_order(tokenizer, seed):
    views = TextViews(tokenizer, 64, left_out=0.5)
    draws = views.draw(len(TEXTS), generator(seed, "view"))
    for text, view in zip(TEXTS, views.apply(rows(TEXTS), draws), strict=True):
        left = iter(tokenizer.words([text])[0])
        kept = [token for token in view.tolist() if token not in (PADDING, START, END)]
        while kept:
            word = next(left)
            if kept[: len(word)] == word:
                kept = kept[len(word) :]


def test_at_least_one_word_is_kept(tokenizer):
    views = TextViews(tokenizer, 64, shortest=0.01, left_out=0.99)
    for seed in range(20):
        views_of_texts = views.apply(rows(TEXTS[:4]), views.draw(4, generator(seed, "view")))
        assert (views_of_texts[:, 1] > END).all()


def test_a_view_has_at_most_as_many_tokens_as_the_encoder_reads(tokenizer):
    views = TextViews(tokenizer, 7, shortest=0.9)
    applied = views.apply(rows(TEXTS), views.draw(len(TEXTS), generator(0, "view")))
    assert applied.shape[1] == 7
    assert ((applied == END).sum(dim=1) == 1).all()


def test_a_rank_that_applies_its_rows_makes_the_same_views(tokenizer):
    views = PRESETS["text"](tokenizer, 64)
    draws = views.draw(len(TEXTS), generator(3, "view"))
    whole = views.apply(rows(TEXTS), draws)
    part = views.apply(rows(TEXTS[1:4]), draws.rows(slice(1, 4)))
    assert torch.equal(whole[1:4, : part.shape[1]], part)
    assert (whole[1:4, part.shape[1] :] == PADDING).all()


def test_two_draws_differ(tokenizer):
    views = PRESETS["text"](tokenizer, 64)
    one, other = (views.apply(rows(TEXTS), views.draw(5, generator(0, side))) for side in ("first", "second"))
    assert one.shape != other.shape or not torch.equal(one, other)


def test_a_text_without_spaces_is_many_words():
    text = "今天天气很好我们去公园散步"
    tokenizer = Tokenizer.learned(["今天", "天气", "公园", "hello"], 300)
    assert len(tokenizer.words([text])[0]) > 6
    views = PRESETS["text"](tokenizer, 64)
    one, other = (views.apply(rows([text]), views.draw(1, generator(0, side))) for side in ("first", "second"))
    assert not torch.equal(one, other)


def test_rows_that_are_no_bytes_are_refused():
    with pytest.raises(
        ValueError, match=r"^texts must be bytes \(n, b\) of torch.uint8, got torch.float32 of \(2, 3\)$"
    ):
        strings(torch.zeros(2, 3))
