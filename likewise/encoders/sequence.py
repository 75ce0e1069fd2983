"""Encoders of sequences: strided convolutions, then a context network that sees only the past.

van den Oord et al., 2018 (CPC). Every norm looks at one frame alone (Rivière et al., 2020): statistics over
time, or over a batch in training, would tell the context of its future. Frame i sees samples before (i + 1) · hop
and none behind them, so what pads the end of a sequence reaches no frame of it.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.encoders.inputs import check_known, check_whole
from likewise.encoders.vit import Block


class CausalConvolution(nn.Conv1d):
    """Rows (n, t, c) to (n, t // stride, width): each output sees its stride and the one before, zeros before all."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__(channels, width, 2 * stride, stride)

    def forward(self, rows: Tensor) -> Tensor:
        padded = functional.pad(rows, (0, 0, self.stride[0], 0))
        # As an image of one row, channels last: that is how the rows lie in memory already.
        image = padded.transpose(1, 2)[:, :, None]
        found = functional.conv2d(image, self.weight[:, :, None], self.bias, stride=(1, self.stride[0]))
        return found.squeeze(2).transpose(1, 2)  # not found[:, :, 0]: the gradient of an index is a copy


class Frames(nn.Module):
    """Samples (n, t, c) to frames (n, max(1, t // hop), width); NaN, which is padding, counts as 0."""

    def __init__(self, channels: int, strides: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.channels, self.hop, self.width = channels, math.prod(strides), width
        inputs = (channels, *[width] * (len(strides) - 1))
        self.convolutions = nn.ModuleList(
            CausalConvolution(c, width, stride) for c, stride in zip(inputs, strides, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in strides)

    def forward(self, sequences: Tensor) -> Tensor:
        check_sequences(sequences, self.channels)
        rows = sequences.nan_to_num(nan=0.0)
        rows = functional.pad(rows, (0, 0, 0, max(0, self.hop - rows.shape[1])))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            rows = functional.relu(norm(convolution(rows)))
        return rows

    def there(self, sequences: Tensor) -> Tensor:
        """Which frames are the sequence's own and no padding, (n, f); the first always is."""
        lengths = (~sequences.isnan().any(dim=2)).sum(dim=1)
        count = (lengths // self.hop).clamp(min=1)
        places = torch.arange(max(1, sequences.shape[1] // self.hop), device=sequences.device)
        return places < count[:, None]


class Recurrent(nn.GRU):
    """Frames (n, f, width) to contexts (n, f, dim), each of the frames up to its own."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__(width, dim, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(frames)[0]


class CausalTransformer(nn.Module):
    """Frames (n, f, width) to contexts (n, f, dim) by attention over the frames up to each one's own."""

    def __init__(self, width: int, dim: int, *, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, frames: Tensor) -> Tensor:
        rows = self.inputs(frames)
        return self.norm(self.blocks(rows + positions(rows)))  # type: ignore[no-any-return]


def positions(rows: Tensor) -> Tensor:
    """Sines and cosines of each place (f, d), for sequences of any length (Vaswani et al., 2017)."""
    f, d = rows.shape[1:]
    place = torch.arange(f, device=rows.device, dtype=torch.float32)[:, None]
    slowness = torch.exp(torch.arange(0, d, 2, device=rows.device) * (-math.log(10_000) / d))
    angle = place * slowness
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :d].to(rows.dtype)


CONTEXTS: dict[str, Callable[[int, int], nn.Module]] = {"gru": Recurrent, "transformer": CausalTransformer}


class SequenceEncoder(nn.Module):
    """Sequences (n, t, c), NaN behind the end of each, to features (n, dim): the mean of its contexts."""

    def __init__(
        self, *, strides: tuple[int, ...], width: int, dim: int, channels: int = 1, context: str = "gru"
    ) -> None:
        super().__init__()
        check_whole("channels", channels)
        check_known("context", context, CONTEXTS)
        self.frames = Frames(channels, strides, width)
        self.context = CONTEXTS[context](width, dim)
        self.dim: int = dim

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return self.frames.hop

    def contexts(self, sequences: Tensor) -> Tensor:
        """(n, f, dim): what is known after each frame, of that frame and those before it."""
        return self.context(self.frames(sequences))  # type: ignore[no-any-return]

    def forward(self, sequences: Tensor) -> Tensor:
        contexts = self.contexts(sequences)
        there = self.frames.there(sequences)
        return contexts.where(there[:, :, None], 0).sum(dim=1) / there.sum(dim=1, keepdim=True)


def check_sequences(sequences: Tensor, channels: int) -> None:
    if sequences.ndim != 3 or sequences.shape[2] != channels or sequences.shape[1] < 1:
        raise ValueError(f"sequences must be of shape (n, t, {channels}), got {tuple(sequences.shape)}")


SEQUENCE_ENCODERS: dict[str, partial[SequenceEncoder]] = {
    "audio_16k": partial(SequenceEncoder, strides=(5, 4, 2, 2, 2), width=512, dim=256),  # the paper's: 10 ms at 16 kHz
    "audio_16k_small": partial(SequenceEncoder, strides=(5, 4, 2, 2, 2), width=128, dim=256),
    "audio_8k": partial(SequenceEncoder, strides=(5, 4, 2, 2), width=128, dim=256),  # 10 ms at 8 kHz
    "sensors": partial(SequenceEncoder, strides=(2, 2), width=128, dim=128),
}


def hop_of(network: nn.Module) -> int:
    """Return the samples from one frame to the next, where a network has frames and contexts; else 0."""
    return network.hop if isinstance(network, SequenceEncoder) else 0
