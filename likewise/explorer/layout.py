"""Where items lie on the map, and in which clusters: quick also for very many."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from likewise.data.parts import spread
from likewise.report.plane import plane
from likewise.search import exact
from likewise.search.exact import Places, Rows

LANDMARKS = 5_000  # items that t-SNE places; the others lie between them
BETWEEN = 4  # landmarks that decide where another lies
CLUSTERS, MOST_CLUSTERS = 10, 50


def laid_out(units: Rows, tell_share: Callable[[float], None] = lambda share: None) -> tuple[str, NDArray[np.float32]]:
    """What was done, and places (n, 2) in 0 to 1 of unit rows (n, d); `tell_share` is called as t-SNE proceeds."""
    landmarks = spread(np.arange(len(units)), LANDMARKS)
    name, found = plane(units[landmarks], tell_share)
    if len(landmarks) == len(units):
        return name, found
    similarity, nearest = exact.search(units[landmarks], units, BETWEEN, None)
    # In units of how much less like the last of them is than the first: near a landmark is near it on the map.
    spans = np.maximum(similarity[:, :1] - similarity[:, -1:], 1e-6)
    weights = np.exp(4 * (similarity - similarity[:, :1]) / spans)[:, :, None]
    points = (found[nearest] * weights).sum(axis=1) / weights.sum(axis=1)
    points[landmarks] = found
    return f"{name} of {len(landmarks):,} items; the others lie between those they are most like", points


def clusters(units: Rows, classes: int) -> Places:
    """A cluster (n,) for each of unit rows (n, d), the largest first: k-means, which sees no label."""
    count = min(len(units), min(classes, MOST_CLUSTERS) if classes > 1 else CLUSTERS)
    found = MiniBatchKMeans(count, n_init=3, batch_size=2048, random_state=0).fit_predict(units)
    sizes = np.bincount(found, minlength=count)
    places: Places = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")[found]
    return places
