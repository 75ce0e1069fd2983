"""The exact nearest neighbours of embeddings by cosine, in tiles, so that memory does not grow with the queries.

The k largest of n scores lie in the k groups with the largest maxima. So only the maxima of √(n k)
groups are sorted, and then as many scores, instead of all n.
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
    """Yield, tile by tile, a slice of queries, the cosines (m, k) of their nearest, highest first, and places (m, k).

    Shapes: queries (q, d), among (n, d). `own` (q,) is each query's own row in `among`, which is not its neighbour.
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
    """Return the k largest of each row (m, n), largest first, and their columns: `topk` in two short sorts."""
    m, n = scores.shape
    size = math.isqrt(n // max(1, k))  # of a group
    groups = n // size if size > 1 else 0
    if groups <= k:
        return scores.topk(k, dim=1)
    grouped = scores[:, : groups * size].view(m, size, groups)  # groups are columns: maxima over rows are fast
    chosen = grouped.amax(dim=1).topk(k, dim=1, sorted=False).indices  # (m, k)
    picked = grouped.gather(2, chosen[:, None].expand(m, size, k)).flatten(1)
    candidates = torch.cat([picked, scores[:, groups * size :]], dim=1)
    values, places = candidates.topk(k, dim=1)
    inside = places.clamp(max=size * k - 1)
    columns = inside // k * groups + chosen.gather(1, inside % k)
    return values, torch.where(places < size * k, columns, places - size * k + groups * size)
