"""Mutual information: bounded by a loss, or computed exactly from a table of probabilities.

The InfoNCE bound is from van den Oord et al., 2018, and its limits from Poole et al., 2019.
Everything else is from Shannon, 1948.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from likewise.evaluation.inputs import rows_of
from likewise.losses import info_nce

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class Information:
    """A lower bound on the mutual information of pairs in nats, and the highest value that the bound could take."""

    bound: float
    ceiling: float  # log(candidates)
    candidates: int
    temperature: float


@torch.no_grad()
def information(first: Tensor, second: Tensor, *, temperature: float) -> Information:
    """Compute the InfoNCE bound for pairs (n, d): each row of `first` is looked up among all rows of `second`.

    All candidates come from one distribution, so this is a bound and not only an estimate.
    """
    first, second = rows_of("first embeddings", first), rows_of("second embeddings", second)
    loss = float(info_nce(first, second, temperature=temperature))
    candidates = len(second)
    return Information(infonce_bound(loss, candidates), math.log(candidates), candidates, temperature)


def infonce_bound(loss: Number, candidates: int) -> Number:
    """Return the lower bound on mutual information, in nats, that an InfoNCE loss proves: `log(candidates) − loss`.

    `candidates` is the number of keys that one query is looked up among: its positive and the negatives
    that count. The bound cannot exceed log(candidates). It only holds if the negatives are drawn from the
    distribution of the keys; with a queue, a memory bank or masks it is an estimate.
    """
    if isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 1:
        raise ValueError(f"candidates must be a whole number >= 1, got {candidates!r}")
    if not isinstance(loss, Real | Tensor):
        raise ValueError(f"loss must be a number or a tensor, got {loss!r}")
    return math.log(candidates) - loss


def mutual_information(joint: ArrayLike, base: float = 2) -> float:
    """Return how far a joint distribution is from independence, `Σ p(x, y) log p(x, y) / (p(x) p(y))`.

    `joint` is a table of probabilities, one row per x, one column per y; `base` 2 gives bits.
    """
    table = _table(joint)
    x, y = np.nonzero(table)
    p = table[x, y]
    log_ratio = np.log(p) - np.log(table.sum(axis=1)[x]) - np.log(table.sum(axis=0)[y])
    return float((p * log_ratio).sum() / _log_base(base))


def mutual_information_by_entropies(joint: ArrayLike, base: float = 2) -> float:
    """Return the mutual information as the entropy that X and Y share, `H(X) + H(Y) − H(X, Y)`."""
    table = _table(joint)
    return entropy(table.sum(axis=1), base) + entropy(table.sum(axis=0), base) - entropy(table, base)


def mutual_information_by_conditioning(joint: ArrayLike, base: float = 2) -> float:
    """Return the mutual information as the reduction of X's entropy when Y is known, `H(X) − H(X | Y)`."""
    table = _table(joint)
    return entropy(table.sum(axis=1), base) - conditional_entropy(table, base)


def entropy(probabilities: ArrayLike, base: float = 2) -> float:
    """Return `−Σ p log p` of a distribution of any shape."""
    p = _distribution(probabilities)
    return float(-(p[p > 0] * np.log(p[p > 0])).sum() / _log_base(base))


def conditional_entropy(joint: ArrayLike, base: float = 2) -> float:
    """Return `H(X | Y)`: the entropy of x in each column y, averaged over the columns."""
    table = _table(joint)
    columns = table.sum(axis=0)
    return sum(float(p) * entropy(column / p, base) for p, column in zip(columns, table.T, strict=True) if p > 0)


def _table(joint: ArrayLike) -> NDArray[np.float64]:
    table = _distribution(joint)
    if table.ndim != 2:
        raise ValueError(f"joint must be a table of two axes, got shape {table.shape}")
    return table


def _distribution(probabilities: ArrayLike) -> NDArray[np.float64]:
    if isinstance(probabilities, Tensor):
        probabilities = probabilities.detach().cpu().numpy()
    try:
        p = np.asarray(probabilities, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"probabilities must be numbers in rows of one length, got {probabilities!r}") from None
    if not np.all(p >= 0):
        raise ValueError(f"probabilities must not be negative or NaN, got {p[~(p >= 0)][0]:g}")
    if not math.isclose(p.sum(), 1, abs_tol=1e-6):
        raise ValueError(f"probabilities must sum to 1, got {p.sum():g}")
    return p


def _log_base(base: float) -> float:
    if not isinstance(base, Real) or not 1 < base < math.inf:
        raise ValueError(f"base must be a number above 1, got {base!r}")
    return math.log(base)
