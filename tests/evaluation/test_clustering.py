"""k-means against labels: perfect where classes are apart, chance where there is nothing."""

import pytest
import torch
from torch.nn.functional import normalize

from likewise.evaluation.clustering import clustering


def test_classes_that_lie_apart_are_found():
    labels = torch.arange(60) % 3
    rows = torch.eye(3)[labels] + 0.01 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    found = clustering(rows, labels)
    assert (found.nmi, found.ari, found.clusters, found.items) == (pytest.approx(1), pytest.approx(1), 3, 60)


def test_noise_agrees_with_nothing():
    rng = torch.Generator().manual_seed(0)
    found = clustering(torch.randn(600, 5, generator=rng), torch.randint(4, (600,), generator=rng))
    assert abs(found.ari) < 0.05


def test_lengths_do_not_matter_and_the_same_again():
    rng = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(80, 5, generator=rng, dtype=torch.float64), torch.arange(80) % 4
    assert clustering(rows, labels) == clustering(normalize(rows, dim=1), labels)


def test_one_class_only_and_items_without_a_label():
    rows = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    assert clustering(rows, torch.zeros(10, dtype=torch.int64)).clusters == 1
    some = torch.tensor([0, 1, -1, 0, 1, 0, 1, -1, 0, 1])
    assert clustering(rows, some).items == 8
