"""Clustering: do the clusters of k-means, which sees no labels, agree with the classes?"""

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
    """Compare labels with k-means clusters of unit rows (n, d): one cluster per class, the best of `STARTS` starts."""
    rows, labels = labelled("embeddings", rows, labels)
    clusters = len(torch.unique(labels))
    points, classes = normalize(rows.float(), dim=1).cpu().numpy(), labels.cpu().numpy()
    assigned = KMeans(clusters, n_init=STARTS, random_state=seed).fit_predict(points)
    return Clustering(
        nmi=float(normalized_mutual_info_score(classes, assigned)),
        ari=float(adjusted_rand_score(classes, assigned)),
        clusters=clusters,
        items=len(rows),
    )
