"""The present and the future of one sequence are a pair: the pretext task of CPC (van den Oord et al., 2018).

What is expected at frame t of its future at t + k is looked up among encodings of frames. Every frame has an
id, so the positive is never among its negatives, and padding, whose id is −1, never is a candidate.
"""

import torch
from torch import Tensor

NEGATIVES = ("both", "others", "same")
FRAMES = 2**32  # a frame's id is its item's, times this, plus its place in the item


class Future:
    """Contexts and the frames 1 to `horizon` later, each looked up among `candidates` frames besides.

    These are drawn anew for each step ahead: from all frames of the dictionary (`both`, `others`), or from those of the
    query's own sequence (`same`). For `others` the sequence is a second id, by which frames of the query's own drop
    out; so a batch of few sequences leaves it fewer candidates.
    """

    def __init__(self, horizon: int = 12, candidates: int = 128, negatives: str = "both") -> None:
        if horizon < 1 or candidates < 1:
            raise ValueError(f"horizon and candidates must be at least 1, got {horizon} and {candidates}")
        if negatives not in NEGATIVES:
            raise ValueError(f"negatives must be one of {', '.join(NEGATIVES)}, got {negatives!r}")
        self.horizon, self.candidates, self.negatives = horizon, candidates, negatives
        self.columns = 2 if negatives == "others" else 1

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        return items

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        return items

    def frame_ids(self, items: Tensor, first: Tensor, there: Tensor) -> Tensor:
        """Ids of all frames (n · f,) or (n · f, 2), −1 where there is none.

        `items` (n,), their windows' `first` (n,) frame as counted from the item's beginning, `there` (n, f).
        """
        place = first[:, None] + torch.arange(there.shape[1], device=there.device)
        frames = (items[:, None] * FRAMES + place).where(there, -1)
        if self.columns == 1:
            return frames.flatten()
        return torch.stack([frames, items[:, None].expand_as(frames).where(there, -1)], dim=2).flatten(0, 1)

    def draw(self, ids: Tensor, rng: torch.Generator) -> Tensor:
        """Rows (candidates,) among frames of these ids (k,) or (k, g), with replacement; never padding."""
        if not len(ids):  # a queue that is still empty
            return torch.empty(0, dtype=torch.int64, device=ids.device)
        there = (ids if ids.ndim == 1 else ids[:, 0]) >= 0
        return _picked(there[None], torch.rand(1, self.candidates, generator=rng, dtype=torch.float64))[0]

    def draw_within(self, ids: Tensor, rows: slice, total: int, rng: torch.Generator) -> Tensor:
        """Frames (n, candidates) among each sequence's own, ids (n, f); n are the `rows` of `total` sequences."""
        shares = torch.rand(total, self.candidates, generator=rng, dtype=torch.float64)[rows]
        return _picked(ids >= 0, shares)


def _picked(there: Tensor, shares: Tensor) -> Tensor:
    """Places (n, k) of entries that are there, (n, f), by shares in [0, 1); the host need not know how many are."""
    count = there.sum(dim=1, keepdim=True)
    rank = (shares.to(there.device) * count).long().minimum((count - 1).clamp(min=0))
    return torch.searchsorted(there.cumsum(dim=1), rank + 1).clamp(max=there.shape[1] - 1)
