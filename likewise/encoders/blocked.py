"""Run ResNets in oneDNN's own memory layout, for faster inference on a CPU.

torch computes convolutions on a CPU by oneDNN. Its fastest kernels want images in blocks of 8 or 16 channels and
weights in an order of their own. Ordinary tensors are converted before and after each layer, or slower kernels are
used; here they are converted once, at both ends of the network. Such tensors have no gradients here.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.encoders.inputs import check_images
from likewise.encoders.resnet import ResNet


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
        images = self.maxpool(functional.relu(self.conv1(images.contiguous().to_mkldnn()), inplace=True))
        images = self.layer4(self.layer3(self.layer2(self.layer1(images))))
        return images.to_dense().mean(dim=(2, 3))


def blocked(network: nn.Module) -> nn.Module:
    """Return a copy of `network` whose folded ResNets run in oneDNN's layout.

    A network without such a ResNet is returned unchanged, and so is one in another precision than float32 or with
    weights that are not finite: oneDNN's ReLU turns NaN into 0, which would hide them.
    """
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or not any(map(_can_be_blocked, network.modules())):
        return network
    network = copy.deepcopy(network)
    for part in filter(_can_be_blocked, list(network.modules())):
        part.__class__ = BlockedResNet
        for module in list(part.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Conv2d):
                    setattr(module, name, BlockedConv2d(child))
    return network


def _can_be_blocked(part: nn.Module) -> bool:
    """Return whether a module is a ResNet in float32 whose batch norms are folded and whose weights are finite."""
    if type(part) is not ResNet or any(isinstance(module, _BatchNorm) for module in part.modules()):
        return False
    weights = list(part.parameters())
    return all(weight.dtype is torch.float32 and bool(weight.isfinite().all()) for weight in weights)
