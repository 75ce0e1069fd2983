"""Lay out items on the map and cluster them, fast enough for very many items."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from likewise.data.parts import spread
from likewise.report.plane import plane
from likewise.search import exact
from likewise.search.exact import Places, Rows

LANDMARKS = 5_000  # items that t-SNE lays out; others are placed between them
BETWEEN = 4  # landmarks between which another item is placed
CLUSTERS, MOST_CLUSTERS = 10, 50


def laid_out(units: Rows, tell_share: Callable[[float], None] = lambda share: None) -> tuple[str, NDArray[np.float32]]:
    """Lay out unit rows (n, d), and return a description of the map and points (n, 2) in 0 to 1.

    `tell_share` is called with the share of t-SNE that is done.
    """
    landmarks = spread(np.arange(len(units)), LANDMARKS)
    name, landmark_points = plane(units[landmarks], tell_share)
    if len(landmarks) == len(units):
        return name, landmark_points
    similarity, nearest = exact.search(units[landmarks], units, BETWEEN, None)
    # Relative to the difference between the first and the last landmark, so that a landmark much more similar than the
    # others determines the point alone.
    spans = np.maximum(similarity[:, :1] - similarity[:, -1:], 1e-6)
    weights = np.exp(4 * (similarity - similarity[:, :1]) / spans)[:, :, None]
    points = (landmark_points[nearest] * weights).sum(axis=1) / weights.sum(axis=1)
    points[landmarks] = landmark_points
    return f"{name} of {len(landmarks):,} items; the others lie between the ones most similar to them", points


def clusters(units: Rows, classes: int) -> Places:
    """Return the k-means cluster (n,) of each of unit rows (n, d), numbered from the largest cluster on."""
    count = min(len(units), min(classes, MOST_CLUSTERS) if classes > 1 else CLUSTERS)
    assigned = MiniBatchKMeans(count, n_init=3, batch_size=2048, random_state=0).fit_predict(units)
    sizes = np.bincount(assigned, minlength=count)
    by_size: Places = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")[assigned]
    return by_size
