"""The nearest neighbours of embeddings by cosine, exactly, in tiles: memory does not grow with the queries.

A row's k largest of n scores lie in the k groups with the largest maxima, so only √(n k) groups'
maxima and then as many scores are sorted, not n.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

SCORES_AT_ONCE = 2**22


def nearest(
    queries: Tensor, among: Tensor, k: int, *, own: Tensor | None = None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Tile by tile: rows of the queries, cosines (m, k) with their nearest, most alike first, and places (m, k).

    Shapes: queries (q, d), among (n, d). `own` (q,) is each query's own place in `among`, never its neighbour.
    """
    among = normalize(among, dim=1)
    k = min(k, len(among) - (own is not None))
    height = max(1, SCORES_AT_ONCE // len(among))
    scores = among.new_empty(min(height, len(queries)), len(among))
    for start in range(0, len(queries), height):
        rows = slice(start, min(start + height, len(queries)))
        tile = torch.mm(normalize(queries[rows], dim=1), among.T, out=scores[: rows.stop - start])
        if own is not None:
            tile.scatter_(1, own[rows, None], -math.inf)
        yield rows, *largest(tile, k)


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (m, n), largest first, and their places: `topk`, in two short sorts."""
    m, n = scores.shape
    size = math.isqrt(n // max(1, k))  # of a group
    groups = n // size if size > 1 else 0
    if groups <= k:
        return scores.topk(k, dim=1)
    grouped = scores[:, : groups * size].view(m, size, groups)  # a group is a column: maxima of whole rows are fast
    chosen = grouped.amax(dim=1).topk(k, dim=1, sorted=False).indices  # (m, k)
    picked = grouped.gather(2, chosen[:, None].expand(m, size, k)).flatten(1)
    candidates = torch.cat([picked, scores[:, groups * size :]], dim=1)
    values, places = candidates.topk(k, dim=1)
    inside = places.clamp(max=size * k - 1)
    columns = inside // k * groups + chosen.gather(1, inside % k)
    return values, torch.where(places < size * k, columns, places - size * k + groups * size)
