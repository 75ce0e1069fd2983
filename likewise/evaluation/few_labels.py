"""Classification with a handful of labels per class: how much has the encoder already learned without them?"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import labelled
from likewise.randomness import generator


@dataclass(frozen=True)
class FewLabels:
    """Accuracy over several draws of the labelled items, with everything that it depends on."""

    accuracy: float  # mean over the draws
    spread: float  # standard deviation over the draws
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
    """Measure the accuracy of the nearest class mean (by cosine) with `per_class` labelled items per class.

    Other labelled items are drawn from `train` in each of the `draws`. If a class has fewer items than
    `per_class`, all of them are used. Shapes as for `knn`.
    """
    train, train_labels = labelled("train embeddings", train, train_labels)
    test, test_labels = labelled("test embeddings", test, test_labels)
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
