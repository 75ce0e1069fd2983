"""Exact cosines, and the nearest items by them. Candidates of every kind of index are ranked here.

How a matrix product rounds a score depends on the row's position, so copies of one item would come in a random order.
So the product only preselects: scores within its rounding error of the k best are computed again, pair by pair, in
float64, and rounded to float32.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likewise.evaluation.neighbours import largest

SCORES_AT_ONCE = 2**22
ENTRIES_AT_ONCE = 2**22  # numbers in the rows that are gathered at once
UNIT = 2.0**-22  # a row with a norm this near to 1 is left as it is

Rows = NDArray[np.float32]
Places = NDArray[np.int64]


class SearchError(ValueError):
    """Something that cannot be searched for, or an index that cannot be used. The message is one sentence."""


def slices(count: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `size` that cover `count`."""
    for start in range(0, count, max(1, size)):
        yield slice(start, min(start + max(1, size), count))


def unit_rows(rows: NDArray[np.floating]) -> Rows:
    """Return rows (n, d) of length one; a row of zeros stays zero, so that its cosine with any row is 0."""
    units = np.empty(rows.shape, dtype=np.float32)
    for part in slices(len(rows), ENTRIES_AT_ONCE // rows.shape[1]):
        exact = rows[part].astype(np.float64)
        scale = np.abs(exact).max(axis=1, keepdims=True)  # so that squares neither overflow nor underflow
        exact /= np.where(scale > 0, scale, 1)
        norms = np.linalg.norm(exact, axis=1, keepdims=True)
        exact /= np.where(norms > 0, norms, 1)
        units[part] = np.where(np.abs(scale * norms - 1) < UNIT, rows[part], exact)
    return units


def cosines(a: Rows, rows: Places, b: Rows, places: Places) -> Rows:
    """Return the cosine of each `a[rows]` with `b[places]`, (p,): exactly 1 for equal rows, 0 for rows of zeros."""
    similarity = np.empty(len(rows), dtype=np.float32)
    for part in slices(len(rows), ENTRIES_AT_ONCE // a.shape[1]):
        one, other = a[rows[part]].astype(np.float64), b[places[part]].astype(np.float64)
        dots, *squares = (np.einsum("pd,pd->p", x, y) for x, y in ((one, other), (one, one), (other, other)))
        norms = np.sqrt(squares[0] * squares[1])
        similarity[part] = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0).clip(-1, 1)
    return similarity


def error(d: int) -> float:
    """Return how far a dot product of unit rows, summed in float32 in any order, can be from the cosine."""
    return (d + 16) * 2.0**-24


def ranked(units: Rows, queries: Rows, scores: Tensor, places: Places | None, k: int) -> tuple[Rows, Places]:
    """Return the k nearest of each query by (cosine, smaller place), from scores (m, c) that are exact up to rounding.

    Shapes: units (n, d), queries (m, d). `places` (m, c) are the items of the scores; None if the column is the
    place. A score of −inf is not a candidate; each row must have at least k others.
    """
    bar = largest(scores, k)[0][:, -1:] - 2 * error(units.shape[1])
    rows, columns = (part.numpy() for part in (scores >= bar).nonzero(as_tuple=True))
    candidates = columns if places is None else places[rows, columns]
    similarity = cosines(queries, rows, units, candidates)
    order = np.lexsort((candidates, -similarity, rows))
    firsts = np.searchsorted(rows, np.arange(len(scores)))  # `rows` is sorted, before and after `order`
    chosen = order[firsts[:, None] + np.arange(k)]  # (m, k)
    return similarity[chosen], candidates[chosen]


def search(units: Rows, queries: Rows, k: int, own: Places | None) -> tuple[Rows, Places]:
    """Return the k nearest of unit queries (m, d) among all units (n, d), in tiles; `own` (m,) is never a neighbour."""
    among = torch.from_numpy(units)
    height = max(1, SCORES_AT_ONCE // len(units))
    memory = torch.empty(min(height, len(queries)), len(units))
    similarity = np.empty((len(queries), k), dtype=np.float32)
    places = np.empty((len(queries), k), dtype=np.int64)
    for part in slices(len(queries), height):
        scores = torch.mm(torch.from_numpy(queries[part]), among.T, out=memory[: part.stop - part.start])
        if own is not None:
            scores.scatter_(1, torch.from_numpy(own[part])[:, None], -math.inf)
        similarity[part], places[part] = ranked(units, queries[part], scores, None, k)
    return similarity, places


def rerank(units: Rows, queries: Rows, k: int, candidates: Places) -> tuple[Rows, Places]:
    """Return the k nearest of unit queries (m, d) among their candidates: places (m, c), −1 for no candidate."""
    similarity = np.empty((len(queries), k), dtype=np.float32)
    places = np.empty((len(queries), k), dtype=np.int64)
    for part in slices(len(queries), ENTRIES_AT_ONCE // (candidates.shape[1] * units.shape[1])):
        gathered = torch.from_numpy(units[candidates[part]])  # (m, c, d); a place of −1 gathers any row
        scores = torch.bmm(gathered, torch.from_numpy(queries[part])[:, :, None])[:, :, 0]
        scores[torch.from_numpy(candidates[part] < 0)] = -math.inf
        similarity[part], places[part] = ranked(units, queries[part], scores, candidates[part], k)
    return similarity, places
