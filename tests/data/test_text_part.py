"""Texts as a part of items: bytes in memory, strings outside."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.data.text_part import NO_BYTE, TextPart
from likewise.views.texts import strings

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=12)


@given(texts)
def test_texts_come_back_as_they_were_given(given_texts):
    part, rows = TextPart.of(given_texts), np.arange(len(given_texts))
    assert len(part) == len(given_texts)
    assert part.texts(rows) == given_texts
    assert strings(torch.from_numpy(part[rows])) == given_texts


def test_a_text_is_padded_with_a_byte_that_utf_8_does_not_have():
    rows = TextPart.of(["ab", "é", ""])[np.array([2, 1, 0])]
    assert rows.tolist() == [[NO_BYTE, NO_BYTE], [0xC3, 0xA9], [0x61, 0x62]]


@given(texts)
def test_pieces_hold_every_text_once(given_texts):
    part = TextPart.of(given_texts)
    rows = np.arange(len(given_texts))[::-1].copy()
    found = {}
    for piece in part.pieces(rows):
        found |= dict(zip(piece.places.tolist(), strings(torch.from_numpy(piece.data)), strict=True))
    assert [found[place] for place in range(len(rows))] == given_texts[::-1]


def test_equal_texts_have_equal_digests_wherever_they_are():
    one, other = TextPart.of(["a dog", "a cat"]), TextPart.of(["", "a cat", "a dog"])
    assert one.digests(np.array([0, 1])).tolist() == other.digests(np.array([2, 1])).tolist()
    assert len(set(other.digests(np.arange(3)).tolist())) == 3
