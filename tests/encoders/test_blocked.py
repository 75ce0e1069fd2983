"""A ResNet in oneDNN's layout gives the same features, and only networks that can be run so are changed."""

import platform

import numpy as np
import pytest
import torch
from torch import nn

from likewise import data, encoders, views
from likewise.encoders.blocked import MEASURED_ON, BlockedConv2d, BlockedResNet
from likewise.encoders.features import features, for_inference
from tests.encoders.test_folding import lived_in

pytestmark = pytest.mark.skipif(
    platform.machine() not in MEASURED_ON or not torch.backends.mkldnn.is_available(), reason="needs oneDNN on x86"
)


def tiny(size=16, channels=3):
    torch.manual_seed(0)
    return lived_in(encoders.build("resnet_tiny", channels=channels, size=size))


@pytest.mark.parametrize(
    ("name", "size", "stem", "channels"),
    [("resnet_tiny", 32, "small", 3), ("resnet_tiny", 9, "small", 1), ("resnet50", 64, "imagenet", 3)],
)
@torch.no_grad()
def test_features_are_the_same(name, size, stem, channels):
    torch.manual_seed(0)
    network = lived_in(encoders.build(name, channels=channels, size=size, stem=stem))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    quick = for_inference(network)
    assert type(quick) is BlockedResNet
    assert not any(isinstance(part, nn.Conv2d) for part in quick.modules())
    for rows in (1, 5):  # embedding ends with a short batch
        images = torch.randn(rows, channels, size, size)
        expected = network(images)
        assert (quick(images) - expected).abs().max() <= 1e-5 * expected.abs().max()
        last = images.contiguous(memory_format=torch.channels_last)
        assert torch.equal(quick(last), quick(images))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@torch.no_grad()
def test_a_head_after_it_stays_an_ordinary_network():
    network = nn.Sequential(tiny(), nn.Linear(256, 8)).eval()
    quick, images = for_inference(network), torch.randn(3, 3, 16, 16)
    assert isinstance(quick[0].conv1, BlockedConv2d)
    assert isinstance(quick[1], nn.Linear)
    assert torch.allclose(quick(images), network(images), rtol=1e-5, atol=1e-6)
    assert for_inference(quick) is quick, "it is converted once"


def test_features_of_items_are_computed_so(monkeypatch):
    networks = []
    forward = BlockedResNet.forward
    monkeypatch.setattr(BlockedResNet, "forward", lambda self, rows: networks.append(self) or forward(self, rows))
    items = data.open({"x": np.zeros((5, 16, 16, 3), dtype=np.uint8)}, progress=False)
    features(tiny(), views.preset("none", size=16, channels=3), items, np.arange(5))
    assert networks


def dilated(network):
    network.layer4[0].conv2.dilation = network.layer4[0].conv2.padding = (2, 2)


def with_group_norm(network):
    for block in [network, *(stage[0] for stage in (network.layer1, network.layer2, network.layer3, network.layer4))]:
        for name, norm in list(block.named_children()):
            if isinstance(norm, nn.BatchNorm2d):
                setattr(block, name, nn.GroupNorm(4, norm.num_features))
        if getattr(block, "downsample", None) is not None:
            block.downsample[1] = nn.GroupNorm(4, block.downsample[1].num_features)


def hooked(network):
    network.layer1.register_forward_hook(lambda module, given, output: output + output.mean())


@pytest.mark.parametrize("change", [dilated, with_group_norm, hooked])
@torch.no_grad()
def test_a_changed_network_keeps_its_features(change):
    network, images = tiny(), torch.randn(40, 3, 32, 32)
    before = network(images)
    change(network)
    expected = network(images)
    assert not torch.allclose(before, expected, rtol=0.01)
    assert torch.allclose(for_inference(network)(images), expected, rtol=1e-4, atol=1e-5)


class Scales(nn.Module):
    """A network of one's own that uses parts of a ResNet by themselves."""

    def __init__(self):
        super().__init__()
        self.net = tiny()

    def forward(self, images):
        images = torch.relu(self.net.bn1(self.net.conv1(images)))
        return torch.cat([images.mean(dim=(2, 3)), self.net.layer1(images).mean(dim=(2, 3))], dim=1)


@torch.no_grad()
def test_a_network_that_uses_parts_of_a_resnet_keeps_its_features():
    network, images = Scales().eval(), torch.randn(3, 3, 16, 16)
    assert torch.allclose(for_inference(network)(images), network(images), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_nan_stays_nan():
    """oneDNN's ReLU makes it 0, which would hide that weights or images are broken."""
    images = torch.randn(3, 3, 16, 16)
    images[1, 0, 3, 3], images[2, 0, 3, 3] = torch.nan, torch.inf
    assert for_inference(tiny())(images).isfinite().all(dim=1).tolist() == [True, False, False]
    broken = tiny()
    nn.init.constant_(broken.conv1.weight, torch.nan)
    assert for_inference(broken)(images[:1]).isnan().all()


@torch.no_grad()
def test_other_precisions_keep_their_own():
    double, images = tiny().double(), torch.randn(2, 3, 16, 16)
    assert for_inference(double)(images.double()).dtype is torch.float64
    quick = for_inference(tiny())
    expected = quick(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(quick(images), expected)


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="images must be"):
        for_inference(tiny())(torch.randn(2, 1, 16, 16))
