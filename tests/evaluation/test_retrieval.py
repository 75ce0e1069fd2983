"""Retrieval against slow loops and scikit-learn's average precision."""

import math

import pytest
import torch
from sklearn.metrics import average_precision_score

from likewise.evaluation import retrieval as module
from likewise.evaluation.retrieval import retrieval


def rows(n, dim=6, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n, classes=4, seed=9):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


QUERIES, QUERY_LABELS, GALLERY, GALLERY_LABELS = rows(30), labels(30), rows(50, seed=1), labels(50, seed=2)


def slow(query, label):
    """The labels of the gallery, most alike first, as right or wrong."""
    cosines = [float(query @ row / query.norm() / row.norm()) for row in GALLERY]
    order = sorted(range(len(GALLERY)), key=lambda i: -cosines[i])
    return [int(GALLERY_LABELS[i]) == int(label) for i in order], cosines


def test_recall_and_mean_average_precision_are_those_of_a_slow_loop_and_of_scikit_learn():
    found = retrieval(QUERIES, QUERY_LABELS, GALLERY, GALLERY_LABELS, ks=(1, 3, 10))
    precisions, theirs, hits = [], [], {1: 0, 3: 0, 10: 0}
    for query, label in zip(QUERIES, QUERY_LABELS, strict=True):
        right, cosines = slow(query, label)
        at = [sum(right[: i + 1]) / (i + 1) for i in range(len(right)) if right[i]]
        precisions.append(sum(at) / len(at))
        theirs.append(average_precision_score(label == GALLERY_LABELS, cosines))
        for k in hits:
            hits[k] += any(right[:k])
    assert found.recall == {k: count / 30 for k, count in hits.items()}
    assert found.mean_average_precision == pytest.approx(sum(precisions) / 30, abs=1e-12)
    assert found.mean_average_precision == pytest.approx(sum(theirs) / 30, abs=1e-12)
    assert (found.queries, found.gallery, found.left_out) == (30, 50, 0)


@pytest.mark.parametrize("at_once", [1, 350])
def test_tiles_change_nothing_nor_does_a_last_tile_of_one(monkeypatch, at_once):
    whole = retrieval(QUERIES, QUERY_LABELS, GALLERY, GALLERY_LABELS)
    monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once)
    found = retrieval(QUERIES, QUERY_LABELS, GALLERY, GALLERY_LABELS)
    assert found.recall == whole.recall
    assert found.mean_average_precision == pytest.approx(whole.mean_average_precision, abs=1e-12)


def test_a_query_whose_label_is_not_there_is_left_out_and_counted():
    asked = QUERY_LABELS.clone()
    asked[:5] = 77
    found = retrieval(QUERIES, asked, GALLERY, GALLERY_LABELS)
    rest = retrieval(QUERIES[5:], asked[5:], GALLERY, GALLERY_LABELS)
    assert (found.recall, found.queries, found.left_out) == (rest.recall, 25, 5)


def test_k_beyond_the_gallery_finds_all_and_one_class_is_always_right():
    found = retrieval(QUERIES, QUERY_LABELS * 0, GALLERY, GALLERY_LABELS * 0, ks=(1, 1000))
    assert found.recall == {1: 1.0, 1000: 1.0}
    assert found.mean_average_precision == pytest.approx(1)


def test_mistakes_are_one_sentence():
    with pytest.raises(ValueError, match=r"^query embeddings must be finite, got NaN or infinity \(see .*\)$"):
        retrieval(QUERIES * math.nan, QUERY_LABELS, GALLERY, GALLERY_LABELS)
    with pytest.raises(ValueError, match=r"^gallery must have an item with the label of a query, got none$"):
        retrieval(QUERIES, QUERY_LABELS + 50, GALLERY, GALLERY_LABELS)
    with pytest.raises(ValueError, match=r"^ks must be whole numbers >= 1, got \(0,\)$"):
        retrieval(QUERIES, QUERY_LABELS, GALLERY, GALLERY_LABELS, ks=(0,))
