"""k-NN against a slow loop and scikit-learn, and where others go wrong."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from likewise.evaluation import neighbours as module
from likewise.evaluation.knn import knn, knn_predict
from likewise.guide import see


def rows(n, dim=6, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n, classes=4, seed=9):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def slow(train, train_labels, test, k, temperature):
    """The label with the most votes, exp(cosine / T) a neighbour."""
    predicted = []
    for query in test:
        cosines = [float(query @ row / query.norm() / row.norm()) for row in train]
        nearest = sorted(range(len(train)), key=lambda i: -cosines[i])[:k]
        votes = {}
        for i in nearest:
            label = int(train_labels[i])
            votes[label] = votes.get(label, 0) + math.exp(cosines[i] / temperature)
        predicted.append(max(votes, key=votes.get))
    return predicted


@pytest.mark.parametrize("k", [1, 5, 20, 60])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_vote_is_that_of_a_slow_loop_and_of_scikit_learn(k, temperature):
    train, test, train_labels = rows(60), rows(40, seed=1), labels(60)
    ours = knn_predict(train, train_labels, test, k=k, temperature=temperature).tolist()
    assert ours == slow(train, train_labels, test, k, temperature)

    def weights(distance):
        return np.exp((1 - distance) / temperature)

    theirs = KNeighborsClassifier(k, weights=weights, metric="cosine").fit(train.numpy(), train_labels.numpy())
    assert ours == theirs.predict(test.numpy()).tolist()


def test_the_accuracy_is_the_share_of_right_votes():
    train, test, train_labels, test_labels = rows(60), rows(40, seed=1), labels(60), labels(40, seed=8)
    right = [p == t for p, t in zip(slow(train, train_labels, test, 5, 0.1), test_labels.tolist(), strict=True)]
    assert knn(train, train_labels, test, test_labels, k=5, temperature=0.1).accuracy == sum(right) / 40


def test_lengths_of_rows_do_not_matter():
    train, test = rows(30), rows(20, seed=1)
    stretched = train * torch.linspace(0.1, 50, 30, dtype=torch.float64)[:, None]
    assert torch.equal(knn_predict(train, labels(30), test), knn_predict(stretched, labels(30), test * 7))


def test_a_small_temperature_asks_the_nearest_and_does_not_overflow():
    train, test = rows(30).float(), rows(20, seed=1).float()
    nearest = knn_predict(train, labels(30), test, k=1)
    assert torch.equal(knn_predict(train, labels(30), test, k=20, temperature=1e-4), nearest)


def test_fault_8_classes_are_those_of_the_training_part():
    """A k-NN sized by the classes of the test split breaks where that split lacks the highest of them."""
    train, train_labels = torch.eye(5, dtype=torch.float64).repeat(3, 1), torch.arange(5).repeat(3)
    found = knn(train, train_labels, torch.eye(5, dtype=torch.float64)[:2], torch.tensor([0, 1]), k=3)
    assert (found.accuracy, found.classes) == (1.0, 5)
    assert knn_predict(train, train_labels, train[4:5], k=3).tolist() == [4], "a class that no test item has can win"


def test_fault_8_a_test_class_that_was_never_seen_counts_as_wrong():
    train, test = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    found = knn(train, torch.tensor([0, 1, 2]), test, torch.tensor([0, 1, 9]), k=1)
    assert (found.accuracy, found.classes) == (2 / 3, 3)


@pytest.mark.parametrize("at_once", [1, 4, 12])
def test_fault_8_a_last_batch_of_one_item_is_a_batch_like_any_other(monkeypatch, at_once):
    train, test = rows(30), rows(13, seed=1)
    whole = knn_predict(train, labels(30), test)
    monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once * 30)
    assert torch.equal(knn_predict(train, labels(30), test), whole)
    assert knn(train, labels(30), test[:1], whole[:1]).accuracy == 1.0


def test_fault_8_of_fewer_than_k_training_items_all_vote_and_k_says_so():
    train, test = rows(7), rows(9, seed=1)
    found = knn(train, labels(7), test, labels(9), k=200, temperature=0.5)
    assert found.k == 7
    assert knn_predict(train, labels(7), test, k=200, temperature=0.5).tolist() == slow(train, labels(7), test, 7, 0.5)


def test_labels_may_have_gaps_and_are_counted_as_classes_once():
    """Votes are kept for the classes there are, not for every number below the largest."""
    names = torch.tensor([3, 900, 65_000, 7])
    plain = knn(rows(40), labels(40), rows(20, seed=1), labels(20, seed=8))
    assert knn(rows(40), names[labels(40)], rows(20, seed=1), names[labels(20, seed=8)]) == plain
    assert plain.classes == 4


def test_one_class_only_is_always_right():
    found = knn(rows(5), torch.zeros(5, dtype=torch.int64), rows(3, seed=1), torch.zeros(3, dtype=torch.int64))
    assert (found.accuracy, found.classes) == (1.0, 1)


def test_items_without_a_label_neither_vote_nor_count():
    train, train_labels, test, test_labels = rows(40), labels(40), rows(20, seed=1), labels(20, seed=8)
    train_labels[::3] = -1
    test_labels[::4] = -1
    with_them = knn(train, train_labels, test, test_labels)
    kept, asked = train_labels >= 0, test_labels >= 0
    assert with_them == knn(train[kept], train_labels[kept], test[asked], test_labels[asked])
    assert (with_them.train, with_them.test) == (26, 15)


def test_fault_15_the_figure_carries_what_it_depends_on():
    """An accuracy without k, temperature and sizes cannot be compared with any other."""
    found = knn(rows(1500), labels(1500), rows(40, seed=1), labels(40), k=7, temperature=0.2)
    assert (found.k, found.temperature, found.train, found.test, found.classes) == (7, 0.2, 1500, 40, 4)
    assert str(found) == f"{found.accuracy:.3f} (k-NN, k 7, T 0.2, 1,500 → 40 items)"


NAN = torch.full((3, 6), math.nan, dtype=torch.float64)
CASES = {
    f"train embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: knn(
        NAN, labels(3), rows(3), labels(3)
    ),
    f"test embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: knn(
        rows(3), labels(3), rows(3) / 0, labels(3)
    ),
    "train embeddings must have at least one label, got none": lambda: knn(
        rows(3), labels(3) * 0 - 1, rows(3), labels(3)
    ),
    "test embeddings must have at least one label, got none": lambda: knn(rows(3), labels(3), rows(0), labels(0)),
    "test embeddings must be (n, d) with labels (n,), got (3, 6) and (2,)": lambda: knn(
        rows(3), labels(3), rows(3), labels(2)
    ),
    "k must be at least 1 and temperature positive, got 0 and 0.07": lambda: knn(
        rows(3), labels(3), rows(3), labels(3), k=0
    ),
    "k must be at least 1 and temperature positive, got 20 and -1": lambda: knn(
        rows(3), labels(3), rows(3), labels(3), temperature=-1
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_mistakes_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
