"""Masks: which candidates do not count for which query.

Ids do the masking. A candidate that shares an id with the query, in any column, is never
one of its negatives. So duplicates in a batch, an item's older keys in a queue, and the
query's own key are all masked in the same way. A negative id, such as -1, belongs to no
item and matches nothing. A row whose ids are all negative is padding and never a candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


class Mask:
    """Hides the candidates that do not count, in any tile of an (n, k) score matrix.

    `own` lists diagonals to hide without comparing ids: the offsets column - row of each query's own key.
    """

    def __init__(
        self, query_ids: Tensor | None = None, key_ids: Tensor | None = None, *, own: tuple[int, ...] = ()
    ) -> None:
        self.own = own
        self.valid: Tensor | None = None  # (n,): which queries are not padding
        self.left_out: Tensor | None = None  # (n, 1): which queries are padding; None if none is
        self.padding: Tensor | None = None  # (k,): which keys are padding; None if none is
        self.matches: list[Matches | DenseMatches] = []  # one for each column of ids
        if query_ids is None or key_ids is None:
            return
        query_ids, key_ids = as_columns(query_ids), as_columns(key_ids)
        self.valid = ~is_padding(query_ids)
        padding = is_padding(key_ids)
        on_accelerator = padding.device.type != "cpu"  # reading a value back would wait for the device
        if on_accelerator or not self.valid.all():
            self.left_out = ~self.valid[:, None]
        if on_accelerator or padding.any():
            self.padding = padding
        pairs = zip(query_ids.T, key_ids.T, strict=True)
        self.matches = [find_matches(query.contiguous(), key.contiguous()) for query, key in pairs]

    def hide(self, scores: Tensor, rows: slice, columns: slice) -> None:
        """Write -inf in place over the tile `scores`, which is [rows, columns] of the whole matrix."""
        for offset in self.own:
            diagonal = rows.start + offset - columns.start
            if -scores.shape[0] < diagonal < scores.shape[1]:
                scores.diagonal(diagonal).fill_(-torch.inf)
        if self.left_out is not None:
            scores.masked_fill_(self.left_out[rows], -torch.inf)
        if self.padding is not None:
            scores.masked_fill_(self.padding[columns], -torch.inf)
        for matches in self.matches:
            matches.hide(scores, rows, columns)

    def count(self, n: int, k: int, like: Tensor) -> Tensor:
        """Return how many candidates are left for each query, (n,) in the dtype and on the device of `like`."""
        left = torch.full((n,), k, dtype=like.dtype, device=like.device)
        if self.valid is None:
            place = torch.arange(n, device=like.device)
            for offset in self.own:
                left -= ((place + offset >= 0) & (place + offset < k)).to(left.dtype)
            return left
        for rows in steps(n, max(1, 2**20 // max(1, k))):
            scores = torch.zeros(rows.stop - rows.start, k, device=like.device)
            self.hide(scores, rows, slice(0, k))
            left[rows] = (scores == 0).sum(dim=1).to(like.dtype)
        return left


@dataclass(frozen=True)
class Matches:
    """The places (row, column) of equal ids, sorted by column."""

    row: Tensor  # (m,)
    column: Tensor  # (m,)

    def hide(self, scores: Tensor, rows: slice, columns: slice) -> None:
        first, last = torch.searchsorted(self.column, torch.tensor([columns.start, columns.stop])).tolist()
        if first == last:
            return
        row, column = self.row[first:last] - rows.start, self.column[first:last] - columns.start
        inside = (row >= 0) & (row < len(scores))
        scores[row[inside], column[inside]] = -torch.inf


@dataclass(frozen=True)
class DenseMatches:
    """Ids of queries (n,) and keys (k,), compared one tile at a time."""

    query_ids: Tensor
    key_ids: Tensor

    def hide(self, scores: Tensor, rows: slice, columns: slice) -> None:
        query_ids, key_ids = self.query_ids[rows, None], self.key_ids[columns]
        scores.masked_fill_((query_ids == key_ids) & (key_ids >= 0), -torch.inf)


def find_matches(query_ids: Tensor, key_ids: Tensor) -> Matches | DenseMatches:
    """Find where the ids of queries (n,) equal those of keys (k,).

    On a CPU, comparing the ids of a tile costs as much as the product that makes its scores, although
    few of them match. So their places are computed once, by sorting. Ids are compared tile by tile
    for small matrices, where sorting does not pay, and on accelerators, where the program would have
    to wait for the number of matches.
    """
    if query_ids.device.type != "cpu" or len(query_ids) * len(key_ids) <= 2**16:
        return DenseMatches(query_ids, key_ids)
    present, order = query_ids.sort()
    first = torch.searchsorted(present, key_ids)
    has_match = present[first.clamp(max=len(present) - 1)] == key_ids
    keys = (has_match & (key_ids >= 0)).nonzero().squeeze(1)
    first = first[keys]
    count = torch.searchsorted(present, key_ids[keys], right=True) - first
    before = count.cumsum(dim=0) - count
    places = int(count.sum())
    if places > 8 * (len(query_ids) + len(key_ids)):  # too many matches to list, e.g. if the ids are labels
        return DenseMatches(query_ids, key_ids)
    place_in_run = torch.arange(places) - before.repeat_interleave(count)
    return Matches(order[first.repeat_interleave(count) + place_in_run], keys.repeat_interleave(count))


def as_columns(ids: Tensor, axes: int = 1) -> Tensor:
    """Return ids with a last axis for their g columns; ids of only `axes` axes become one column."""
    return (ids[..., None] if ids.ndim == axes else ids).to(torch.int64)


def is_padding(ids: Tensor) -> Tensor:
    """Return which rows are padding: those whose ids (..., g) are all negative."""
    return (ids < 0).all(dim=-1)


def share_an_id(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """Return (..., n, k): which queries, of ids (..., n, g), share an id with which keys, of ids (..., k, g)."""
    query_ids, key_ids = query_ids[..., :, None, :], key_ids[..., None, :, :]
    return ((query_ids == key_ids) & (key_ids >= 0)).any(dim=-1)


def steps(length: int, step: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `step` that cover `length`."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
