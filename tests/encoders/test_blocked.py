"""A ResNet in oneDNN's layout gives the same features, and only networks that can be run so are changed."""

import pytest
import torch
from torch import nn

from likewise import encoders
from likewise.encoders.blocked import BlockedConv2d, blocked
from likewise.encoders.folding import folded
from tests.encoders.test_folding import lived_in


@pytest.mark.parametrize(
    ("name", "size", "stem", "channels"),
    [("resnet_tiny", 32, "small", 3), ("resnet_tiny", 9, "small", 1), ("resnet50", 64, "imagenet", 3)],
)
@torch.no_grad()
def test_features_are_the_same(name, size, stem, channels):
    torch.manual_seed(0)
    network = lived_in(encoders.build(name, channels=channels, size=size, stem=stem))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    quick = blocked(folded(network))
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
    network = nn.Sequential(encoders.build("resnet_tiny", channels=3, size=16), nn.Linear(256, 8)).eval()
    quick, images = blocked(folded(network)), torch.randn(3, 3, 16, 16)
    assert isinstance(quick[0].conv1, BlockedConv2d)
    assert isinstance(quick[1], nn.Linear)
    assert torch.allclose(quick(images), network(images), rtol=1e-5, atol=1e-6)
    assert blocked(quick) is quick, "it is converted once"


def test_other_networks_and_precisions_are_returned_unchanged():
    with_norms = encoders.build("resnet_tiny", channels=3, size=16).eval()
    assert blocked(with_norms) is with_norms
    double = folded(encoders.build("resnet_tiny", channels=3, size=16).double())
    assert blocked(double) is double
    own = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    assert blocked(own) is own
    broken = folded(encoders.build("resnet_tiny", channels=3, size=16))
    nn.init.constant_(broken.conv1.weight, torch.nan)
    assert blocked(broken) is broken, "its features must stay NaN"


def test_images_of_another_shape_are_refused():
    quick = blocked(folded(encoders.build("resnet_tiny", channels=3, size=16)))
    with pytest.raises(ValueError, match="images must be"):
        quick(torch.randn(2, 1, 16, 16))
