"""Two small cells of the study: the bound is one, it saturates, and a trained critic nearly reaches the best."""

import math

import pytest

from studies.mutual_information import correlation, measure_cell


@pytest.fixture(scope="module", params=[(1.0, 64), (8.0, 16)], ids=["one nat among 64", "eight nats among 16"])
def cell(request):
    information, candidates = request.param
    return measure_cell(information, candidates, steps=1000, lr=0.01, pairs=2**14)


def test_the_bound_is_not_above_the_truth(cell):
    assert cell.bound <= cell.information + 3 * cell.error


def test_the_bound_is_not_above_the_logarithm_of_the_candidates(cell):
    assert cell.bound <= math.log(cell.candidates) + 3 * cell.error


def test_a_trained_critic_comes_near_to_the_true_density_ratio(cell):
    assert cell.bound == pytest.approx(cell.best, rel=0.1)
    assert cell.faults() == []


@pytest.mark.parametrize("cell", [(8.0, 16)], indirect=True)
def test_the_bound_saturates_at_the_logarithm_of_the_candidates(cell):
    assert 0.95 * math.log(16) < cell.bound < cell.information / 2


def test_the_correlation_has_the_information_that_was_asked_for():
    assert -10 * math.log(1 - correlation(3.0) ** 2) == pytest.approx(3.0)
