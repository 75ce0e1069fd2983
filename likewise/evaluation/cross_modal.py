"""Cross-modal retrieval: does an image find its text among all texts by cosine, and a text its image?"""

import math
import statistics
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.inputs import rows_of

SCORES_AT_ONCE = 2**22
# Cosines this many units in the last place apart count as equal: those of equal rows differ by up to 10, depending on
# the shape of the matrix product.
ROUNDING = 16


@dataclass(frozen=True)
class Direction:
    """Recall and median rank of the queries' best partners, with everything that they depend on.

    Queries without a partner are not counted, but reported as `left_out`.
    """

    recall: dict[int, float]  # by k: the share of queries with a rank of at most k
    median_rank: float  # 1 is the best; for an even number of queries, the mean of the middle two
    queries: int
    candidates: int
    left_out: int
    # By k: the recall of a random ranking. It follows from the pairs, so two results are equal without comparing it.
    chance: dict[int, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class CrossModal:
    """Retrieval in both directions; neither follows from the other."""

    image_to_text: Direction
    text_to_image: Direction


def cross_modal(images: Tensor, texts: Tensor, pairs: Tensor, *, ks: tuple[int, ...] = (1, 5, 10)) -> CrossModal:
    """Measure how well `images` (n, d) retrieve their `texts` (m, d), and texts their images.

    `pairs` (p, 2) are the rows (image, text) that belong together: an image may have several texts, and
    a text several images. The rank of a query's best partner counts, and its other partners are not
    counted as competitors.
    """
    images, texts = rows_of("image embeddings", images), rows_of("text embeddings", texts)
    if images.shape[1] != texts.shape[1]:
        raise ValueError(f"images and texts must have the same d, got {images.shape[1]} and {texts.shape[1]}")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(f"pairs must be of shape (p, 2) with p >= 1, got {tuple(pairs.shape)}")
    if pairs.is_floating_point():
        raise ValueError(f"pairs must be whole numbers, got {pairs.dtype}")
    pairs = pairs.to(images.device, torch.int64)
    outside = ((pairs < 0) | (pairs >= pairs.new_tensor([len(images), len(texts)]))).any(dim=1)
    if outside.any():
        raise ValueError(
            f"pairs must be rows of the {len(images)} images and {len(texts)} texts, counted from 0, "
            f"got {tuple(pairs[outside][0].tolist())}"
        )
    if not ks or min(ks) < 1:
        raise ValueError(f"ks must be whole numbers >= 1, got {ks}")
    return CrossModal(
        image_to_text=_direction(images, texts, pairs, ks), text_to_image=_direction(texts, images, pairs.flip(1), ks)
    )


@torch.no_grad()
def best_ranks(queries: Tensor, candidates: Tensor, pairs: Tensor) -> Tensor:
    """Return each query's rank: 1 + the number of other candidates with a cosine at least that of its best partner.

    A tie counts against the query, so that a collapsed encoder gets no credit. Shapes: queries (n, d),
    candidates (m, d), pairs (p, 2) of (query, candidate). Only queries with a partner have a rank, in the
    order of their rows.
    """
    # At least float32: in half precision different cosines would tie.
    dtype = torch.promote_types(torch.promote_types(queries.dtype, candidates.dtype), torch.float32)
    candidates = normalize(candidates.to(dtype), dim=1)
    with_partner, owner = torch.unique(pairs[:, 0], return_inverse=True)
    owner, order = owner.sort()
    partner = pairs[order, 1]
    ranks = torch.empty_like(with_partner)
    height = max(1, SCORES_AT_ONCE // len(candidates))
    starts = range(0, len(with_partner), height)
    counts = torch.bincount(owner // height).tolist()  # pairs in each block of queries, at least one
    for start, owners, partners in zip(starts, torch.split(owner, counts), torch.split(partner, counts), strict=True):
        rows = slice(start, start + height)
        scores = normalize(queries[with_partner[rows]].to(dtype), dim=1) @ candidates.T  # (height, m)
        own = owners - start, partners
        best = scores.new_full((len(scores),), -math.inf).scatter_reduce_(0, own[0], scores[own], "amax")
        scores[own] = -math.inf
        threshold = best - ROUNDING * torch.finfo(dtype).eps
        ranks[rows] = 1 + (scores >= threshold[:, None]).sum(dim=1)
    return ranks


def _direction(queries: Tensor, candidates: Tensor, pairs: Tensor, ks: tuple[int, ...]) -> Direction:
    ranks = best_ranks(queries, candidates, pairs)
    return Direction(
        recall={k: int((ranks <= k).sum()) / len(ranks) for k in ks},
        median_rank=float(statistics.median(ranks.tolist())),
        queries=len(ranks),
        candidates=len(candidates),
        left_out=len(queries) - len(ranks),
        chance={k: guessed(pairs, len(candidates), k) for k in ks},
    )


def guessed(pairs: Tensor, candidates: int, k: int) -> float:
    """Return the mean share of queries that a random ranking gives a rank of at most k.

    A query with r partners among m candidates has a rank above k if none of its partners is among the first k, which
    happens with probability ∏ (m − r − i) / (m − i) over i from 0 to k − 1.
    """
    partners = torch.unique(torch.unique(pairs, dim=0)[:, 0], return_counts=True)[1].double()
    missed = torch.ones_like(partners)
    for i in range(min(k, candidates)):
        missed *= ((candidates - partners - i) / (candidates - i)).clamp(min=0)
    return float(1 - missed.mean())
