"""Intervals at 95 % for shares of items, and for the difference of two shares.

An accuracy on m items is an estimate. Wilson's interval (1927) says where the accuracy on all such items may lie. It
stays inside 0 to 1 and holds for few items too, unlike ± two standard errors.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.low:.3f}–{self.high:.3f}"


def wilson(share: float, count: float) -> Interval:
    """Return Wilson's interval for a share that was measured on `count` independent items."""
    if not 0 <= share <= 1 or not count >= 1:
        raise ValueError(f"share must be in 0 to 1 and count at least 1, got {share:g} and {count:g}")
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    reach = Z / (1 + Z**2 / count) * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def difference(first: float, second: float, count: float, error: float = 0.0) -> Interval:
    """Return the interval of `first` − `second`, two shares of `count` items each (Newcombe, 1998, method 10).

    The shares are taken as independent. Two classifiers of the same items are mostly right on the same ones, so the
    true interval is narrower, and a difference outside this one is real. `error` is the standard error that the
    difference has besides the choice of the items, such as that of drawing the labels.
    """
    one, other = wilson(first, count), wilson(second, count)
    below = math.hypot(first - one.low, other.high - second, Z * error)
    above = math.hypot(one.high - first, second - other.low, Z * error)
    return Interval(max(-1.0, first - second - below), min(1.0, first - second + above))


def chance(train_labels: Tensor, test_labels: Tensor) -> float:
    """Return the accuracy of always giving the same answer: the share of the test items' most frequent class.

    Only classes that occur in training can be guessed; items with label −1 are left out.
    """
    test = test_labels[test_labels >= 0]
    counts = torch.unique(test[torch.isin(test, train_labels)], return_counts=True)[1]
    return int(counts.max()) / len(test) if len(counts) else 0.0
