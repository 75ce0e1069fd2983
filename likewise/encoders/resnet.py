"""Define ResNets (He et al., 2016) up to the pooled features, with torchvision's parameter names and no classifier.

Each stage halves the sides of the image and has more channels. There are two stems: `imagenet`, a 7 × 7 convolution of
stride 2 and a pooling, which leaves a quarter of each side, and `small`, one 3 × 3 convolution of stride 1 (SimCLR's
for CIFAR), which keeps the size and suits images of up to 64 pixels. Convolutions are initialised by He's normal
distribution (fan-out), norms with weight 1; as in torchvision by default, the last norm of a block does not start at 0.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.encoders.convolutions import Conv1x1, Conv3x3
from likewise.encoders.inputs import check_images, check_known, check_whole

Stem = Literal["imagenet", "small"]

STEMS = ("imagenet", "small")


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions with a shortcut around them."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv3x3(channels, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, images: Tensor) -> Tensor:
        residual = functional.relu(self.bn1(self.conv1(images)), inplace=True)
        residual = self.bn2(self.conv2(residual))
        shortcut = images if self.downsample is None else self.downsample(images)
        return functional.relu(residual.add_(shortcut), inplace=True)


class Bottleneck(nn.Module):
    """Convolutions with a shortcut: 1 × 1 to fewer channels, 3 × 3 with the stride, 1 × 1 to four times as many."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * self.expansion
        self.conv1 = Conv1x1(channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = Conv1x1(width, wide)
        self.bn3 = nn.BatchNorm2d(wide)
        self.downsample = _shortcut(channels, wide, stride)

    def forward(self, images: Tensor) -> Tensor:
        residual = functional.relu(self.bn1(self.conv1(images)), inplace=True)
        residual = functional.relu(self.bn2(self.conv2(residual)), inplace=True)
        residual = self.bn3(self.conv3(residual))
        shortcut = images if self.downsample is None else self.downsample(images)
        return functional.relu(residual.add_(shortcut), inplace=True)


def _shortcut(channels: int, width: int, stride: int) -> nn.Sequential | None:
    """Return the shortcut around a block; None if it is the identity."""
    if stride == 1 and channels == width:
        return None
    return nn.Sequential(Conv1x1(channels, width, stride), nn.BatchNorm2d(width))


class ResNet(nn.Module):
    """Map images (n, c, h, w) to features (n, dim)."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int] = (64, 128, 256, 512),
        strides: Sequence[int] = (1, 2, 2, 2),
        *,
        first: int = 64,
        channels: int = 3,
        stem: Stem = "imagenet",
    ) -> None:
        super().__init__()
        check_whole("channels", channels)
        check_known("stem", stem, STEMS)
        small = stem == "small"
        self.conv1 = Conv3x3(channels, first) if small else nn.Conv2d(channels, first, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        width_in = first
        stages: list[nn.Sequential] = []
        for depth, width, stride in zip(depths, widths, strides, strict=True):
            blocks: list[nn.Module] = []
            for i in range(depth):
                blocks.append(block(width_in, width, stride if i == 0 else 1))
                width_in = width * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.channels = channels
        self.dim: int = width_in
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.channels)
        if images.device.type == "cpu":
            # A CPU is faster with channels last, and later layers keep that order. The output is converted too, because
            # the layout of images with one channel is ambiguous.
            images = self.conv1(images.contiguous(memory_format=torch.channels_last))
            images = images.contiguous(memory_format=torch.channels_last)
        else:
            images = self.conv1(images)
        images = self.maxpool(functional.relu(self.bn1(images), inplace=True))
        images = self.layer4(self.layer3(self.layer2(self.layer1(images))))
        return images.mean(dim=(2, 3))


def resnet_tiny(*, channels: int = 3, stem: Stem = "small") -> ResNet:
    """Return a ResNet for CPUs: 16 channels at full size, then one block each of 32, 64, 128 and 256 channels."""
    halving = (2, 2, 2, 2)
    return ResNet(BasicBlock, (1, 1, 1, 1), (32, 64, 128, 256), halving, first=16, channels=channels, stem=stem)


def resnet18(*, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), channels=channels, stem=stem)


def resnet34(*, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), channels=channels, stem=stem)


def resnet50(*, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), channels=channels, stem=stem)


RESNETS: dict[str, Callable[..., ResNet]] = {
    "resnet_tiny": resnet_tiny,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
}
