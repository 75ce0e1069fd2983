"""Words of captions in any language, and those of a question that no caption had."""

import pytest

from likewise.data.words import all_words, unseen_words, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A small RED star, on black.", ["a", "small", "red", "star", "on", "black"]),
        ("red-green: don't!", ["red", "green", "don", "t"]),
        ("Ünïcode ÉTÉ 42", ["ünïcode", "été", "42"]),
        ("e\u0301te\u0301", ["été"]),  # the accents as marks of their own
        ("红色的星", ["红", "色", "的", "星"]),
        ("star ★ と星", ["star", "と", "星"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("\ud800 half", ["half"]),
        ("  …  ", []),
        ("", []),
    ],
)
def test_words_are_letters_marks_and_numbers(text, words):
    assert words_of(text) == words


def test_captions_have_each_word_once():
    assert all_words(["a red star", "A star on red"]) == ["a", "on", "red", "star"]


def test_the_words_that_no_caption_had_are_named_once_and_in_order():
    known = frozenset(all_words(["a red star", "红色的星"]))
    assert unseen_words("zzz red QQQ star zzz", known) == ["zzz", "qqq"]
    assert unseen_words("星色", known) == []
    assert unseen_words("蓝色", known) == ["蓝"]
