"""Find groups of near-duplicates: items linked, directly or through others, by cosines of at least a threshold.

A flat index compares every pair, in tiles above the diagonal. Other indexes are searched for the neighbours of each
item, and for more neighbours if all of them are above the threshold. Links are merged block by block, so memory grows
only with the number of items.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from likewise.guide import see
from likewise.search import exact
from likewise.search.exact import Places, Rows, SearchError, slices
from likewise.search.index import QUERIES_AT_ONCE, Index

LINKS, LINKS_AN_ITEM = 1_000_000, 100  # the limit on links is the larger of the two
FIRST, MORE = 16, 4  # neighbours searched for at first, and the factor by which they grow

Links = tuple[Places, Places, Rows]  # one end, the other end, cosine; each (p,)


@dataclass(frozen=True)
class Group:
    """A group of near-duplicates."""

    places: tuple[int, ...]  # two or more, ascending
    similarity: float  # the smallest cosine of its links


def duplicates(index_or_vectors: Index | NDArray[Any], threshold: float) -> list[Group]:
    """Return groups of items linked by cosines of at least `threshold`, the largest first, then by their first item.

    Items without a link are in no group. Rows of zeros have no direction and are never linked.
    """
    if not 0 < threshold <= 1:
        raise SearchError(f"threshold must be above 0 and at most 1, got {threshold:g}")
    index, least = Index.of(index_or_vectors), np.float32(threshold)
    firsts, copy_of = _distinct(index.vectors)
    flat = index.structure is None
    blocks = (
        _links_of_pairs(index.vectors, firsts, least) if flat else _links_of_neighbours(index, firsts, FIRST, least)
    )
    allowed = max(LINKS, LINKS_AN_ITEM * len(index))
    group, lowest, count = np.arange(len(index)), np.ones(len(index), dtype=np.float32), 0.0
    waiting: list[tuple[Places, Places]] = []
    for one, other, similarity in blocks:
        if not len(one):
            continue
        count += len(one) * (1 if flat else 0.5)  # a neighbour search finds each link from both ends
        if count > allowed:
            raise SearchError(
                f"expected at most {allowed:,} pairs with a cosine of at least {threshold:g} among {len(index):,} "
                f"items, got more: raise the threshold, or check whether the encoder has collapsed {see('collapse')}"
            )
        np.minimum.at(lowest, one, similarity)
        waiting.append((one, copy_of[other]))
        if sum(len(ends) for ends, _ in waiting) > len(index):  # merging visits every item, so wait for enough links
            group, waiting = _merged(group, waiting), []
    return _groups(_merged(group, waiting)[copy_of], lowest)


def _distinct(vectors: Rows) -> tuple[Places, Places]:
    """Return the places of distinct rows, and for each item the place of its first copy, (n,).

    So that thousands of blank pictures, say, are compared only once.
    """
    copy_of = np.arange(len(vectors))
    seen: dict[bytes, int] = {}
    for place, row in enumerate(vectors):
        if row.any():
            copy_of[place] = seen.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), place)
    return np.flatnonzero(copy_of == np.arange(len(vectors))), copy_of


def _links_of_pairs(vectors: Rows, firsts: Places, least: np.float32) -> Iterator[Links]:
    """Yield each link between distinct rows once, by comparing all pairs."""
    rows = vectors if len(firsts) == len(vectors) else vectors[firsts]
    among, bar = torch.from_numpy(rows), float(least) - exact.error(rows.shape[1])
    start = 0
    while start < len(rows):
        stop = min(len(rows), start + max(1, exact.SCORES_AT_ONCE // (len(rows) - start)))
        scores = among[start:stop] @ among[start:].T
        above = (scores >= bar).triu_(diagonal=1)
        one, other = (part.numpy() + start for part in above.nonzero(as_tuple=True))
        yield _linked(firsts[one], firsts[other], exact.cosines(rows, one, rows, other), least)
        start = stop


def _links_of_neighbours(index: Index, items: Places, k: int, least: np.float32) -> Iterator[Links]:
    """Yield the links of items to their k nearest, and to more neighbours if all k are linked."""
    for part in slices(len(items), min(QUERIES_AT_ONCE, exact.SCORES_AT_ONCE // k)):
        similarity, places = index.search(index.vectors[items[part]], k, exclude=items[part])
        k = min(k, places.shape[1])
        unfinished = (similarity >= least).all(axis=1) & (k < len(index) - 1)
        done = ~unfinished
        one = np.repeat(items[part][done], k)
        yield _linked(one, places[done].ravel(), similarity[done].ravel(), least)
        yield from _links_of_neighbours(index, items[part][unfinished], MORE * k, least)


def _linked(one: Places, other: Places, similarity: Rows, least: np.float32) -> Links:
    is_link = similarity >= least
    return one[is_link], other[is_link], similarity[is_link]


def _merged(group: Places, links: list[tuple[Places, Places]]) -> Places:
    """Return the group of each item (n,) after merging groups by these links."""
    ends = [group[np.concatenate([pair[side] for pair in links] or [group[:0]])] for side in (0, 1)]
    edges = coo_array((np.ones(len(ends[0]), dtype=np.bool_), tuple(ends)), shape=(len(group), len(group)))
    merged: Places = connected_components(edges, directed=False)[1].astype(np.int64)[group]
    return merged


def _groups(group: Places, lowest: Rows) -> list[Group]:
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    smallest = np.minimum.reduceat(lowest[order], starts)
    groups = [
        Group(tuple(order[start : start + size].tolist()), float(similarity))
        for start, size, similarity in zip(starts, sizes, smallest, strict=True)
        if size > 1
    ]
    return sorted(groups, key=lambda group: (-len(group.places), group.places[0]))
