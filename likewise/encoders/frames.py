"""Define frame encoders: what a sequence encoder computes for every `hop` samples, before the context.

van den Oord et al., 2018 (CPC). Every norm only depends on a single frame (Rivière et al., 2020), because statistics
over time, or over the batch, would leak the future into the context. Frame i sees the samples before (i + 1) · hop and
none after them, so the padding after the end of a sequence does not affect its frames.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class FrameEncoder(nn.Module):
    """Map samples (n, t, c) to frames (n, max(1, t // hop), width); NaN, which marks padding, counts as 0."""

    def __init__(self, channels: int, hop: int, width: int) -> None:
        super().__init__()
        self.channels, self.hop, self.width = channels, hop, width

    def forward(self, sequences: Tensor) -> Tensor:
        check_sequences(sequences, self.channels)
        rows = sequences.nan_to_num(nan=0.0)
        return self.encode(functional.pad(rows, (0, 0, 0, max(0, self.hop - rows.shape[1]))))

    def encode(self, rows: Tensor) -> Tensor:
        """Return the frames of rows (n, t, c) without NaN, t at least `hop`."""
        raise NotImplementedError

    def there(self, sequences: Tensor) -> Tensor:
        """Return which frames belong to the sequence and are not padding, (n, f); the first always does."""
        lengths = (~sequences.isnan().any(dim=2)).sum(dim=1)
        count = (lengths // self.hop).clamp(min=1)
        frames = torch.arange(max(1, sequences.shape[1] // self.hop), device=sequences.device)
        return frames < count[:, None]


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


class Frames(FrameEncoder):
    """Encode samples by strided causal convolutions, as CPC does."""

    def __init__(self, channels: int, strides: tuple[int, ...], width: int) -> None:
        super().__init__(channels, math.prod(strides), width)
        inputs = (channels, *[width] * (len(strides) - 1))
        self.convolutions = nn.ModuleList(
            CausalConvolution(c, width, stride) for c, stride in zip(inputs, strides, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in strides)

    def encode(self, rows: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            rows = functional.relu(norm(convolution(rows)))
        return rows


def check_sequences(sequences: Tensor, channels: int) -> None:
    if sequences.ndim != 3 or sequences.shape[2] != channels or sequences.shape[1] < 1:
        raise ValueError(f"sequences must be of shape (n, t, {channels}), got {tuple(sequences.shape)}")
