"""What is known of items is found by their digests."""

import numpy as np
import pytest

from likewise.data.parts import DIGEST
from likewise.encoders.known import NOTHING, Known


def digests(*names):
    return np.array(names, dtype=DIGEST)


def known(*names):
    return Known(digests(*names), np.arange(len(names), dtype=np.float32)[:, None])


def test_places_of_known_and_unknown_items():
    asked = digests(b"c", b"x", b"a", b"a", b"")
    assert known(b"b", b"a", b"c").places(asked).tolist() == [2, -1, 1, 1, -1]
    assert NOTHING.places(asked).tolist() == [-1] * 5


def test_zeros_within_and_after_a_digest_count():
    asked = digests(b"a\0b", b"a", b"\0a")
    assert known(b"a\0c", b"a\0b").places(asked).tolist() == [1, -1, -1]


@pytest.mark.parametrize(
    ("now", "expected"), [(b"abcd", True), (b"abxyz", True), (b"axyz", False), (b"xyz", False), (b"", False)]
)
def test_data_are_an_earlier_state_if_at_least_half_of_their_items_are_still_there(now, expected):
    assert known(b"a", b"b", b"c", b"d").is_earlier_state(digests(*(bytes([each]) for each in now))) is expected


def test_nothing_is_no_earlier_state():
    assert not NOTHING.is_earlier_state(digests(b"a"))
