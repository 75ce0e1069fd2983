"""CPC's question, once for each step ahead: which of these frames comes so many frames after this context?

van den Oord et al., 2018. A look-up is made of all frames of the batch as queries; what a frame expects is
looked up among its true future and frames drawn for this step ahead.
"""

import torch
from torch import Tensor

from likewise import ranks
from likewise.dictionaries import Found
from likewise.pairs.future import Future
from likewise.randomness import generator
from likewise.training.batches import Batch
from likewise.training.scores import LookUp


def look_ups_ahead(
    pairs: Future,
    query: Tensor,
    found: Found,
    ids: Tensor,
    batch: Batch,
    *,
    size: int,
    seed: int,
) -> list[LookUp]:
    """A look-up for each step ahead.

    query (n, f, horizon, d): what each frame expects; found.positive (n · f, d): the frames' encodings;
    ids (n · f,) or (n · f, 2): the frames' own; `size` is that of the batch over all ranks.
    """
    n, frames = query.shape[:2]
    key, ids = found.positive, ids.view(n, frames, *ids.shape[1:])
    look_ups = []
    # One column of the horizon is a view, so a query is never copied; that is also why no frame is cut off.
    for ahead, expected in enumerate(query.flatten(0, 1).unbind(dim=1), start=1):
        rng = generator(seed, f"candidates {ahead} ahead", batch.step)
        if pairs.negatives == "same":
            places = pairs.draw_within(ids, batch.rows, size, rng)
            negatives = key.view(n, frames, -1).take_along_dim(places[:, :, None], dim=1)
            negative_ids = ids.take_along_dim(places, dim=1)
        else:
            rows = pairs.draw(found.negative_ids, rng)
            negatives, negative_ids = found.negatives[rows], found.negative_ids[rows]
        # A query has the id of the frame it looks for, t + k and not t; the last ones of a sequence look for none.
        wanted = torch.full_like(ids, -1)
        wanted[:, :-ahead] = ids[:, ahead:]
        look_up = LookUp(
            expected,
            Found(key.roll(-ahead, dims=0), negatives, negative_ids),
            wanted.flatten(0, 1),
            None,
            distinct=False,
        )
        look_ups.append(look_up)
    return _weighted(look_ups)


def _weighted(look_ups: list[LookUp]) -> list[LookUp]:
    """Each with its part in the mean over all ranks' queries, of which some ranks may have more than others.

    A step so far ahead that no sequence of the batch reaches it is no part of the mean over the steps.
    """
    counts = torch.stack([look_up.there.sum() for look_up in look_ups]).to(look_ups[0].query.dtype)
    means = ranks.mean(counts)
    reached = means > 0
    weights = counts / means.where(reached, 1) * len(look_ups) / reached.sum().clamp(min=1)
    return [look_up.with_weight(weight) for look_up, weight in zip(look_ups, weights, strict=True)]
