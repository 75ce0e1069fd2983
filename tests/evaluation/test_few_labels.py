"""Few labels: the nearest class mean, against a slow loop."""

import statistics

import pytest
import torch

from likewise.evaluation.few_labels import few_labels
from likewise.guide import see
from likewise.randomness import generator


def rows(n, dim=5, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n, classes=3, seed=9):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def unit(row):
    return row / row.norm()


def slow(train, train_labels, test, test_labels, per_class, draws, seed):
    accuracies = []
    for draw in range(draws):
        rng, centres = generator(seed, "few labels", draw), {}
        for label in sorted({int(label) for label in train_labels if label >= 0}):
            members = [i for i in range(len(train)) if train_labels[i] == label]
            picked = torch.randperm(len(members), generator=rng).tolist()[:per_class]
            centres[label] = unit(sum(unit(train[members[i]]) for i in picked) / len(picked))
        right = [
            max(centres, key=lambda label: float(unit(row) @ centres[label])) == wanted
            for row, wanted in zip(test, test_labels.tolist(), strict=True)
            if wanted >= 0
        ]
        accuracies.append(sum(right) / len(right))
    return accuracies


@pytest.mark.parametrize("per_class", [1, 3, 50])
def test_mean_and_spread_are_those_of_a_slow_loop(per_class):
    given = rows(40), labels(40), rows(25, seed=1), labels(25, seed=8)
    given[1][::7] = -1
    given[3][::6] = -1
    found = few_labels(*given, per_class=per_class, draws=6, seed=4)
    accuracies = slow(*given, per_class, 6, 4)
    assert found.accuracy == pytest.approx(statistics.mean(accuracies))
    assert found.spread == pytest.approx(statistics.stdev(accuracies))
    assert (found.per_class, found.draws, found.test, found.classes) == (per_class, 6, 20, 3)


def test_the_same_seed_draws_the_same_and_another_does_not():
    given = rows(60), labels(60), rows(50, seed=1), labels(50, seed=8)
    found = few_labels(*given, per_class=2, seed=1)
    torch.manual_seed(5)
    assert few_labels(*given, per_class=2, seed=1) == found
    assert few_labels(*given, per_class=2, seed=2) != found


def test_two_encoders_are_judged_by_the_same_labelled_items():
    """Rows turned as a whole have the same cosines: the same figure, draw by draw."""
    turn = torch.linalg.qr(rows(5, seed=3)).Q
    given = rows(60), labels(60), rows(50, seed=1), labels(50, seed=8)
    turned = given[0] @ turn, given[1], given[2] @ turn, given[3]
    assert few_labels(*turned, per_class=2) == few_labels(*given, per_class=2)


def test_with_all_items_of_a_class_there_is_nothing_to_draw():
    found = few_labels(rows(30), labels(30), rows(20, seed=1), labels(20), per_class=30)
    assert found.spread == pytest.approx(0)


def test_classes_may_have_any_numbers_and_the_test_part_may_lack_some():
    corners = torch.eye(3, dtype=torch.float64)
    found = few_labels(corners, torch.tensor([40, 7, 1000]), corners[:2], torch.tensor([40, 7]), per_class=5, draws=1)
    assert (found.accuracy, found.spread, found.classes) == (1.0, 0.0, 3)
    unseen = few_labels(corners, torch.tensor([0, 1, 2]), corners[:2], torch.tensor([0, 5]), per_class=1)
    assert unseen.accuracy == 0.5


CASES = {
    "train embeddings must have at least one label, got none": lambda: few_labels(
        rows(3), torch.full((3,), -1), rows(3), labels(3), per_class=1
    ),
    "test embeddings must have at least one label, got none": lambda: few_labels(
        rows(3), labels(3), rows(3), torch.full((3,), -1), per_class=1
    ),
    f"test embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: few_labels(
        rows(3), labels(3), rows(3) * torch.nan, labels(3), per_class=1
    ),
    "per_class and draws must be at least 1, got 0 and 20": lambda: few_labels(
        rows(3), labels(3), rows(3), labels(3), per_class=0
    ),
    "per_class and draws must be at least 1, got 1 and 0": lambda: few_labels(
        rows(3), labels(3), rows(3), labels(3), per_class=1, draws=0
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_mistakes_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
