"""The linear probe is the minimum of its loss, the same as scikit-learn's, and repeats itself to the bit."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from likewise.evaluation.linear import L2, choose_l2, fit, linear_probe


def problem(n=400, dim=12, classes=4, seed=0, dtype=torch.float64):
    """Classes that overlap, features of very different spread that are not centred."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    targets = torch.randint(classes, (n,), generator=rng)
    noise = torch.randn(n, dim, generator=rng, dtype=torch.float64)
    spread = torch.logspace(0, -2, dim, dtype=torch.float64)
    return ((0.7 * centres[targets] + noise) * spread + 3).to(dtype), targets


def loss(weights, intercepts, features, targets, l2):
    return cross_entropy(features @ weights + intercepts, targets) + l2 / 2 * weights.square().sum()


@pytest.mark.parametrize("l2", [1.0, 1e-2, 1e-4])
def test_no_classifier_has_less_loss(l2):
    features, targets = problem()
    found = fit(features, targets, 4, l2)
    theirs = LogisticRegression(C=1 / (l2 * len(features)), tol=1e-12, max_iter=10_000).fit(features, targets)
    least = loss(torch.tensor(theirs.coef_.T), torch.tensor(theirs.intercept_), features, targets, l2)
    assert loss(found.weights, found.intercepts, features, targets, l2) <= least + 1e-6


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_scikit_learns(l2, classes):
    features, targets = problem(classes=classes)
    found = fit(features, targets, classes, l2)
    theirs = LogisticRegression(C=1 / (l2 * len(features)), tol=1e-10, max_iter=10_000).fit(features, targets)
    probabilities = theirs.predict_proba(features)
    if classes == 2:  # scikit-learn then penalises one row of weights, which says as much as two half as long
        theirs = LogisticRegression(C=2 / (l2 * len(features)), tol=1e-10, max_iter=10_000).fit(features, targets)
        probabilities = theirs.predict_proba(features)
    ours = found.logits(features).softmax(dim=1).numpy()
    np.testing.assert_allclose(ours, probabilities, atol=2e-3)


def test_the_accuracy_is_scikit_learns_on_items_not_fitted():
    features, targets = problem()
    test, answers = problem(n=300, seed=1)
    found = linear_probe(features, targets, test, answers, l2=1e-3)
    scale = (features - features.mean(dim=0)).square().mean().sqrt()
    theirs = LogisticRegression(C=1 / (1e-3 * 400), tol=1e-8, max_iter=10_000).fit(features / scale, targets)
    assert found.accuracy == pytest.approx(theirs.score(test / scale, answers), abs=1 / 300)
    assert (found.l2, found.chosen, found.train, found.test, found.classes, found.dim) == (1e-3, False, 400, 300, 4, 12)


def test_l2_is_chosen_on_a_part_of_the_training_items_alone():
    features, targets = problem()
    found = linear_probe(features, targets, *problem(n=300, seed=1))
    assert found.chosen
    assert found.l2 in L2
    other_test = linear_probe(features, targets, *problem(n=20, seed=2))
    assert found.l2 == other_test.l2


def test_of_equally_good_l2_the_largest_is_taken():
    apart = torch.eye(4).repeat(25, 1) + 0.01 * torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    assert choose_l2(apart, torch.arange(100) % 4) == max(L2)


def test_the_same_again_to_the_bit():
    first, second = (fit(*problem(dtype=torch.float32), 4, 1e-3) for _ in range(2))
    assert torch.equal(first.weights, second.weights)


def test_the_scale_of_the_features_does_not_matter():
    features, targets = problem()
    test, answers = problem(n=300, seed=1)
    small, large = (linear_probe(features * by, targets, test * by, answers) for by in (1e-3, 1e3))
    assert small == large


def test_labels_may_have_gaps_and_test_classes_may_be_unknown():
    features, targets = problem()
    test, answers = problem(n=100, seed=1)
    names = torch.tensor([3, 7, 100, 2])
    known = linear_probe(features, targets, test, answers, l2=1e-3)
    renamed = linear_probe(features, names[targets], test, names[answers], l2=1e-3)
    assert renamed.accuracy == known.accuracy
    unknown = linear_probe(features, targets, test, torch.full((100,), 9), l2=1e-3)
    assert unknown.accuracy == 0


def test_more_features_than_items_are_the_same_minimum():
    features, targets = problem(n=30, dim=80)
    found = fit(features, targets, 4, 1e-2)
    theirs = LogisticRegression(C=1 / (1e-2 * 30), tol=1e-12, max_iter=10_000).fit(features, targets)
    least = loss(torch.tensor(theirs.coef_.T), torch.tensor(theirs.intercept_), features, targets, 1e-2)
    assert loss(found.weights, found.intercepts, features, targets, 1e-2) <= least + 1e-6


def test_one_class_only_and_one_item_only():
    features, _ = problem(n=20)
    zeros = torch.zeros(20, dtype=torch.int64)
    assert linear_probe(features, zeros, features, zeros).accuracy == 1
    assert linear_probe(features[:1], zeros[:1], features, zeros).accuracy == 1


def test_constant_features_are_no_trouble():
    features, targets = torch.ones(40, 3), torch.arange(40) % 2
    assert linear_probe(features, targets, features, targets).accuracy == 0.5


def test_mistakes_are_one_sentence():
    features, targets = problem(n=20)
    with pytest.raises(ValueError, match=r"^l2 must be positive, got -1$"):
        linear_probe(features, targets, features, targets, l2=-1)
    with pytest.raises(ValueError, match=r"^train embeddings must be finite, got NaN or infinity \(see .*\)$"):
        linear_probe(features * math.nan, targets, features, targets)
