"""Classification with a handful of labels a class: how much of the work has the encoder done already?"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import labelled
from likewise.randomness import generator


@dataclass(frozen=True)
class FewLabels:
    """Mean and spread over draws of the labelled items, and everything that they depend on."""

    accuracy: float
    spread: float
    per_class: int
    draws: int
    test: int
    classes: int


@torch.no_grad()
def few_labels(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    per_class: int,
    draws: int = 20,
    seed: int = 0,
) -> FewLabels:
    """Accuracy of the nearest class mean (cosine of unit rows), from `per_class` labelled items a class.

    The labelled items are drawn anew from `train` in each of `draws`; a class with fewer gives all it
    has. Shapes as for `knn`.
    """
    train, train_labels = labelled("train", train, train_labels)
    test, test_labels = labelled("test", test, test_labels)
    if per_class < 1 or draws < 1:
        raise ValueError(f"per_class and draws must be at least 1, got {per_class} and {draws}")
    classes = torch.unique(train_labels)
    train, test = normalize(train, dim=1), normalize(test, dim=1)
    members = [(train_labels == label).nonzero()[:, 0] for label in classes]
    accuracies = []
    for draw in range(draws):
        rng = generator(seed, "few labels", draw)
        centres = []
        for places in members:
            picked = places[torch.randperm(len(places), generator=rng)[:per_class].to(places.device)]
            centres.append(train[picked].mean(dim=0))
        predicted = classes[(test @ normalize(torch.stack(centres), dim=1).T).argmax(dim=1)]
        accuracies.append((predicted == test_labels).double().mean())
    values = torch.stack(accuracies)
    return FewLabels(
        accuracy=float(values.mean()),
        spread=float(values.std()) if draws > 1 else 0.0,
        per_class=per_class,
        draws=draws,
        test=len(test),
        classes=len(classes),
    )
