"""From items to their features: through a network, in parts that fit in memory."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import encoders
from likewise.data import Items
from likewise.data.sequences import Sequences
from likewise.data.tokens import Tokenizer, trimmed
from likewise.encoders.folding import folded
from likewise.views.augmentation import Augmentation

EMBED_BATCH = 256
EMBED_SAMPLES = 2**20  # of sequences at once
PIECE = 2**18  # samples of a sequence that are embedded in one piece


@torch.no_grad()
def features(
    network: nn.Module,
    augmentation: Augmentation,
    items: Items,
    ids: NDArray[np.int64],
    tell_share: Callable[[float], None] = lambda share: None,
) -> Tensor:
    """Embeddings (n, d) float32 of some items, in evaluation mode, on the host.

    A long sequence is embedded in pieces, and is their mean, weighted by their length. `tell_share` is called after
    every part with the share of the items that is done, 0 to 1.
    """
    parameter = place_of(network)
    found: Tensor | None = None
    done = 0.0
    with evaluating(network):
        quickest = for_inference(network)
        for part in parts(items, ids):
            rows = augmentation.plain(torch.from_numpy(part.data).to(parameter.device)).to(parameter.dtype)
            vectors = quickest(rows).float().cpu() * torch.from_numpy(part.shares)[:, None]
            found = vectors.new_zeros(len(ids), vectors.shape[1]) if found is None else found
            found.index_add_(0, torch.from_numpy(part.places), vectors)
            done += float(part.shares.sum())
            tell_share(min(1.0, done / len(ids)))
    assert found is not None
    return found


def for_inference(network: nn.Module) -> nn.Module:
    """Return the fastest network in evaluation mode that gives the same features: a copy, or the network itself."""
    # Folding was measured on CPUs only, so accelerators run the network as it is.
    return folded(network) if place_of(network).device.type == "cpu" else network


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In evaluation mode; then as before, where a part that someone froze stays frozen."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def frame_features(
    network: encoders.SequenceEncoder,
    augmentation: Augmentation,
    items: Sequences,
    ids: NDArray[np.int64],
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> Tensor:
    """Contexts (m, d) float32 of some frames: of the sequence ids[place], from sample `start` on, (m,) each."""
    network.eval()  # a copy is what is evaluated, so nobody's mode changes
    parameter = place_of(network)
    found = torch.zeros(len(places), network.dim)
    piece = max(1, PIECE // network.hop) * network.hop
    for part in parts(items, ids, network.hop):
        rows = augmentation.plain(torch.from_numpy(part.data).to(parameter.device)).to(parameter.dtype)
        contexts = network.contexts(rows).float().cpu()
        for row, (place, first) in enumerate(zip(part.places, part.starts, strict=True)):
            mine = np.flatnonzero((places == place) & (starts // piece * piece == first))
            frame = torch.from_numpy((starts[mine] - first) // network.hop).clamp(max=contexts.shape[1] - 1)
            found[mine] = contexts[row, frame]
    return found


@torch.no_grad()
def text_features(network: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], length: int) -> Tensor:
    """Embeddings (n, d) float32 of texts, at most `length` tokens of each, in evaluation mode, on the host."""
    with evaluating(network):
        where = place_of(network).device
        tokens = tokenizer.encode(texts, length)
        return torch.cat([network(trimmed(part.to(where))).float().cpu() for part in torch.split(tokens, EMBED_BATCH)])


@dataclass(frozen=True)
class Part:
    """Items to be embedded together: their data, whose they are, and which share of it."""

    data: NDArray[Any]  # (m, ...)
    places: NDArray[np.int64]  # (m,): places among the ids asked for
    shares: NDArray[np.float32]  # (m,): 1 for what is whole
    starts: NDArray[np.int64]  # (m,): the first sample of a piece, 0 for what is whole


def parts(items: Items, ids: NDArray[np.int64], hop: int = 1) -> Iterator[Part]:
    """Some items in parts that fit in memory; sequences in pieces of whole frames, those of like length together."""
    if not isinstance(items, Sequences):
        for places in np.array_split(np.arange(len(ids)), max(1, -(-len(ids) // EMBED_BATCH))):
            yield Part(items[ids[places]], places, np.ones(len(places), dtype=np.float32), np.zeros_like(places))
        return
    lengths = items.lengths[ids]
    piece = max(1, PIECE // hop) * hop
    counts = -(-lengths // piece)
    places = np.repeat(np.arange(len(ids)), counts)
    starts = (np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)) * piece
    sizes = np.minimum(piece, lengths[places] - starts)
    order = np.argsort(sizes, kind="stable")
    while len(order):
        # The last of a part is its longest.
        fits = max(1, int(np.searchsorted(sizes[order] * np.arange(1, len(order) + 1), EMBED_SAMPLES, side="right")))
        now, order = order[: min(fits, EMBED_BATCH)], order[min(fits, EMBED_BATCH) :]
        window = items.windows(ids[places[now]], starts[now], int(sizes[now[-1]]))
        yield Part(window, places[now], (sizes[now] / lengths[places[now]]).astype(np.float32), starts[now])


def place_of(network: nn.Module) -> Tensor:
    """A tensor that is where the network is, and of its type."""
    tensors = itertools.chain(network.parameters(), network.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


def channel_statistics(items: Sequences, train: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel over all samples of some sequences; a constant's counts as 1."""
    total, squares, count = 0.0, 0.0, 0
    for part in parts(items, train):
        rows = part.data[~np.isnan(part.data).any(axis=2)].astype(np.float64)
        total, squares, count = total + rows.sum(axis=0), squares + (rows**2).sum(axis=0), count + len(rows)
    mean = np.asarray(total) / count
    std = np.sqrt(np.maximum(0, np.asarray(squares) / count - mean**2))
    return mean.tolist(), np.where(std > 0, std, 1).tolist()
