"""Define encoders of sequences: strided convolutions, then a context network that sees only the past.

van den Oord et al., 2018 (CPC). Every norm only depends on a single frame (Rivière et al., 2020), because statistics
over time, or over the batch, would leak the future into the context. Frame i sees the samples before (i + 1) · hop and
none after them, so the padding after the end of a sequence does not affect its frames.
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
    """Map rows (n, t, c) to (n, t // stride, width); each output sees its own stride and the one before it.

    The first output sees zeros in place of the stride before it.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__(channels, width, 2 * stride, stride)

    def forward(self, rows: Tensor) -> Tensor:
        padded = functional.pad(rows, (0, 0, self.stride[0], 0))
        # Treat it as an image of height 1 with channels last, which is the memory layout that the rows already have.
        image = padded.transpose(1, 2)[:, :, None]
        output = functional.conv2d(image, self.weight[:, :, None], self.bias, stride=(1, self.stride[0]))
        return output.squeeze(2).transpose(1, 2)  # not output[:, :, 0], because the gradient of indexing is a copy


class Frames(nn.Module):
    """Map samples (n, t, c) to frames (n, max(1, t // hop), width); NaN, which marks padding, counts as 0."""

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
        """Return which frames belong to the sequence and are not padding, (n, f); the first always does."""
        lengths = (~sequences.isnan().any(dim=2)).sum(dim=1)
        count = (lengths // self.hop).clamp(min=1)
        frames = torch.arange(max(1, sequences.shape[1] // self.hop), device=sequences.device)
        return frames < count[:, None]


class Recurrent(nn.GRU):
    """Map frames (n, f, width) to contexts (n, f, dim); context i depends on frames 0 to i."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__(width, dim, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(frames)[0]


class CausalTransformer(nn.Module):
    """Map frames (n, f, width) to contexts (n, f, dim) by attention; context i depends on frames 0 to i."""

    def __init__(self, width: int, dim: int, *, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, frames: Tensor) -> Tensor:
        rows = self.inputs(frames)
        return self.norm(self.blocks(rows + positions(rows)))  # type: ignore[no-any-return]


def positions(rows: Tensor) -> Tensor:
    """Return sinusoidal positions (f, d) for sequences of any length (Vaswani et al., 2017)."""
    f, d = rows.shape[1:]
    position = torch.arange(f, device=rows.device, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, d, 2, device=rows.device) * (-math.log(10_000) / d))
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :d].to(rows.dtype)


CONTEXTS: dict[str, Callable[[int, int], nn.Module]] = {"gru": Recurrent, "transformer": CausalTransformer}


class SequenceEncoder(nn.Module):
    """Map sequences (n, t, c), with NaN after the end of each, to features (n, dim): the mean of the contexts."""

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
        """The samples from one frame to the next."""
        return self.frames.hop

    def contexts(self, sequences: Tensor) -> Tensor:
        """Return contexts (n, f, dim): the summary of each frame and those before it."""
        return self.context(self.frames(sequences))  # type: ignore[no-any-return]

    def forward(self, sequences: Tensor) -> Tensor:
        contexts = self.contexts(sequences)
        is_frame = self.frames.there(sequences)
        return contexts.where(is_frame[:, :, None], 0).sum(dim=1) / is_frame.sum(dim=1, keepdim=True)


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
    """Return the samples from one frame to the next, or 0 if the network is not a `SequenceEncoder`."""
    return network.hop if isinstance(network, SequenceEncoder) else 0
