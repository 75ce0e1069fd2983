"""The loneliest are those of a loop over all pairs, whatever the index."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.search import Index, SearchError, outliers, structures
from tests.search import slow
from tests.search.clouds import clouds


def check(found, expected):
    assert [outlier.place for outlier in found] == [place for _, place in expected]
    assert [outlier.similarity for outlier in found] == pytest.approx([mean for mean, _ in expected], abs=1e-12)


@settings(max_examples=60)
@given(st.integers(2, 40), st.integers(1, 50), st.integers(1, 50), st.integers(0, 999))
def test_they_are_those_of_a_loop(count, n, k, seed):
    index = Index.build(clouds(count, 4, 5, seed=seed), belongs_to="")
    check(outliers(index, n, k), slow.outliers(index.vectors, n, k))


def test_of_equally_lonely_ones_the_first_comes_first():
    assert [outlier.place for outlier in outliers(np.eye(4, dtype=np.float32)[[3, 3, 2, 0, 1, 3]], 4, 2)] == [
        2,
        3,
        4,
        0,
    ]


@pytest.mark.parametrize(("kind", "count"), [("hnsw", 4_000), ("ivfpq", 10_000)])
def test_every_kind_finds_the_same_as_flat(kind, count):
    rows = clouds(count, 8, 30, spread=0.3)
    index, flat = (Index.build(rows, name, belongs_to="") for name in (kind, "flat"))
    assert outliers(index, 130, 10) == outliers(flat, 130, 10)


def test_a_neighbour_that_was_missed_makes_nobody_an_outlier(monkeypatch):
    """An index that answers by chance for every seventh item, so that 572 look lonelier than anybody is."""
    rows = clouds(4_000, 8, 30, spread=0.3)
    index, flat = (Index.build(rows, name, belongs_to="") for name in ("hnsw", "flat"))
    expected = outliers(flat, 20, 5)
    found = structures.candidates

    def worse(kind, structure, queries, count):
        places = found(kind, structure, queries, count)
        places[::7] = np.random.default_rng(0).permutation(4_000)[:count]
        return places

    monkeypatch.setattr(structures, "candidates", worse)
    lonely = np.concatenate([similarity.mean(axis=1) for _, similarity, _ in index.neighbours(5)])
    assert not {outlier.place for outlier in expected if outlier.place % 7} & set(np.argsort(lonely)[:500].tolist())
    assert outliers(index, 20, 5) == expected


@pytest.mark.parametrize(("count", "n", "k"), [(1, 1, 1), (5, 0, 1), (5, 1, 0)])
def test_what_cannot_be_asked(count, n, k):
    with pytest.raises(SearchError) as error:
        outliers(clouds(count, 3, 1), n, k)
    assert str(error.value) == (
        f"outliers need at least two items, and n and k at least 1, got {count} items, n {n} and k {k}"
    )
