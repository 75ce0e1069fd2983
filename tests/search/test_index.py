"""Flat finds what a loop over all pairs does, ties included; the others nearly all of it, with the same cosines."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.data import DataError
from likewise.guide import see
from likewise.search import Index, SearchError, exact, structures
from tests.search import slow
from tests.search.clouds import clouds

# Few different numbers: copies, multiples, opposites, zeros and ties between different rows.
SMALL = st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=12)


def rows(values):
    return np.array(values, dtype=np.float32)


def built(vectors, kind="auto"):
    return Index.build(vectors, kind, belongs_to="us")


def assert_found(found, expected):
    similarity, places = found
    assert (similarity.dtype, places.dtype) == (np.float32, np.int64)
    assert places.tolist() == [[place for _, place in row] for row in expected]
    assert similarity.tolist() == [[float(cosine) for cosine, _ in row] for row in expected]


# Flat


@settings(max_examples=150)
@given(SMALL, SMALL, st.integers(1, 15))
def test_flat_is_a_loop_over_all_pairs(vectors, queries, k):
    index = built(rows(vectors))
    assert index.kind == "flat"
    units = exact.unit_rows(rows(queries))
    assert_found(index.search(rows(queries), k), slow.search(index.vectors, units, k))


@settings(max_examples=80)
@given(SMALL, st.integers(1, 15), st.integers(0, 99))
def test_an_excluded_place_is_no_neighbour(vectors, k, seed):
    index = built(rows(vectors))
    own = np.random.default_rng(seed).integers(len(index), size=len(index))
    assert_found(index.search(rows(vectors), k, exclude=own), slow.search(index.vectors, index.vectors, k, own))


@pytest.mark.parametrize("at_once", [1, 700, 2**22])
def test_no_tile_changes_what_is_found(monkeypatch, at_once):
    vectors, queries = clouds(300, 17, 5), clouds(20, 17, 5, seed=1)
    expected = slow.search(exact.unit_rows(vectors), exact.unit_rows(queries), 9)
    monkeypatch.setattr(exact, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(exact, "ENTRIES_AT_ONCE", at_once)
    assert_found(built(vectors).search(queries, 9), expected)


@pytest.mark.parametrize("d", [1, 3, 64, 513])
def test_copies_come_in_their_order_with_a_cosine_of_one(d):
    vectors = np.repeat(clouds(1, d, 1), 1000, axis=0) * np.linspace(0.1, 9, 1000, dtype=np.float32)[:, None]
    vectors = np.concatenate([clouds(50, d, 50, seed=1), np.repeat(vectors[:1], 1000, axis=0)])
    similarity, places = built(vectors).search(vectors[-3:] * 7, 40)
    same = [place for place in range(50) if slow.cosine(vectors[place], vectors[-1]) == 1]  # only where d is 1
    assert places.tolist() == [(same + list(range(50, 1050)))[:40]] * 3
    assert (similarity == 1).all()


@pytest.mark.parametrize("d", [8, 64, 513])
def test_every_item_has_a_cosine_of_one_with_itself(d):
    rows = clouds(500, d, 500)
    similarity, places = built(rows).search(rows * np.float32(3), 1)
    assert (similarity == 1).all()
    assert places[:, 0].tolist() == list(range(500))


def test_rows_of_zeros_have_cosine_zero():
    index = built(rows([[0, 0], [1, 0], [-1, 0], [0, 0]]))
    assert_found(
        index.search(rows([[2, 0], [0, 0]]), 4), [[(1, 1), (0, 0), (0, 3), (-1, 2)], [(0, i) for i in range(4)]]
    )


def test_one_item_and_more_asked_for_than_there_are():
    index = built(rows([[3, 4]]))
    assert_found(index.search(rows([[1, 0]]), 5), [[(np.float32(0.6), 0)]])
    similarity, places = index.search(rows([[1, 0]]), 5, exclude=np.array([0]))
    assert similarity.shape == places.shape == (1, 0)
    assert index.search(np.empty((0, 2), dtype=np.float32), 5)[1].shape == (0, 1)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1, 1e30])
def test_only_directions_count(scale):
    vectors = clouds(40, 6, 4)
    index = built(vectors * np.float32(scale))
    np.testing.assert_allclose(np.linalg.norm(index.vectors, axis=1), 1, atol=1e-7)
    np.testing.assert_allclose(index.vectors, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=2e-7)
    assert np.array_equal(exact.unit_rows(index.vectors), index.vectors)


def test_what_is_given_is_not_changed():
    vectors = clouds(40, 6, 4)
    before = vectors.copy()
    built(vectors).search(vectors, 3)
    assert np.array_equal(vectors, before)
    for dtype in (np.float16, np.float64):
        assert built(vectors.astype(dtype)).vectors.dtype == np.float32


def test_a_rounded_product_does_not_decide():
    """Near-ties below what a product of matrices can tell apart still come in the order of their cosines."""
    rng = np.random.default_rng(0)
    query = rng.standard_normal((1, 256))
    vectors = (query + 3e-4 * rng.standard_normal((400, 256))).astype(np.float32)
    index = built(vectors)
    expected = slow.search(index.vectors, exact.unit_rows(query), 50)
    assert_found(index.search(query, 50), expected)
    product = (torch.from_numpy(index.vectors) @ torch.from_numpy(exact.unit_rows(query)[0])).numpy()
    assert np.argsort(-product, kind="stable")[:50].tolist() != [place for _, place in expected[0]]


# HNSW and IVF-PQ


def recall(index, queries, k=10):
    """The share of what was found that is as near as the k-th nearest is."""
    similarity, places = index.search(queries, k)
    best = Index.build(index.vectors, "flat", belongs_to="").search(queries, k)[0]
    units = exact.unit_rows(queries)
    assert np.array_equal(
        similarity,
        exact.cosines(units, np.arange(len(units)).repeat(k), index.vectors, places.ravel()).reshape(similarity.shape),
    )
    assert all(len(set(row)) == k for row in places.tolist())
    assert (np.diff(similarity) <= 0).all()
    return float((similarity >= best[:, -1:]).mean())


@pytest.fixture(scope="module", params=["hnsw", "ivfpq"])
def large(request):
    return built(clouds(20_000, 64, 50), request.param)


def test_recall_of_the_defaults(large):
    assert recall(large, clouds(500, 64, 50, seed=1)) >= 0.95


def test_an_approximate_search_is_the_same_each_time_and_in_parts(large):
    queries = clouds(200, 64, 50, seed=1)
    similarity, places = large.search(queries, 10)
    again = large.search(queries, 10)
    assert np.array_equal(again[0], similarity)
    assert np.array_equal(again[1], places)
    assert np.array_equal(np.concatenate([large.search(queries[i : i + 50], 10)[1] for i in range(0, 200, 50)]), places)


def test_own_places_are_excluded_from_candidates(large):
    items = np.arange(0, 20_000, 100)
    similarity, places = large.search(large.vectors[items], 10, exclude=items)
    assert (places != items[:, None]).all()
    assert large.search(large.vectors[items], 1)[1][:, 0].tolist() == items.tolist()
    assert (similarity < 1).all()


@pytest.mark.parametrize("missing", [0, 5, 11])
def test_too_few_candidates_are_made_up_for_by_comparing_with_all(large, missing, monkeypatch):
    found = structures.candidates

    def fewer(kind, structure, queries, count):
        places = found(kind, structure, queries, count)
        places[::2, 11 - missing :] = -1
        return places

    monkeypatch.setattr(structures, "candidates", fewer)
    queries = clouds(20, 64, 50, seed=1)
    similarity, places = large.search(queries, 10)
    expected = Index.build(large.vectors, "flat", belongs_to="").search(queries, 10)
    assert (places >= 0).all()
    if missing > 1:
        assert np.array_equal(places[::2], expected[1][::2])
        assert np.array_equal(similarity[::2], expected[0][::2])


def test_candidates_are_ranked_as_all_items_are():
    """In any order, with copies among them; −1 is nobody, least of all the last item, who is nearest here."""
    rows = exact.unit_rows(clouds(300, 16, 30))
    rows[[290, 40, 150, 7]] = rows[299]
    expected = slow.search(rows[:299], rows[299:], 250)[0]
    candidates = np.array([[*np.random.default_rng(0).permutation(299), -1, -1]])
    similarity, places = exact.rerank(rows, rows[299:], 250, candidates)
    assert places[0].tolist() == [place for _, place in expected]
    assert places[0, :4].tolist() == [7, 40, 150, 290]
    assert similarity[0].tolist() == [float(cosine) for cosine, _ in expected]


def test_all_items_can_be_asked_for(large):
    assert sorted(large.search(large.vectors[:1], 30_000)[1][0]) == list(range(20_000))


def test_tight_groups_are_told_apart():
    """Where everything near is very near: what codes of few bits fail at."""
    index = built(clouds(12_000, 32, 12, spread=0.02), "ivfpq")
    assert recall(index, clouds(200, 32, 12, spread=0.02, seed=1)) >= 0.95


def test_any_width_has_codes():
    index = built(clouds(10_000, 13, 40), "ivfpq")
    assert recall(index, clouds(200, 13, 40, seed=1)) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
@pytest.mark.parametrize(("centres", "spread"), [(100, 0.5), (5000, 0.2)])
def test_recall_of_the_defaults_among_100_000(kind, centres, spread):
    index = built(clouds(100_000, 64, centres, spread), kind)
    assert recall(index, clouds(1000, 64, centres, spread, seed=1)) >= 0.95


@pytest.mark.parametrize(
    ("n", "kind"), [(1, "flat"), (50_000, "flat"), (50_001, "hnsw"), (1_000_000, "hnsw"), (1_000_001, "ivfpq")]
)
def test_the_kind_goes_by_the_number_of_items(n, kind):
    assert structures.choose("auto", n) == kind


# Threads and imports


def test_faiss_has_the_threads_of_torch_and_then_its_own_again(large, monkeypatch):
    faiss = pytest.importorskip("faiss")
    before, seen = faiss.omp_get_max_threads(), []
    monkeypatch.setattr(torch, "get_num_threads", lambda: before + 1)
    structure = large.structure
    spy = type(
        "Spy",
        (),
        {
            "search": lambda _, *args, **named: (
                seen.append(faiss.omp_get_max_threads()),
                structure.search(*args, **named),
            )[1]
        },
    )()
    monkeypatch.setattr(faiss, "extract_index_ivf", lambda _, real=faiss.extract_index_ivf: real(structure))
    structures.candidates(large.kind, spy, large.vectors[:2], 5)
    assert seen == [before + 1]
    assert faiss.omp_get_max_threads() == before


def test_without_faiss_only_flat_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert built(clouds(30, 4, 2)).search(clouds(3, 4, 2), 5)[1].shape == (3, 5)
    with pytest.raises(DataError, match=r"^search needs faiss: pip install 'likewise\[search\]'$"):
        built(clouds(30, 4, 2), "hnsw")


# Errors


@pytest.mark.parametrize(
    ("vectors", "kind", "sentence"),
    [
        (np.ones(3, dtype=np.float32), "flat", "vectors must be of shape (n, d), got (3,)"),
        (np.ones((3, 0), dtype=np.float32), "flat", "vectors must be of shape (n, d), got (3, 0)"),
        (np.ones((0, 3), dtype=np.float32), "flat", "vectors must have at least one row, got shape (0, 3)"),
        (np.ones((3, 2), dtype=np.int64), "flat", "vectors must be floating-point numbers, got int64"),
        (
            rows([[1, np.nan]]),
            "flat",
            f"vectors must be finite, got NaN or infinity {see('not finite')}",
        ),
        (
            rows([[1, np.inf]]),
            "flat",
            f"vectors must be finite, got NaN or infinity {see('not finite')}",
        ),
        (rows([[1, 2]]), "annoy", "kind must be auto, flat, hnsw or ivfpq, got 'annoy'"),
        (
            clouds(9_999, 2, 1),
            "ivfpq",
            "ivfpq needs at least 10,000 items, got 9,999: use flat, which is exact and fast enough",
        ),
    ],
)
def test_what_cannot_be_indexed(vectors, kind, sentence):
    with pytest.raises(SearchError) as error:
        built(vectors, kind)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("queries", "k", "exclude", "sentence"),
    [
        (rows([1, 2]), 1, None, "queries must be of shape (n, 2), got (2,)"),
        (rows([[1, 2, 3]]), 1, None, "queries must be of shape (n, 2), got (1, 3)"),
        (
            rows([[1, np.nan]]),
            1,
            None,
            f"queries must be finite, got NaN or infinity {see('not finite')}",
        ),
        (rows([[1, 2]]), 0, None, "k must be a whole number >= 1, got 0"),
        (rows([[1, 2]]), 1.5, None, "k must be a whole number >= 1, got 1.5"),
        (rows([[1, 2]]), True, None, "k must be a whole number >= 1, got True"),
        (rows([[1, 2]]), 1, [0, 1], "exclude must be one place for each of 1 queries, got int64 (2,)"),
        (rows([[1, 2]]), 1, [0.5], "exclude must be one place for each of 1 queries, got float64 (1,)"),
        (rows([[1, 2]]), 1, [3], "exclude must be places below 3, got 3 to 3"),
        (rows([[1, 2]]), 1, [-1], "exclude must be places below 3, got -1 to -1"),
    ],
)
def test_what_cannot_be_asked(queries, k, exclude, sentence):
    with pytest.raises(SearchError) as error:
        built(rows([[1, 0], [0, 1], [1, 1]])).search(queries, k, exclude=exclude)
    assert str(error.value) == sentence
