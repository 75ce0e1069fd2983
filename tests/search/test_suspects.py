"""Suspects are those of a loop that counts votes; swapped labels are found, and items without a label count nowhere."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.search import Index, SearchError, Suspect, suspects
from tests.search import slow
from tests.search.clouds import clouds

module = sys.modules["likewise.search.suspects"]  # the name is also its function's


def check(found, expected):
    assert [(s.place, s.suggested) for s in found] == [(place, suggested) for _, place, suggested, _, _ in expected]
    assert [(s.share, s.own) for s in found] == [pytest.approx(row[3:], abs=1e-9) for row in expected]


@settings(max_examples=50)
@given(st.integers(4, 40), st.integers(1, 50), st.integers(1, 45), st.integers(0, 999), st.booleans())
def test_they_are_those_of_a_loop(count, n, k, seed, some_without):
    index = Index.build(clouds(count, 4, 3, seed=seed), belongs_to="")
    labels = np.random.default_rng(seed).integers(-1 if some_without else 0, 4, size=count)
    labels[:2] = 0
    check(suspects(index, labels, n, k), slow.suspects(index.vectors, labels.tolist(), n, k))


@pytest.fixture(scope="module")
def truth():
    return np.random.default_rng(0).integers(5, size=4_000)


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def index(request, truth):
    noise = 0.1 * np.random.default_rng(1).standard_normal((4_000, 8))
    return Index.build(np.eye(8)[truth] + noise, request.param, belongs_to="")


@pytest.mark.parametrize("some_without", [False, True])
def test_swapped_labels_are_found(index, truth, some_without, monkeypatch):
    rng = np.random.default_rng(2)
    labels = truth.copy()
    wrong = np.sort(rng.permutation(4_000)[:40])
    labels[wrong] = (labels[wrong] + 1) % 5
    if some_without:
        labels[wrong[:10]] = -1
        labels[rng.permutation(4_000)[:300]] = -1
    wrong = wrong[labels[wrong] >= 0]
    found = suspects(index, labels, 1000)
    assert sorted(suspect.place for suspect in found) == wrong.tolist()
    assert all(suspect.suggested == truth[suspect.place] for suspect in found)
    assert all(suspect.label == labels[suspect.place] for suspect in found)
    monkeypatch.setattr(module, "COMPARED_AT_ONCE", 1000)
    assert suspects(index, labels, 7) == found[:7]


def test_nearer_neighbours_count_more():
    angles = np.radians([0, 2, 50, 52, 90])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    labels = np.array([7, 3, 7, 7, 7])  # of item 0's three nearest one says 3, and it is nearest by far
    first = suspects(rows, labels, 9, 3)
    assert [suspect.place for suspect in first] == [1, 0]
    assert first[0] == Suspect(1, 3, 7, 1.0, 0.0)
    assert (first[1].suggested, first[1].share > 0.97) == (3, True)
    assert first[1].share + first[1].own == pytest.approx(1)


def test_of_two_labels_with_as_many_votes_the_smaller_is_suggested():
    rows = np.array([[1, 0], [1, 0], [1, 0]], dtype=np.float32)
    assert suspects(rows, np.array([1, 9, 4]), 1) == [Suspect(0, 1, 4, 0.5, 0.0)]


@pytest.mark.parametrize("seed", range(10))
def test_as_many_votes_are_as_many_in_whatever_order_they_are_counted(seed):
    rng = np.random.default_rng(seed)
    similarity = np.sort(rng.random(20).astype(np.float32))[::-1].repeat(2)[None]
    voted = rng.permuted(np.tile([3, 5], (20, 1)), axis=1).reshape(1, 40)
    suggested, share, own = module._votes(np.array([5]), voted, similarity, 0.07)
    assert (suggested.tolist(), share.tolist(), own.tolist()) == ([3], [0.5], [0.5])  # 5 stands


def test_where_neighbours_agree_nobody_is_suspect():
    assert suspects(clouds(50, 4, 3), np.zeros(50, dtype=np.int64), 10) == []


@pytest.mark.parametrize(
    ("labels", "n", "k", "temperature", "sentence"),
    [
        ([0, 1], 1, 1, 0.07, "labels must be one whole number for each of 3 items, got int64 (2,)"),
        ([0.0, 1, 2], 1, 1, 0.07, "labels must be one whole number for each of 3 items, got float64 (3,)"),
        ([0, -1, -1], 1, 1, 0.07, "suspects need at least two labelled items, got 1"),
        ([0, 1, 1], 0, 1, 0.07, "n and k must be at least 1, temperature positive, got 0, 1 and 0.07"),
        ([0, 1, 1], 1, 0, 0.07, "n and k must be at least 1, temperature positive, got 1, 0 and 0.07"),
        ([0, 1, 1], 1, 1, 0.0, "n and k must be at least 1, temperature positive, got 1, 1 and 0"),
    ],
)
def test_what_cannot_be_asked(labels, n, k, temperature, sentence):
    with pytest.raises(SearchError) as error:
        suspects(clouds(3, 2, 1), np.array(labels), n, k, temperature=temperature)
    assert str(error.value) == sentence
