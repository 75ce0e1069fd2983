"""A draw belongs to its seed, its purpose and its step, and to nothing else."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.randomness import generator, number

SEEDS = st.integers(-(2**63), 2**64)
STEPS = st.integers(0, 2**40)


def drawn(*of):
    return torch.rand(8, generator=generator(*of)).tolist()


def test_the_same_seed_purpose_and_step_draw_the_same():
    assert drawn(3, "noise", 17) == drawn(3, "noise", 17)
    assert drawn(3, "noise") == drawn(3, "noise", 0), "a draw that happens once is that of step 0"


@pytest.mark.parametrize("other", [(4, "noise", 17), (3, "order", 17), (3, "noise", 18)])
def test_another_seed_purpose_or_step_draws_something_else(other):
    assert drawn(3, "noise", 17) != drawn(*other)


def test_nothing_else_changes_a_draw_and_a_draw_changes_nothing_else():
    before = drawn(0, "order", 5)
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    state = torch.get_rng_state()
    generator(0, "order", 4)
    drawn(0, "views", 5)
    assert drawn(0, "order", 5) == before
    assert torch.equal(torch.get_rng_state(), state), "the global generator was not touched"


def test_each_call_begins_anew():
    one = generator(0, "order", 0)
    torch.rand(100, generator=one)
    assert torch.rand(3, generator=generator(0, "order", 0)).tolist() != torch.rand(3, generator=one).tolist()


@given(a=st.tuples(SEEDS, st.text(max_size=6), STEPS), b=st.tuples(SEEDS, st.text(max_size=6), STEPS))
def test_different_draws_have_different_numbers_that_every_generator_takes(a, b):
    assert (number(*a) == number(*b)) == (a == b)
    assert 0 <= number(*a) < 2**63
    generator(*a)


def test_slashes_in_a_purpose_confuse_nobody():
    """The three are joined by slashes: 1, "2/x", 3 must not be 1/2, "x", 3 or any other."""
    assert len({number(1, "2/x", 3), number(1, "x", 3), number(2, "x", 3), number(1, "2", 3), number(12, "x", 3)}) == 5


def test_numbers_stay_what_they_were():
    """A checkpoint holds no random state: a version that drew otherwise could not resume what this one began."""
    assert number(0, "order", 0) == 3471081512423777433
    assert generator(0, "order", 0).device.type == "cpu"
