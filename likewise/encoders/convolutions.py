"""Define convolutions that a CPU computes faster in another form, with the parameters and results of `nn.Conv2d`.

ResNets spend most of a training step in convolutions, and in two of their shapes torch's kernels do needless work. A
1 × 1 convolution with a stride reads and writes pixels that it skips. A 3 × 3 convolution of 2 × 2 pixels, which is
what `resnet_tiny` has in its last stage for images of 32 pixels, multiplies mostly zeros of the padding. Other devices,
graphs that are compiled or exported, and convolutions whose attributes were changed use torch's own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FEWEST = 64  # images; for fewer, building the matrix takes longer than it saves


class Conv1x1(nn.Conv2d):
    """A 1 × 1 convolution without padding. On a CPU, it first takes the pixels that its stride does not skip."""

    def __init__(self, channels: int, width: int, stride: int = 1, *, bias: bool = False) -> None:
        super().__init__(channels, width, 1, stride, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        down, across = self.stride
        if _by_torch(images) or down * across == 1 or self.padding != (0, 0) or not is_usual(self):
            return super().forward(images)
        taken = images.permute(0, 2, 3, 1)[:, ::down, ::across].contiguous()  # channels stay last in memory
        return functional.conv2d(taken.permute(0, 3, 1, 2), self.weight, self.bias)


class Conv3x3(nn.Conv2d):
    """A 3 × 3 convolution with padding 1. On a CPU, it maps 2 × 2 pixels to 2 × 2 pixels by one matrix."""

    def __init__(self, channels: int, width: int, stride: int = 1, *, bias: bool = False) -> None:
        super().__init__(channels, width, 3, stride, padding=1, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        if _by_torch(images) or not self._fits(images):
            return super().forward(images)
        pixels = images.permute(0, 2, 3, 1).flatten(1)  # (n, 2 · 2 · c)
        bias = None if self.bias is None else self.bias.repeat(4)
        mapped = functional.linear(pixels, self._matrix(), bias)
        return mapped.view(-1, 2, 2, self.out_channels).permute(0, 3, 1, 2)

    def _fits(self, images: Tensor) -> bool:
        """Return whether the matrix applies to these images, and pays."""
        from_two_to_two = images.shape[2:] == (2, 2) and self.stride == (1, 1) == self.padding
        return from_two_to_two and len(images) >= FEWEST and is_usual(self)

    def _matrix(self) -> Tensor:
        """Return the matrix (2 · 2 · width, 2 · 2 · c) from all input pixels to all output pixels."""
        # Output pixel (i, j) sees input pixel (y, x) through the weight at row 1 + y - i and column 1 + x - j.
        pixels = [(i, j) for i in range(2) for j in range(2)]
        taps = [3 * (1 + y - i) + 1 + x - j for i, j in pixels for y, x in pixels]
        width, channels = self.weight.shape[:2]
        weights = self.weight.flatten(2).permute(2, 0, 1)  # (9, width, c)
        blocks = weights.index_select(0, torch.tensor(taps, device=weights.device)).view(4, 4, width, channels)
        return blocks.permute(0, 2, 1, 3).reshape(4 * width, 4 * channels)


def is_usual(convolution: nn.Conv2d) -> bool:
    """Return whether a convolution has no dilation and no groups, and is padded with zeros."""
    return (convolution.dilation, convolution.groups, convolution.padding_mode) == ((1, 1), 1, "zeros")


def _by_torch(images: Tensor) -> bool:
    """Return whether torch's own convolution is wanted: off the CPU, and in a graph that is compiled or exported."""
    is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return images.device.type != "cpu" or is_graph
