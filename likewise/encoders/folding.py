"""Fold batch norms into the convolutions before them, for faster inference on a CPU.

In evaluation mode a batch norm is a fixed scale and shift of every channel. The convolution before it can apply both
through changed weights and a bias, which saves a pass over memory for each norm.
"""

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from likewise.encoders.resnet import BasicBlock, Bottleneck, ResNet


def folded(network: nn.Module) -> nn.Module:
    """Return a copy of `network`, in evaluation mode, without the batch norms of its ResNet.

    A network without a `ResNet` of this package is returned unchanged, and so is one that was folded before. For other
    networks it is not known that each norm follows its convolution and that nothing else reads the value in between.
    """
    if not any(isinstance(part, ResNet) and isinstance(part.bn1, _BatchNorm) for part in network.modules()):
        return network
    network = copy.deepcopy(network).eval()
    for part in list(network.modules()):
        if isinstance(part, ResNet | BasicBlock | Bottleneck):
            _fold(
                part, {name.replace("bn", "conv"): name for name, _ in part.named_children() if name.startswith("bn")}
            )
            shortcut = getattr(part, "downsample", None)
            if shortcut is not None:
                _fold(shortcut, {"0": "1"})
    return network


def _fold(part: nn.Module, norms: dict[str, str]) -> None:
    """Fold each norm into its convolution; `norms` maps the convolution's name to the norm's name."""
    for convolution_name, norm_name in norms.items():
        convolution, norm = part.get_submodule(convolution_name), part.get_submodule(norm_name)
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, _BatchNorm)
        setattr(part, convolution_name, fuse_conv_bn_eval(convolution, norm))
        setattr(part, norm_name, nn.Identity())
