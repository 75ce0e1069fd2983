"""The nearest neighbours are those of a whole matrix, sorted; no tile, group or size changes them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from likewise.evaluation import neighbours
from likewise.evaluation.neighbours import largest, nearest


def rows(n, dim=6, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60)
@given(m=st.integers(1, 5), n=st.integers(1, 400), k=st.integers(1, 30), seed=st.integers(0, 99))
def test_two_short_sorts_find_what_one_long_one_does(m, n, k, seed):
    scores, k = rows(m, n, seed), min(k, n)
    values, places = largest(scores, k)
    expected = scores.topk(k, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def test_many_equal_scores_are_each_found_once():
    scores = torch.zeros(2, 300)
    values, places = largest(scores, 10)
    assert torch.equal(values, torch.zeros(2, 10))
    assert all(len(set(row)) == 10 for row in places.tolist())


@pytest.mark.parametrize("at_once", [1, 150, 2**22])
def test_neighbours_are_sorted_by_cosine_whatever_the_tile(monkeypatch, at_once):
    monkeypatch.setattr(neighbours, "SCORES_AT_ONCE", at_once)
    queries, among = rows(13), rows(50, seed=1) * torch.linspace(0.1, 9, 50, dtype=torch.float64)[:, None]
    expected = (normalize(queries, dim=1) @ normalize(among, dim=1).T).sort(dim=1, descending=True)
    seen = 0
    for part, similarity, places in nearest(queries, among, 7):
        torch.testing.assert_close(similarity, expected.values[part, :7])
        assert torch.equal(places, expected.indices[part, :7])
        seen += len(places)
    assert seen == 13


def test_a_query_that_is_among_them_is_not_its_own_neighbour():
    among = rows(20)
    own = torch.tensor([3, 19, 0])
    ((_, similarity, places),) = nearest(among[own], among, 50, own=own)
    assert places.shape == (3, 19)
    assert similarity.isfinite().all()
    assert all(mine not in row for mine, row in zip(own.tolist(), places.tolist(), strict=True))
