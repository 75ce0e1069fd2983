"""Groups are those of union-find over the whole matrix, whatever the index; a collapse is one sentence."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.search import Group, Index, SearchError, duplicates, exact
from tests.search import slow
from tests.search.clouds import clouds

module = sys.modules["likewise.search.duplicates"]  # the name is also its function's
SMALL = st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=14)


def plain(groups):
    return [(group.places, group.similarity) for group in groups]


@settings(max_examples=150)
@given(SMALL, st.sampled_from([0.1, 0.5, 0.7, 0.8, 0.95, 1.0]))
def test_groups_are_those_of_union_find(vectors, threshold):
    rows = np.array(vectors, dtype=np.float32)
    index = Index.build(rows, belongs_to="")
    expected = slow.groups(index.vectors, threshold)
    assert plain(duplicates(index, threshold)) == expected
    assert plain(duplicates(rows, threshold)) == expected


@settings(max_examples=30)
@given(st.integers(0, 999), st.floats(0.3, 0.999))
def test_no_tile_changes_a_group(seed, threshold):
    index = Index.build(clouds(60, 5, 9, spread=0.3, seed=seed), belongs_to="")
    expected = slow.groups(index.vectors, threshold)
    for at_once in (1, 100, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "SCORES_AT_ONCE", at_once)
            patch.setattr(exact, "ENTRIES_AT_ONCE", at_once)
            assert plain(duplicates(index, threshold)) == expected


@settings(max_examples=30)
@given(st.integers(0, 999), st.floats(0.3, 0.999), st.integers(1, 20))
def test_asking_for_neighbours_finds_the_same_groups(seed, threshold, first):
    """By an index of few items, which is exact, with copies among them; more neighbours are asked for as needed."""
    rows = clouds(60, 5, 9, spread=0.3, seed=seed)
    rows[40:50] = rows[3]
    index = Index.build(rows, "hnsw", belongs_to="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIRST", first)
        assert plain(duplicates(index, threshold)) == slow.groups(index.vectors, threshold)


@pytest.fixture(scope="module")
def planted():
    """10,000 rows with 300 groups of copies, two to forty, each a little off."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10_000, 16)).astype(np.float32)
    places = rng.permutation(10_000)
    groups, start = [], 0
    for size in [40, *rng.integers(2, 6, size=299)]:
        group = places[start : start + size]
        rows[group] = rows[group[0]] + 0.05 * rng.standard_normal((size, 16))
        groups.append(tuple(sorted(group.tolist())))
        start += size
    return rows, sorted(groups, key=lambda group: (-len(group), group[0]))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfpq"])
def test_planted_copies_are_found_by_every_kind(planted, kind):
    rows, expected = planted
    found = duplicates(Index.build(rows, kind, belongs_to=""), 0.97)
    assert [group.places for group in found] == expected
    assert all(0.97 <= group.similarity < 1 for group in found)


def test_the_order_is_by_size_and_then_by_first_item():
    rows = np.eye(4, dtype=np.float32)[[0, 1, 2, 2, 1, 3, 3, 3]]
    assert duplicates(rows, 0.9) == [Group((5, 6, 7), 1.0), Group((1, 4), 1.0), Group((2, 3), 1.0)]


def test_a_chain_is_one_group_and_its_weakest_link_is_told():
    angles = np.radians([0, 10, 22, 90])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    (group,) = duplicates(rows, 0.97)
    assert group.places == (0, 1, 2)
    assert group.similarity == pytest.approx(np.cos(np.radians(12)), abs=1e-6)  # not that of 0 and 2, no link


def test_the_threshold_itself_is_enough():
    rows = np.array([[1, 0], [0.6, 0.8]], dtype=np.float32)
    cosine = float(slow.cosine(*rows))
    assert duplicates(rows, cosine) == [Group((0, 1), cosine)]
    assert duplicates(rows, np.nextafter(np.float32(cosine), np.float32(1))) == []


def test_identical_rows_cost_next_to_nothing_and_zeros_are_no_copies():
    rows = np.zeros((30_000, 16), dtype=np.float32)
    rows[:25_000] = clouds(1, 16, 1)
    assert plain(duplicates(rows, 1.0)) == [(tuple(range(25_000)), 1.0)]


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_collapsed_encoder_is_one_sentence_in_little_memory(kind, monkeypatch):
    monkeypatch.setattr(module, "LINKS", 20_000)
    monkeypatch.setattr(module, "LINKS_AN_ITEM", 10)
    monkeypatch.setattr(exact, "SCORES_AT_ONCE", 2**16)
    monkeypatch.setattr(exact, "ENTRIES_AT_ONCE", 2**16)
    rows = 1 + 1e-3 * clouds(6000, 8, 1)
    index = Index.build(rows, kind, belongs_to="")
    tracemalloc.start()
    try:
        with pytest.raises(SearchError) as error:
            duplicates(index, 0.9)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(error.value) == (
        "expected at most 60,000 pairs with a cosine of at least 0.9 among 6,000 items, got more: "
        "raise the threshold, or check whether the encoder has collapsed (see docs/guide/reading-a-run.md#collapsed)"
    )
    assert peak < 20 * 2**20  # all pairs: 18 million, twenty bytes each


def test_few_items_may_all_be_alike():
    assert len(duplicates(1 + 1e-3 * clouds(1000, 8, 1), 0.9)[0].places) == 1000


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_that_says_nothing_is_refused(threshold):
    with pytest.raises(SearchError, match=f"^threshold must be above 0 and at most 1, got {threshold:g}$"):
        duplicates(clouds(5, 3, 1), threshold)
