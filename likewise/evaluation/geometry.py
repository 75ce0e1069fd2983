"""The shape of embeddings on the unit sphere, for which no labels are needed: spread out, or collapsed?

Alignment and uniformity are Wang & Isola, 2020; the effective rank is Roy & Vetterli, 2007.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import rows_of
from likewise.guide import see

ROWS_AT_ONCE = 1024
LOOKED_AT = 1000  # items that say whether all have collapsed


@dataclass(frozen=True)
class Geometry:
    """Where the unit rows lie, and how many there were."""

    uniformity: float  # log mean e^(−2 ‖x − y‖²): 0 where all are one point, near −4 on a whole sphere
    effective_rank: float
    alike: float  # mean cosine of two different items
    zeros: int  # items whose embedding is zero, and has no direction
    dim: int
    items: int


def geometry(rows: Tensor) -> Geometry:
    """Uniformity, effective rank and mean cosine of rows (n, d), which are made of unit length."""
    rows = normalize(rows_of("geometry's", rows), dim=1)
    return Geometry(
        uniformity=uniformity(rows),
        effective_rank=effective_rank(rows),
        alike=mean_cosine(rows),
        zeros=int((rows == 0).all(dim=1).sum()),
        dim=rows.shape[1],
        items=len(rows),
    )


def alignment(first: Tensor, second: Tensor) -> float:
    """Mean ‖a − b‖² of unit rows that should agree, (n, d) each: 0 where they do, 2 where they are unrelated."""
    first, second = (normalize(rows_of("alignment's", rows), dim=1) for rows in (first, second))
    if first.shape != second.shape:
        raise ValueError(f"pairs must have the same shape, got {tuple(first.shape)} and {tuple(second.shape)}")
    return float((first - second).square().sum(dim=1).mean())


@torch.no_grad()
def uniformity(rows: Tensor) -> float:
    """`log mean e^(−2 ‖x − y‖²)` over all pairs of different unit rows (n, d), in tiles; 0 for a single row."""
    n = len(rows)
    if n < 2:
        return 0.0
    total, squares = 0.0, rows.square().sum(dim=1)
    for start in range(0, n, ROWS_AT_ONCE):
        tile = rows[start : start + ROWS_AT_ONCE]
        distance = squares[start : start + ROWS_AT_ONCE, None] + squares[start:] - 2 * (tile @ rows[start:].T)
        kernel = distance.mul_(-2).exp_()
        total += float(kernel.triu_(diagonal=1).sum(dtype=torch.float64))  # each pair once
    return math.log(max(total / (n * (n - 1) / 2), 1e-300))


def effective_rank(rows: Tensor) -> float:
    """How many directions the rows (n, d) use: e^entropy of the singular values, after the mean is taken off.

    1 where all lie on a line, min(n − 1, d) where all directions are used alike; 0 where there is one point.
    """
    centred = rows.double() - rows.double().mean(dim=0)
    # Of the smaller Gram matrix: the square roots of its eigenvalues are the singular values.
    gram = centred.T @ centred if rows.shape[0] >= rows.shape[1] else centred @ centred.T
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    singular = singular.where(singular > 1e-6 * rows.double().norm(), 0)  # rounding is no direction
    if not singular.any():
        return 0.0
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())


def mean_cosine(rows: Tensor) -> float:
    """Mean cosine of two different unit rows (n, d); 1 for a single row."""
    n = len(rows)
    if n < 2:
        return 1.0
    rows = rows.double()
    return float(rows.sum(dim=0).square().sum() - rows.square().sum()) / (n * (n - 1))


def verdict(found: Geometry) -> str:
    """Is it a collapse? In words, with the figures behind them."""
    if found.items < 2:
        return "there is one item only: nothing can be said of a collapse"
    rank, alike = _figures(found)
    return collapse(found) or f"not collapsed: {alike}, {rank}, uniformity {found.uniformity:.2f}"


def collapse(found: Geometry) -> str | None:
    """Say how embeddings have collapsed, wholly, in part or nearly, or return None if they have not."""
    words = _collapse(found)
    return None if words is None else f"{words} {see('collapse')}"


def _collapse(found: Geometry) -> str | None:
    if found.items < 2:
        return None
    rank, alike = _figures(found)
    most = min(found.dim, found.items - 1)
    if found.zeros > 0.01 * found.items:
        return f"collapsed: {found.zeros:,} of {found.items:,} items have the embedding zero"
    if found.alike > 0.99 or found.effective_rank == 0:
        return f"collapsed: nearly all items have the same embedding ({alike}, {rank})"
    if most > 1 and found.effective_rank < 1.5:
        return f"collapsed to a line: the items differ in hardly more than one direction ({rank}, {alike})"
    if found.effective_rank < 0.05 * most:
        return f"partly collapsed: few of the {found.dim} directions are used ({rank}, {alike})"
    if found.alike > 0.9:
        return f"not collapsed, but narrow: all embeddings point the same way ({alike}, {rank})"
    return None


def collapse_of(vectors: NDArray[np.float32]) -> str | None:
    """Say how vectors (n, d) have collapsed, judged by at most `LOOKED_AT` of them, or return None."""
    places = np.linspace(0, len(vectors) - 1, min(len(vectors), LOOKED_AT)).astype(np.int64)
    rows = torch.from_numpy(np.ascontiguousarray(vectors[places]))
    if not rows.isfinite().all():
        return f"collapsed: not all embeddings are finite numbers {see('not finite')}"
    return collapse(geometry(rows))


def _figures(found: Geometry) -> tuple[str, str]:
    rank = f"effective rank {found.effective_rank:.1f} of {found.dim}"
    return rank, f"two items have a mean cosine of {found.alike:.3f}"
