"""From vectors to places on a plane, neighbours near each other: t-SNE (van der Maaten and Hinton, 2008), or PCA."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from openTSNE import TSNE

FEWEST_FOR_TSNE = 50
# Iterations with and without exaggeration, and the Barnes-Hut angle. More iterations or the usual angle of 0.5 take
# longer and gain nothing: of the pixels of 5,000 digits, trustworthiness is 0.982 either way. A PCA start and a
# learning rate that grows with n (Belkina et al., 2019) are what make so few iterations enough.
EARLY, LATE, ANGLE = 100, 250, 0.8
TELL_EVERY = 10  # iterations


def plane(
    unit: NDArray[Any], tell_share: Callable[[float], None] = lambda share: None
) -> tuple[str, NDArray[np.float32]]:
    """What was used, and places (n, 2) in 0 to 1 of unit rows (n, d).

    `tell_share` is called now and then with the share of the iterations that is done, 0 to 1.
    """
    # t-SNE wants more than a few points, that are not all the same, of more than one number.
    if len(unit) < FEWEST_FOR_TSNE or unit.shape[1] < 2 or np.ptp(unit, axis=0).max() < 1e-6:
        name, found = "PCA", principal(unit, 2)
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
        name, found = "t-SNE", np.asarray(optimizer.fit(principal(unit, 50)))
    low, span = found.min(axis=0), np.maximum(np.ptp(found, axis=0), 1e-12)
    return name, ((found - low) / span).astype(np.float32)


def principal(rows: NDArray[Any], axes: int) -> NDArray[Any]:
    """Rows (n, d) along their `axes` directions of largest spread, (n, axes); what is missing of them is 0."""
    left, spreads, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    found = left[:, :axes] * spreads[:axes]
    return np.pad(found, [(0, 0), (0, axes - found.shape[1])])
