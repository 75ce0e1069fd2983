"""Linear probe: multinomial logistic regression on embeddings that stay as they are.

Minimises `mean cross-entropy + l2/2 ‖weights‖²`, the intercepts free: scikit-learn's
`LogisticRegression` with C = 1 / (l2 n). What makes it quick is one look at the features' covariance
before the first step: the loss bends at most half as much as that (Böhning, 1992), so L-BFGS walks in
coordinates where every direction bends alike, and needs a few steps where it would need a hundred.
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
HELD_OUT = 0.2  # of the training part, to choose l2 on
ROWS_AT_ONCE = 4096  # of features: small enough to be read from memory once for both products
MOST_STEPS = 200
TOLERANCE, COARSE = 3e-5, 1e-3  # of the gradient's largest entry; to choose l2, accuracy is all that counts


@dataclass(frozen=True)
class Linear:
    """An accuracy, and everything that it depends on; `chosen` where l2 was chosen on a part of the training items."""

    accuracy: float
    l2: float
    chosen: bool
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
    """Accuracy on `test` of a linear classifier fitted on `train`.

    Shapes: train (n, d), train_labels (n,), test (m, d), test_labels (m,); labels −1 are left out. The features
    are divided by one number, their standard deviation, so that `l2` means the same for every encoder. Without
    `l2` the best of `L2` on a fifth of the training items is taken, then all of them are fitted.
    """
    train, train_labels = labelled("train", train, train_labels)
    test, test_labels = labelled("test", test, test_labels)
    if l2 is not None and not l2 > 0:
        raise ValueError(f"l2 must be positive, got {l2:g}")
    known, targets = torch.unique(train_labels, return_inverse=True)
    scale = (train - train.mean(dim=0)).square().mean().sqrt()
    scale = scale.where(scale > 1e-6 * train.abs().max(), 1)  # features that are all constant stay as they are
    train, test = train / scale, test / scale
    best = choose_l2(train, targets, seed) if l2 is None else l2
    found = fit(train, targets, len(known), best)
    predicted = known[found.logits(test).argmax(dim=1)]
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
    """The l2 of the best accuracy on a held-out fifth, of equals the largest; smaller ones are tried while it helps."""
    order = torch.randperm(len(features), generator=generator(seed, "linear probe")).to(features.device)
    held, kept = order[: int(HELD_OUT * len(order))], order[int(HELD_OUT * len(order)) :]
    if not len(held):
        return L2[0]
    classes = int(targets.max()) + 1
    problem = Problem(features[kept], targets[kept], classes)
    found: Classifier | None = None
    best, most, worse = L2[0], -1, 0
    for l2 in L2:
        found = problem.solve(l2, found, COARSE)
        right = int((found.logits(features[held]).argmax(dim=1) == targets[held]).sum())
        if right > most:
            best, most, worse = l2, right, 0
        else:
            worse += 1
        if worse == 2:
            break
    return best


def fit(features: Tensor, targets: Tensor, classes: int, l2: float) -> Classifier:
    """The classifier of least loss. Shapes: features (n, d), targets (n,) in 0 … classes − 1."""
    return Problem(features, targets, classes).solve(l2)


class Problem:
    """One set of features and targets, for several l2; the covariance is looked at once."""

    def __init__(self, features: Tensor, targets: Tensor, classes: int) -> None:
        self.targets, self.classes = targets, classes
        self.mean = features.mean(dim=0)
        self.features = features - self.mean  # the intercepts are free: the same problem, better conditioned
        self.basis: Tensor | None = None
        if features.shape[1] > len(features):  # the weights are sums of rows: there are no more directions than those
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
        step = self.directions * scale  # weights = step @ what L-BFGS sees
        device, dtype = self.features.device, self.features.dtype
        shape = (len(scale) + 1, self.classes)
        seen = torch.zeros(shape, dtype=torch.float64, device=device)
        if start is not None:
            before = start.weights if self.basis is None else self.basis.T @ start.weights
            seen[:-1] = (self.directions.T @ before.double()) / scale[:, None]
            seen[-1] = start.intercepts.double() + self.mean.double() @ start.weights.double()

        def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            now = torch.from_numpy(flat).to(device).view(shape)
            weights = step @ now[:-1]
            value, by_weights, by_intercepts = self._cross_entropy(weights.to(dtype), now[-1].to(dtype))
            gradient = torch.cat([step.T @ (by_weights + l2 * weights), by_intercepts[None]])
            return value + 0.5 * l2 * float(weights.square().sum()), gradient.flatten().cpu().numpy()

        options = {"maxiter": MOST_STEPS, "gtol": tolerance, "ftol": 1e-9}
        found = minimize(loss, seen.flatten().cpu().numpy(), jac=True, method="L-BFGS-B", options=options)
        best = torch.from_numpy(found.x).to(device).view(shape)
        weights = step @ best[:-1]
        if self.basis is not None:
            weights = self.basis.double() @ weights
        return Classifier(weights.to(dtype), (best[-1] - self.mean.double() @ weights).to(dtype))

    def _cross_entropy(self, weights: Tensor, intercepts: Tensor) -> tuple[float, Tensor, Tensor]:
        """The mean over all rows, and its gradients in float64."""
        total = torch.zeros((), dtype=torch.float64, device=weights.device)
        by_weights = torch.zeros_like(weights.T, dtype=torch.float64)
        by_intercepts = torch.zeros_like(intercepts, dtype=torch.float64)
        n = len(self.features)
        for rows, targets in zip(
            *(torch.split(column, ROWS_AT_ONCE) for column in (self.features, self.targets)), strict=True
        ):
            own = targets, torch.arange(len(rows), device=rows.device)
            # (classes, n): a softmax over the few is quick where they are not neighbours in memory.
            error = torch.addmm(intercepts, rows, weights).T.contiguous().log_softmax(dim=0)
            total -= error[own].sum().double()
            error.exp_()[own] -= 1
            by_weights += (error @ rows).double()
            by_intercepts += error.sum(dim=1).double()
        return float(total) / n, by_weights.T / n, by_intercepts / n
