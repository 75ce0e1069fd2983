"""The geometry of embeddings on the unit sphere, measured without labels: spread out, or collapsed?

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
LOOKED_AT = 1000  # the number of items by which `collapse_of` judges


@dataclass(frozen=True)
class Geometry:
    """How unit rows are spread over the sphere, and how many rows were measured."""

    uniformity: float  # log mean e^(−2 ‖x − y‖²): 0 if all rows are equal, near −4 if they cover the sphere
    effective_rank: float
    alike: float  # mean cosine of two different items
    zeros: int  # items with an embedding of zero, which has no direction
    dim: int
    items: int


def geometry(rows: Tensor) -> Geometry:
    """Measure uniformity, effective rank and mean cosine of rows (n, d) after normalising them."""
    rows = normalize(rows_of("embeddings", rows), dim=1)
    return Geometry(
        uniformity=uniformity(rows),
        effective_rank=effective_rank(rows),
        alike=mean_cosine(rows),
        zeros=int((rows == 0).all(dim=1).sum()),
        dim=rows.shape[1],
        items=len(rows),
    )


def alignment(first: Tensor, second: Tensor) -> float:
    """Return the mean ‖a − b‖² of normalised pairs (n, d): 0 if they agree, about 2 if they are unrelated."""
    first, second = (
        normalize(rows_of("first embeddings", first), dim=1),
        normalize(rows_of("second embeddings", second), dim=1),
    )
    if first.shape != second.shape:
        raise ValueError(f"pairs must have the same shape, got {tuple(first.shape)} and {tuple(second.shape)}")
    return float((first - second).square().sum(dim=1).mean())


@torch.no_grad()
def uniformity(rows: Tensor) -> float:
    """Return `log mean e^(−2 ‖x − y‖²)` over all pairs of unit rows (n, d), in tiles; 0 for a single row."""
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
    """Return how many directions the rows (n, d) use: e^entropy of the singular values of the centred rows.

    It is 1 if all rows lie on a line, min(n − 1, d) if all directions are used equally, and 0 if all rows are equal.
    """
    centred = rows.double() - rows.double().mean(dim=0)
    # The singular values are the square roots of the eigenvalues of the smaller Gram matrix.
    gram = centred.T @ centred if rows.shape[0] >= rows.shape[1] else centred @ centred.T
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    singular = singular.where(singular > 1e-6 * rows.double().norm(), 0)  # remove rounding errors
    if not singular.any():
        return 0.0
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())


def mean_cosine(rows: Tensor) -> float:
    """Return the mean cosine of two different unit rows (n, d); 1 for a single row."""
    n = len(rows)
    if n < 2:
        return 1.0
    rows = rows.double()
    return float(rows.sum(dim=0).square().sum() - rows.square().sum()) / (n * (n - 1))


def verdict(measured: Geometry) -> str:
    """Say in a sentence, with figures, whether the embeddings have collapsed."""
    if measured.items < 2:
        return "there is only one item, so a collapse cannot be measured"
    rank, alike = _figures(measured)
    return collapse(measured) or f"not collapsed: {alike}, {rank}, uniformity {measured.uniformity:.2f}"


def collapse(measured: Geometry) -> str | None:
    """Say in a sentence how the embeddings have collapsed, fully, partly or nearly; return None if they have not."""
    sentence = _collapse(measured)
    return None if sentence is None else f"{sentence} {see('collapse')}"


def _collapse(measured: Geometry) -> str | None:
    if measured.items < 2:
        return None
    rank, alike = _figures(measured)
    most = min(measured.dim, measured.items - 1)
    if measured.zeros > 0.01 * measured.items:
        return f"collapsed: {measured.zeros:,} of {measured.items:,} items have an embedding of zero"
    if measured.alike > 0.99 or measured.effective_rank == 0:
        return f"collapsed: nearly all items have the same embedding ({alike}, {rank})"
    if most > 1 and measured.effective_rank < 1.5:
        return f"collapsed to a line: the items differ in hardly more than one direction ({rank}, {alike})"
    if measured.effective_rank < 0.05 * most:
        return f"partly collapsed: few of the {measured.dim} directions are used ({rank}, {alike})"
    if measured.alike > 0.9:
        return f"not collapsed, but narrow: all embeddings point in similar directions ({alike}, {rank})"
    return None


def collapse_of(vectors: NDArray[np.float32]) -> str | None:
    """Say in a sentence how vectors (n, d) have collapsed, judged by at most `LOOKED_AT` of them, or return None."""
    places = np.linspace(0, len(vectors) - 1, min(len(vectors), LOOKED_AT)).astype(np.int64)
    rows = torch.from_numpy(np.ascontiguousarray(vectors[places]))
    if not rows.isfinite().all():
        return f"collapsed: not all embeddings are finite numbers {see('not finite')}"
    return collapse(geometry(rows))


def _figures(measured: Geometry) -> tuple[str, str]:
    rank = f"effective rank {measured.effective_rank:.1f} of {measured.dim}"
    return rank, f"two items have a mean cosine of {measured.alike:.3f}"
