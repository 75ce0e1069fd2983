"""Linear probe: multinomial logistic regression on fixed embeddings.

Minimises `mean cross-entropy + l2/2 ‖weights‖²`, without a penalty on the intercepts: the same problem
as scikit-learn's `LogisticRegression` with C = 1 / (l2 n). It is fast because it is preconditioned with
the covariance of the features. Half of that covariance is an upper bound on the curvature of the loss
(Böhning, 1992), so after a change of coordinates all directions have about the same curvature, and
L-BFGS needs a few steps instead of about a hundred.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from likewise.evaluation.inputs import labelled
from likewise.randomness import generator

L2 = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
HELD_OUT = 0.2  # share of the training items on which l2 is chosen
ROWS_AT_ONCE = 4096  # rows of features that stay in the cache between the two products of a step
MOST_STEPS = 200
TOLERANCE, COARSE = 3e-5, 1e-3  # for the largest entry of the gradient; COARSE is enough to choose l2


@dataclass(frozen=True)
class Linear:
    """The accuracy of the linear probe, with everything that it depends on."""

    accuracy: float
    l2: float
    chosen: bool  # whether l2 was chosen on a part of the training items
    train: int
    test: int
    classes: int
    dim: int


@dataclass(frozen=True)
class Classifier:
    """Logits are `features @ weights + intercepts`."""

    weights: Tensor  # (d, classes)
    intercepts: Tensor  # (classes,)

    def logits(self, features: Tensor) -> Tensor:
        return features @ self.weights.to(features) + self.intercepts.to(features)


def linear_probe(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    l2: float | None = None,
    seed: int = 0,
) -> Linear:
    """Measure the accuracy on `test` of a linear classifier fitted on `train`.

    Shapes: train (n, d), train_labels (n,), test (m, d), test_labels (m,); items with label −1 are left out. All
    features are divided by one number, their standard deviation, so that `l2` means the same for every encoder.
    Without `l2`, the value in `L2` that is best on a held-out fifth of the training items is used to fit all of them.
    """
    train, train_labels = labelled("train embeddings", train, train_labels)
    test, test_labels = labelled("test embeddings", test, test_labels)
    if l2 is not None and not l2 > 0:
        raise ValueError(f"l2 must be positive, got {l2:g}")
    known, targets = torch.unique(train_labels, return_inverse=True)
    scale = (train - train.mean(dim=0)).square().mean().sqrt()
    scale = scale.where(scale > 1e-6 * train.abs().max(), 1)  # do not divide constant features by 0
    train, test = train / scale, test / scale
    best = choose_l2(train, targets, seed) if l2 is None else l2
    classifier = fit(train, targets, len(known), best)
    predicted = known[classifier.logits(test).argmax(dim=1)]
    return Linear(
        accuracy=float((predicted == test_labels).double().mean()),
        l2=best,
        chosen=l2 is None and len(train) * HELD_OUT >= 1,
        train=len(train),
        test=len(test),
        classes=len(known),
        dim=train.shape[1],
    )


def choose_l2(features: Tensor, targets: Tensor, seed: int = 0) -> float:
    """Return the l2 with the best accuracy on a held-out fifth, and among equals the largest.

    Values are tried from the largest to the smallest, until two in a row bring no improvement.
    """
    order = torch.randperm(len(features), generator=generator(seed, "linear probe")).to(features.device)
    held_out, rest = order[: int(HELD_OUT * len(order))], order[int(HELD_OUT * len(order)) :]
    if not len(held_out):
        return L2[0]
    classes = int(targets.max()) + 1
    problem = Problem(features[rest], targets[rest], classes)
    classifier: Classifier | None = None
    best, most_right, not_better = L2[0], -1, 0
    for l2 in L2:
        classifier = problem.solve(l2, classifier, COARSE)
        right = int((classifier.logits(features[held_out]).argmax(dim=1) == targets[held_out]).sum())
        if right > most_right:
            best, most_right, not_better = l2, right, 0
        else:
            not_better += 1
        if not_better == 2:
            break
    return best


def fit(features: Tensor, targets: Tensor, classes: int, l2: float) -> Classifier:
    """Fit a classifier. Shapes: features (n, d), targets (n,) in 0 … classes − 1."""
    return Problem(features, targets, classes).solve(l2)


class Problem:
    """One set of features and targets, to be solved for several l2; the covariance is computed once."""

    def __init__(self, features: Tensor, targets: Tensor, classes: int) -> None:
        self.targets, self.classes = targets, classes
        self.mean = features.mean(dim=0)
        self.features = features - self.mean  # the intercepts absorb the mean, and the problem is better conditioned
        self.basis: Tensor | None = None
        if features.shape[1] > len(features):  # the best weights lie in the span of the rows, so solve it there
            self.basis = torch.linalg.qr(self.features.T).Q
            self.features = self.features @ self.basis
        dim = self.features.shape[1]
        covariance = torch.zeros(dim, dim, dtype=torch.float64, device=features.device)
        for rows in torch.split(self.features, ROWS_AT_ONCE):
            covariance += (rows.T @ rows).double()
        values, self.directions = torch.linalg.eigh(covariance / len(features))
        self.spread = values.clamp(min=0)

    def solve(self, l2: float, start: Classifier | None = None, tolerance: float = TOLERANCE) -> Classifier:
        scale = (0.5 * self.spread + l2).rsqrt()
        transform = self.directions * scale  # weights = transform @ the coordinates of L-BFGS
        device, dtype = self.features.device, self.features.dtype
        shape = (len(scale) + 1, self.classes)  # the last row of coordinates are the intercepts
        initial = torch.zeros(shape, dtype=torch.float64, device=device)
        if start is not None:
            start_weights = start.weights if self.basis is None else self.basis.T @ start.weights
            initial[:-1] = (self.directions.T @ start_weights.double()) / scale[:, None]
            initial[-1] = start.intercepts.double() + self.mean.double() @ start.weights.double()

        def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            coordinates = torch.from_numpy(flat).to(device).view(shape)
            weights = transform @ coordinates[:-1]
            value, by_weights, by_intercepts = self._cross_entropy(weights.to(dtype), coordinates[-1].to(dtype))
            gradient = torch.cat([transform.T @ (by_weights + l2 * weights), by_intercepts[None]])
            return value + 0.5 * l2 * float(weights.square().sum()), gradient.flatten().cpu().numpy()

        options = {"maxiter": MOST_STEPS, "gtol": tolerance, "ftol": 1e-9}
        result = minimize(loss, initial.flatten().cpu().numpy(), jac=True, method="L-BFGS-B", options=options)
        best = torch.from_numpy(result.x).to(device).view(shape)
        weights = transform @ best[:-1]
        if self.basis is not None:
            weights = self.basis.double() @ weights
        return Classifier(weights.to(dtype), (best[-1] - self.mean.double() @ weights).to(dtype))

    def _cross_entropy(self, weights: Tensor, intercepts: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the mean over all rows, and its gradients for weights and intercepts in float64."""
        total = torch.zeros((), dtype=torch.float64, device=weights.device)
        by_weights = torch.zeros_like(weights.T, dtype=torch.float64)
        by_intercepts = torch.zeros_like(intercepts, dtype=torch.float64)
        n = len(self.features)
        for rows, targets in zip(
            *(torch.split(column, ROWS_AT_ONCE) for column in (self.features, self.targets)), strict=True
        ):
            own = targets, torch.arange(len(rows), device=rows.device)
            # (classes, n): a softmax over few classes is faster along the first axis than along the last.
            error = torch.addmm(intercepts, rows, weights).T.contiguous().log_softmax(dim=0)
            total -= error[own].sum().double()
            error.exp_()[own] -= 1
            by_weights += (error @ rows).double()
            by_intercepts += error.sum(dim=1).double()
        return float(total) / n, by_weights.T / n, by_intercepts / n
