"""Project vectors to a plane so that similar ones are near: t-SNE (van der Maaten and Hinton, 2008), or PCA."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from openTSNE import TSNE

FEWEST_FOR_TSNE = 50
# Iterations with and without exaggeration, and the Barnes-Hut angle. More iterations or the usual angle of 0.5 take
# longer without a gain: for the pixels of 5,000 digits, trustworthiness is 0.982 in both cases. Few iterations are
# enough because of the PCA start and a learning rate that grows with n (Belkina et al., 2019).
EARLY, LATE, ANGLE = 100, 250, 0.8
TELL_EVERY = 10  # iterations


def plane(
    unit: NDArray[Any], tell_share: Callable[[float], None] = lambda share: None
) -> tuple[str, NDArray[np.float32]]:
    """Project unit rows (n, d); return the name of the algorithm and positions (n, 2) from 0 to 1.

    `tell_share` is called from time to time with the share of the iterations that are done, 0 to 1.
    """
    # t-SNE needs more than a few points, with more than one dimension, that are not all equal.
    if len(unit) < FEWEST_FOR_TSNE or unit.shape[1] < 2 or np.ptp(unit, axis=0).max() < 1e-6:
        name, positions = "PCA", principal(unit, 2)
    else:
        calls = count(1)
        optimizer = TSNE(
            perplexity=min(30.0, (len(unit) - 1) / 3),
            initialization="pca",
            neighbors="exact",
            negative_gradient_method="bh",
            theta=ANGLE,
            early_exaggeration_iter=EARLY,
            n_iter=LATE,
            callbacks=lambda *_: tell_share(next(calls) * TELL_EVERY / (EARLY + LATE)),
            callbacks_every_iters=TELL_EVERY,
            n_jobs=torch.get_num_threads(),
            random_state=0,
        )
        name, positions = "t-SNE", np.asarray(optimizer.fit(principal(unit, 50)))
    low, span = positions.min(axis=0), np.maximum(np.ptp(positions, axis=0), 1e-12)
    return name, ((positions - low) / span).astype(np.float32)


def principal(rows: NDArray[Any], axes: int) -> NDArray[Any]:
    """Return the first `axes` principal components of rows (n, d), (n, axes); missing ones are 0."""
    left, spreads, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    components = left[:, :axes] * spreads[:axes]
    return np.pad(components, [(0, 0), (0, axes - components.shape[1])])
