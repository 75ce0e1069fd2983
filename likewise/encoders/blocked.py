"""Run ResNets in oneDNN's own memory layout, for faster inference on a CPU.

torch computes convolutions on a CPU by oneDNN, whose fastest kernels want images in blocks of 8 or 16 channels. With
ordinary tensors, images are converted around each layer, or slower kernels are used. Here they are converted once on
the way into the network and once on the way out. Such tensors have no gradients here.
"""

import copy
import platform

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.encoders.convolutions import Conv1x1, Conv3x3, is_usual
from likewise.encoders.inputs import check_images
from likewise.encoders.resnet import BasicBlock, Bottleneck, ResNet

MEASURED_ON = ("x86_64", "AMD64")  # elsewhere oneDNN may only have slow kernels for this layout
# Parts of a ResNet of this package after its norms have been folded. Others may not know tensors in this layout.
KNOWN = (ResNet, BasicBlock, Bottleneck, nn.Sequential, nn.Conv2d, Conv1x1, Conv3x3, nn.MaxPool2d, nn.Identity)
LARGEST = 1e4  # of a weight; far larger ones, and NaN, are left to torch's own kernels


class BlockedConv2d(nn.Module):
    """A convolution of images in oneDNN's layout."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.stride, self.padding = convolution.stride, convolution.padding
        self.register_buffer("weight", convolution.weight.detach().to_mkldnn(), persistent=False)
        bias = None if convolution.bias is None else convolution.bias.detach().to_mkldnn()
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return functional.conv2d(images, self.weight, self.bias, self.stride, self.padding)


class BlockedResNet(ResNet):
    """A ResNet without batch norm that takes and returns ordinary tensors and uses oneDNN's layout in between."""

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.channels)
        # oneDNN's ReLU turns NaN into 0, so features of images with NaN or infinite values are made NaN at the end.
        nothing = images.flatten(1).sum(dim=1, keepdim=True) * 0
        with torch.autocast("cpu", enabled=False):
            blocks = self.conv1(images.contiguous().to_mkldnn())
            blocks = self.maxpool(functional.relu(blocks, inplace=True))
            blocks = self.layer4(self.layer3(self.layer2(self.layer1(blocks))))
            features: Tensor = blocks.to_dense().mean(dim=(2, 3))
        return features + nothing


def blocked(network: nn.Module) -> nn.Module:
    """Return a copy of `network` that runs in oneDNN's layout.

    `network` must be a ResNet of this package, or begin with one, after its batch norms have been folded. Any other
    network is returned unchanged, and so is one with hooks, in another precision than float32, or with weights that
    are not finite, because oneDNN's ReLU would hide NaN.
    """
    if not _can_be_blocked(_first(network)):
        return network
    network = copy.deepcopy(network)
    resnet = _first(network)
    resnet.__class__ = BlockedResNet
    for module in list(resnet.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d):
                setattr(module, name, BlockedConv2d(child))
    return network


def _first(network: nn.Module) -> nn.Module:
    """Return the first part of a network that computes its parts one after the other, or the network itself."""
    return next(iter(network.children()), network) if type(network) is nn.Sequential else network


def _can_be_blocked(network: nn.Module) -> bool:
    """Return whether every part of a network is known to work, and fast, in oneDNN's layout."""
    if platform.machine() not in MEASURED_ON or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    parts = list(network.modules())
    if type(network) is not ResNet or any(type(part) not in KNOWN or _has_hooks(part) for part in parts):
        return False
    if not all(is_usual(part) for part in parts if isinstance(part, nn.Conv2d)):
        return False
    weights = list(network.parameters())
    return all(weight.dtype is torch.float32 and bool((weight.abs() < LARGEST).all()) for weight in weights)


def _has_hooks(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)
