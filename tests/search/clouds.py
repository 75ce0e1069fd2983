"""Rows around centres, as a trained encoder leaves them."""

import numpy as np


def clouds(n, d, centres, spread=0.5, seed=0):
    middle = np.random.default_rng(99).standard_normal((centres, d))
    rng = np.random.default_rng(seed)
    rows = middle[rng.integers(centres, size=n)] + spread * rng.standard_normal((n, d))
    return rows.astype(np.float32)
