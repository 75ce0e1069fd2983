"""Weighted k-nearest-neighbour classification of embeddings.

Wu et al., 2018 (InstDisc): each of the k most similar training items votes for its label with weight
exp(s / T), where s is the cosine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.evaluation.inputs import labelled
from likewise.evaluation.neighbours import nearest


@dataclass(frozen=True)
class KNN:
    """The accuracy of k-NN, with everything that it depends on."""

    accuracy: float
    k: int
    temperature: float
    train: int
    test: int
    classes: int

    def __str__(self) -> str:
        return f"{self.accuracy:.3f} (k-NN, k {self.k}, T {self.temperature:g}, {self.train:,} → {self.test:,} items)"


def knn(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 20, temperature: float = 0.07
) -> KNN:
    """Measure the share of test items that get their own label by the vote of their neighbours.

    Shapes: train (n, d), train_labels (n,), test (m, d), test_labels (m,); items with label −1 are left
    out. If there are fewer than k training items, all of them vote.
    """
    train, train_labels = labelled("train embeddings", train, train_labels)
    test, test_labels = labelled("test embeddings", test, test_labels)
    if k < 1 or not temperature > 0:
        raise ValueError(f"k must be at least 1 and temperature positive, got {k} and {temperature:g}")
    predicted = knn_predict(train, train_labels, test, k=k, temperature=temperature)
    return KNN(
        accuracy=float((predicted == test_labels).double().mean()),
        k=min(k, len(train)),
        temperature=temperature,
        train=len(train),
        test=len(test),
        classes=len(torch.unique(train_labels)),
    )


@torch.no_grad()
def knn_predict(train: Tensor, train_labels: Tensor, test: Tensor, *, k: int = 20, temperature: float = 0.07) -> Tensor:
    """Predict labels (m,) for `test` (m, d), among the labels of the training items."""
    known, train_labels = torch.unique(train_labels, return_inverse=True)
    predicted = torch.empty(len(test), dtype=torch.int64, device=test.device)
    for rows, similarity, neighbours in nearest(test, train, k):
        votes = torch.zeros(len(similarity), len(known), dtype=train.dtype, device=train.device)
        # Relative to the nearest neighbour: the winner is the same, and small temperatures do not overflow.
        weights = ((similarity - similarity[:, :1]) / temperature).exp()
        predicted[rows] = known[votes.scatter_add_(1, train_labels[neighbours], weights).argmax(dim=1)]
    return predicted
