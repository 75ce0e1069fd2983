"""Compute the features of items by a network, in batches that fit in memory."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise.data import Items
from likewise.data.parts import PIECE, ROWS_AT_ONCE
from likewise.data.tokens import Tokenizer, trimmed
from likewise.encoders.blocked import blocked
from likewise.encoders.folding import folded
from likewise.encoders.sequence import SequenceEncoder
from likewise.views.augmentation import Augmentation


@torch.no_grad()
def features(
    network: nn.Module,
    augmentation: Augmentation,
    items: Items,
    ids: NDArray[np.int64],
    tell_share: Callable[[float], None] = lambda share: None,
) -> Tensor:
    """Return embeddings (n, d) float32 of some items, in evaluation mode, on the host.

    A long sequence is embedded in pieces, whose mean, weighted by length, is its embedding. `tell_share` is called
    after every batch with the fraction of the items that is done, 0 to 1.
    """
    parameter = place_of(network)
    embeddings: Tensor | None = None
    done = 0.0
    with evaluating(network):
        fast_network = for_inference(network)
        for part in items.main.pieces(ids):
            rows = augmentation.plain(torch.from_numpy(part.data).to(parameter.device))
            rows = as_dtype(rows, parameter.dtype)
            vectors = fast_network(rows).float().cpu() * torch.from_numpy(part.shares)[:, None]
            embeddings = vectors.new_zeros(len(ids), vectors.shape[1]) if embeddings is None else embeddings
            embeddings.index_add_(0, torch.from_numpy(part.places), vectors)
            done += float(part.shares.sum())
            tell_share(min(1.0, done / len(ids)))
    assert embeddings is not None
    return embeddings


def as_dtype(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows with the dtype of the weights; tokens, which are whole numbers, stay as they are."""
    return rows.to(dtype) if rows.is_floating_point() else rows


def for_inference(network: nn.Module) -> nn.Module:
    """Return the fastest network in evaluation mode that gives the same features: a copy, or the network itself."""
    # Both changes were only measured on CPUs, so accelerators run the network unchanged.
    return blocked(folded(network)) if place_of(network).device.type == "cpu" else network


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode, and afterwards restore the mode of each of its modules."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def frame_features(
    network: SequenceEncoder,
    augmentation: Augmentation,
    items: Items,
    ids: NDArray[np.int64],
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> Tensor:
    """Return contexts (m, d) float32 of m frames: frame i begins at sample starts[i] of sequence ids[places[i]]."""
    network.eval()  # callers pass a copy, so its mode need not be restored
    parameter = place_of(network)
    frame_contexts = torch.zeros(len(places), network.dim)
    piece = max(1, PIECE // network.hop) * network.hop
    for part in items.main.pieces(ids, network.hop):
        rows = augmentation.plain(torch.from_numpy(part.data).to(parameter.device)).to(parameter.dtype)
        contexts = network.contexts(rows).float().cpu()
        for row, (sequence, first) in enumerate(zip(part.places, part.starts, strict=True)):
            wanted = np.flatnonzero((places == sequence) & (starts // piece * piece == first))
            frame = torch.from_numpy((starts[wanted] - first) // network.hop).clamp(max=contexts.shape[1] - 1)
            frame_contexts[wanted] = contexts[row, frame]
    return frame_contexts


@torch.no_grad()
def text_features(network: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], length: int) -> Tensor:
    """Return embeddings (n, d) float32 of texts, at most `length` tokens of each, in evaluation mode, on the host."""
    with evaluating(network):
        device = place_of(network).device
        tokens = tokenizer.encode(texts, length)
        batches = torch.split(tokens, ROWS_AT_ONCE)
        return torch.cat([network(trimmed(batch).to(device)).float().cpu() for batch in batches])


def place_of(network: nn.Module) -> Tensor:
    """Return a tensor that has the network's device and dtype: its first floating-point parameter or buffer."""
    tensors = itertools.chain(network.parameters(), network.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
