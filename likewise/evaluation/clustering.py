"""Clustering: does k-means, which sees no label, find the classes?"""

from dataclasses import dataclass

import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import labelled

STARTS = 5


@dataclass(frozen=True)
class Clustering:
    """Agreement of clusters with classes: 1 is perfect, an ARI of 0 is chance."""

    nmi: float
    ari: float
    clusters: int
    items: int


def clustering(rows: Tensor, labels: Tensor, *, seed: int = 0) -> Clustering:
    """k-means of unit rows (n, d), as many clusters as there are classes, the best of `STARTS` starts."""
    rows, labels = labelled("clustered items", rows, labels)
    clusters = len(torch.unique(labels))
    points, classes = normalize(rows.float(), dim=1).cpu().numpy(), labels.cpu().numpy()
    found = KMeans(clusters, n_init=STARTS, random_state=seed).fit_predict(points)
    return Clustering(
        nmi=float(normalized_mutual_info_score(classes, found)),
        ari=float(adjusted_rand_score(classes, found)),
        clusters=clusters,
        items=len(rows),
    )
