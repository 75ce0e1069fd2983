"""The schedules in closed form, and what they refuse."""

import math

import pytest

from likewise.training.schedule import factor, momentum_at


def every(total, **settings):
    return [factor(step, total, **settings) for step in range(total)]


def test_cosine_falls_from_one_through_a_half_towards_zero():
    values = every(100, schedule="cosine")
    assert values[0] == 1.0
    assert values[50] == pytest.approx(0.5, abs=1e-15)
    assert values[99] == pytest.approx(math.sin(math.pi / 200) ** 2)
    assert values == sorted(values, reverse=True)
    assert sum(values) / 100 == pytest.approx(0.5, abs=0.01)


def test_constant_is_one():
    assert every(7, schedule="constant") == [1.0] * 7


@pytest.mark.parametrize("total", [5, 10, 35, 200, 1000])
def test_step_drops_tenfold_at_60_and_80_percent(total):
    """MoCo v1: of 200 epochs, at 120 and 160."""
    values = every(total, schedule="step")
    assert values == [1.0] * (total * 3 // 5) + [0.1] * (total // 5) + [0.01] * (total // 5)


@pytest.mark.parametrize("schedule", ["cosine", "constant", "step"])
def test_warmup_is_a_straight_line_that_does_not_start_at_zero(schedule):
    values = every(40, schedule=schedule, warmup=0.25)
    assert values[:10] == [(step + 1) / 10 for step in range(10)]
    assert values[10] == 1.0


def test_cosine_after_warmup_is_a_whole_cosine_over_the_rest():
    assert every(40, schedule="cosine", warmup=0.25)[10:] == every(30, schedule="cosine")


def test_warmup_all_the_way():
    assert every(4, schedule="cosine", warmup=1.0) == [0.25, 0.5, 0.75, 1.0]
    assert every(1, schedule="cosine", warmup=1) == [1.0]


def test_momentum_stays_or_rises_to_one():
    assert [momentum_at(step, 5, 0.99, "constant") for step in range(5)] == [0.99] * 5
    rising = [momentum_at(step, 1000, 0.99, "cosine") for step in range(1000)]
    assert rising[0] == 0.99
    assert rising[500] == pytest.approx(0.995, abs=1e-15)
    assert rising == sorted(rising)
    assert 1 - 1e-7 < rising[-1] < 1


CASES = {
    "schedule must be one of cosine, constant, step; got 'cosin'": lambda: factor(0, 1, schedule="cosin"),
    "warmup must be between 0 and 1, got 1.5": lambda: factor(0, 1, warmup=1.5),
    "warmup must be between 0 and 1, got nan": lambda: factor(0, 1, warmup=math.nan),
    "warmup must be a number, got '5%'": lambda: factor(0, 1, warmup="5%"),
    "step must be below total, got 3 of 3": lambda: factor(3, 3),
    "step must be a whole number >= 0, got -1": lambda: factor(-1, 3),
    "total must be a whole number >= 1, got 0": lambda: factor(0, 0),
    "total must be a whole number >= 1, got 2.0": lambda: momentum_at(0, 2.0, 0.9),
    "momentum must be between 0 and 1, got -0.1": lambda: momentum_at(0, 1, -0.1),
    "momentum schedule must be one of constant, cosine; got 'step'": lambda: momentum_at(0, 1, 0.9, "step"),
}


@pytest.mark.parametrize("sentence", CASES)
def test_bad_input_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
