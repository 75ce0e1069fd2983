"""What an encoder is compared with: the items themselves, as plain vectors.

Images are their pixels, vectors what they are, audio statistics of its cepstra, other series of their channels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise.data import Items
from likewise.data.sequences import Sequences
from likewise.data.spectra import mfcc
from likewise.training.features import EMBED_BATCH, PIECE
from likewise.training.plan import is_audio
from likewise.views.augmentation import Augmentation
from likewise.views.crops import centre_square
from likewise.views.images import PlainViews

Ids = NDArray[np.int64]
SIDE = 32  # images are compared at no more pixels than this, so that they fit in memory


@dataclass(frozen=True)
class Frames:
    """Some frames of some sequences: m of them."""

    places: Ids  # (m,): of the sequence among those asked for
    starts: Ids  # (m,): its first sample

    @staticmethod
    def of(items: Sequences, ids: Ids, hop: int, most: int) -> "Frames":
        """At most so many frames, evenly from first to last."""
        ends = np.cumsum(np.maximum(1, items.lengths[ids] // hop))
        total = int(ends[-1])
        chosen = np.linspace(0, total - 1, min(most, total)).astype(np.int64)
        places = np.searchsorted(ends, chosen, side="right")
        return Frames(places, (chosen - np.concatenate([[0], ends])[places]) * hop)


def name_of(items: Items, by: str) -> str:
    if not isinstance(items, Sequences):
        return "raw input"
    if is_audio(items):
        return "MFCC" if by == "frame" else "MFCC statistics"
    return "raw samples" if by == "frame" else "channel statistics"


def vectors(items: Items, ids: Ids) -> Tensor:
    """(n, d) for items by id."""
    if isinstance(items, Sequences):
        describe = _cepstra_statistics if is_audio(items) else _channel_statistics
        return torch.from_numpy(np.stack([describe(whole(items, i), items.rate) for i in ids]).astype(np.float32))
    if items.kind == "vector":
        return torch.from_numpy(items[ids]).float()
    side = min(SIDE, *items.array.shape[2:])
    parts = np.array_split(ids, max(1, -(-len(ids) // EMBED_BATCH)))
    return torch.cat([centre_square(torch.from_numpy(items[part]), side).flatten(1) / 255 for part in parts])


def of_views(views: Tensor, augmentation: Augmentation) -> Tensor:
    """Pixels of drawn views, (n, d), as `vectors` has them."""
    if isinstance(augmentation, PlainViews):
        views = augmentation.restored(views)
        if views.shape[-1] > SIDE:
            views = nn.functional.interpolate(views, size=SIDE, mode="area")
    return views.flatten(1)


def of_frames(items: Sequences, ids: Ids, frames: Frames, hop: int) -> Tensor:
    """(m, d) for frames: the cepstra at each, or the samples in it."""
    found = []
    for place in np.unique(frames.places):
        sequence, starts = whole(items, ids[place]), frames.starts[frames.places == place]
        if is_audio(items):
            cepstra = _cepstra(sequence[:, 0], items.rate)
            found.append(cepstra[np.minimum(np.rint(starts / (0.010 * items.rate)).astype(int), len(cepstra) - 1)])
        else:
            reach = np.minimum(starts[:, None] + np.arange(hop), len(sequence) - 1)
            found.append(sequence[reach].reshape(len(starts), -1))
    return torch.from_numpy(np.concatenate(found).astype(np.float32))


def whole(items: Sequences, item: int) -> NDArray[np.float32]:
    """One sequence (t, c)."""
    window: NDArray[np.float32] = items.windows(np.array([item]), np.array([0]), int(items.lengths[item]))[0]
    return window


def _cepstra(audio: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """(frames, 20), one every 10 ms; of a long recording piece by piece, or its spectra would fill the memory."""
    hop = round(0.010 * rate)
    piece = PIECE // hop * hop
    found = []
    for start in range(0, len(audio), piece):
        # A little more than the piece, so that its last frames are whole, and no more frames than it has.
        found.append(mfcc(audio[start : start + piece + 4 * hop], rate)[: piece // hop])
    return np.concatenate(found)


def _cepstra_statistics(sequence: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Mean and standard deviation over time of the cepstra and of their differences, (80,)."""
    cepstra = _cepstra(sequence[:, 0], rate)
    changes = np.diff(cepstra, axis=0, prepend=cepstra[:1])
    found: NDArray[np.float32] = np.concatenate(
        [part for rows in (cepstra, changes) for part in (rows.mean(axis=0), rows.std(axis=0))]
    )
    return found


def _channel_statistics(sequence: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Mean, deviation, quartiles, extremes and mean step of every channel, (8 c,)."""
    steps = np.abs(np.diff(sequence, axis=0, prepend=sequence[:1]))
    quantiles = np.quantile(sequence, [0, 0.25, 0.5, 0.75, 1], axis=0)
    found: NDArray[np.float32] = np.concatenate(
        [sequence.mean(axis=0), sequence.std(axis=0), *quantiles, steps.mean(axis=0)]
    )
    return found
