"""Held-out items: a random share, or a random share of whole groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from likewise.data.held_out import groups_apart, has_groups_to_hold_out, items_apart
from likewise.randomness import generator

groups = st.lists(st.integers(-1, 12), min_size=1, max_size=60).map(lambda values: np.array(values, dtype=np.int64))


@given(groups, st.floats(0, 0.9), st.integers(0, 2))
def test_no_group_is_on_both_sides_and_every_item_on_one(group, share, least):
    train, test = groups_apart(group, share, generator(0, "split"), least)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(group)))
    assert not set(group[train][group[train] >= 0]) & set(group[test])


def test_a_share_of_the_groups_is_held_out_and_at_least_as_many_as_asked_for():
    group = np.repeat(np.arange(30), 7)
    _, test = groups_apart(group, 0.1, generator(0, "split"))
    assert len(np.unique(group[test])) == 3
    _, test = groups_apart(group[:35], 0.1, generator(0, "split"), least=1)
    assert len(np.unique(group[test])) == 1


def test_items_without_a_group_are_groups_by_themselves():
    _, test = groups_apart(np.full(40, -1), 0.25, generator(0, "split"))
    assert len(test) == 10


def test_another_seed_holds_out_other_items():
    first, second = (items_apart(100, 0.1, generator(seed, "split"))[1] for seed in (0, 1))
    assert len(first) == len(second) == 10
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("group", "enough"), [(None, False), (np.arange(4), False), (np.arange(5), True)])
def test_whole_groups_are_held_out_where_there_are_at_least_five(group, enough):
    assert has_groups_to_hold_out(group) == enough
