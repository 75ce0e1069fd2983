"""A ResNet without its batch norms gives the same features, and the network itself stays as it was."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from likewise import encoders
from likewise.encoders.batch_norm import split_batch_norm
from likewise.encoders.folding import folded


def lived_in(network):
    """Give every norm a scale, a shift and statistics that are not those it starts with."""
    for part in network.modules():
        if isinstance(part, _BatchNorm):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.3)
            nn.init.normal_(part.running_mean, std=0.3)
            nn.init.uniform_(part.running_var, 0.5, 2)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "size", "stem"),
    [("resnet_tiny", 32, "small"), ("resnet18", 64, "imagenet"), ("resnet50", 32, "small")],
)
@torch.no_grad()
def test_features_are_the_same(name, size, stem):
    torch.manual_seed(0)
    network = lived_in(encoders.build(name, channels=3, size=size, stem=stem))
    images = torch.randn(4, 3, size, size)
    expected = network(images)
    quick = folded(network)
    assert not any(isinstance(part, _BatchNorm) for part in quick.modules())
    assert (quick(images) - expected).abs().max() <= 1e-5 * expected.abs().max()


@torch.no_grad()
def test_the_network_itself_stays_as_it_was():
    network = split_batch_norm(lived_in(encoders.build("resnet_tiny", channels=1, size=16)), 4)
    before, images = copy.deepcopy(network.state_dict()), torch.randn(4, 1, 16, 16)
    expected = network(images)
    folded(network)
    assert torch.equal(network(images), expected)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_head_and_other_networks_keep_their_norms():
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    assert folded(own) is own
    network = nn.Sequential(encoders.build("resnet_tiny", channels=3, size=32), nn.BatchNorm1d(256)).eval()
    assert isinstance(folded(network)[1], nn.BatchNorm1d)


def test_a_folded_network_is_not_folded_a_second_time():
    quick = folded(lived_in(encoders.build("resnet_tiny", channels=3, size=32)))
    assert folded(quick) is quick
