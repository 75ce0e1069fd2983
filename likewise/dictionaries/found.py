"""What every dictionary returns, and how it validates keys and ids."""

from typing import NamedTuple

import torch
from torch import Tensor

INTEGERS = (torch.int64, torch.int32)


class Found(NamedTuple):
    """The candidates that a look-up found. The loss masks negatives that share an id with the query."""

    positive: Tensor  # (n, d)
    negatives: Tensor  # (k, d)
    negative_ids: Tensor  # (k,) or (k, g)


class Stored(NamedTuple):
    """The keys that a dictionary still holds from one update, and their rows in the batch of that update."""

    keys: Tensor  # (m, d)
    rows: Tensor  # (m,)


def check_keys(key: Tensor, ids: Tensor, dim: int | None = None, columns: int | None = None) -> None:
    """Check for keys (n, d) and whole-number ids (n,) or (n, g)."""
    if key.ndim != 2 or not key.is_floating_point() or (dim is not None and key.shape[1] != dim):
        expected = f"(n, {dim if dim is not None else 'd'})"
        raise ValueError(f"key must be floating-point of shape {expected}, got {key.dtype} of {tuple(key.shape)}")
    if ids.dtype not in INTEGERS or ids.ndim not in (1, 2) or len(ids) != len(key):
        expected = f"({len(key)},) or ({len(key)}, g)"
        raise ValueError(f"ids must be whole numbers of shape {expected}, got {ids.dtype} of {tuple(ids.shape)}")
    if columns is not None and as_columns(ids).shape[1] != columns:
        raise ValueError(f"ids must have {columns} columns, got {as_columns(ids).shape[1]}")


def check_whole(name: str, number: int, least: int = 1) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


def check_momentum(momentum: float) -> None:
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum, the share of the old value that is kept, must be in [0, 1], got {momentum:g}")


def as_columns(ids: Tensor) -> Tensor:
    """Return ids (n,) as (n, 1)."""
    return ids[:, None] if ids.ndim == 1 else ids


def as_given(ids: Tensor) -> Tensor:
    """Return ids (n, 1) as (n,), the form in which single ids are given."""
    return ids[:, 0] if ids.shape[1] == 1 else ids
