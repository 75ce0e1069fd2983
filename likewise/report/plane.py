"""From vectors to places on a plane, neighbours near each other: t-SNE (van der Maaten and Hinton, 2008), or PCA."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE

FEWEST_FOR_TSNE = 50


def plane(unit: NDArray[Any]) -> tuple[str, NDArray[np.float32]]:
    """What was used, and places (n, 2) in 0 to 1 of unit rows (n, d)."""
    # t-SNE wants more than a few points, that are not all the same, of more than one number.
    if len(unit) < FEWEST_FOR_TSNE or unit.shape[1] < 2 or np.ptp(unit, axis=0).max() < 1e-6:
        name, found = "PCA", principal(unit, 2)
    else:
        small = principal(unit, 50)
        perplexity = min(30.0, (len(unit) - 1) / 3)
        name, found = "t-SNE", TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(small)
    low, span = found.min(axis=0), np.maximum(np.ptp(found, axis=0), 1e-12)
    return name, ((found - low) / span).astype(np.float32)


def principal(rows: NDArray[Any], axes: int) -> NDArray[Any]:
    """Rows (n, d) along their `axes` directions of largest spread, (n, axes); what is missing of them is 0."""
    left, spreads, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    found = left[:, :axes] * spreads[:axes]
    return np.pad(found, [(0, 0), (0, axes - found.shape[1])])
