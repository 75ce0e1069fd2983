"""Intervals of shares, against published values and against what they promise."""

import math

import pytest
import torch

from likewise.evaluation.interval import Interval, chance, difference, wilson


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe, 1998, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_is_the_published_one(right, count, low, high):
    found = wilson(right / count, count)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [(9, 3, 0.1705, 0.8090), (10, 0, 0.6075, 1.0)],  # Newcombe, 1998, table II, method 10
)
def test_the_difference_is_the_published_one(first, second, low, high):
    found = difference(first / 10, second / 10, 10)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_an_interval_shrinks_with_more_items_and_holds_the_share():
    widths = [wilson(0.9, count).half_width for count in (1, 8, 100, 10_000)]
    assert widths == sorted(widths, reverse=True)
    for share in (0, 0.3, 1):
        assert wilson(share, 1).low <= share <= wilson(share, 1).high
    assert difference(0.5, 0.5, 100).half_width < difference(0.5, 0.5, 100, error=0.05).half_width


def test_shares_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"^share must be in 0 to 1 and count at least 1, got 1\.5 and 4$"):
        wilson(1.5, 4)
    with pytest.raises(ValueError, match="got nan and 4"):
        wilson(math.nan, 4)
    with pytest.raises(ValueError, match=r"got 0\.5 and 0$"):
        wilson(0.5, 0)


def test_an_interval_in_words():
    assert str(Interval(0.1, 0.98765)) == "0.100–0.988"


def test_chance_is_the_share_of_the_most_frequent_class_that_can_be_known():
    train, test = torch.tensor([0, 0, 1, 2, -1, -1, -1]), torch.tensor([1, 0, 2, 1, -1, -1, -1, -1])
    assert chance(train, test) == 0.5
    assert chance(torch.tensor([0, 2]), test) == 0.25
    assert chance(torch.tensor([3, 3]), test) == 0
