"""The momentum copy follows its encoder, and only `follow` moves it."""

import pytest
import torch
from torch import nn

from likewise import dictionaries


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999, 1.0])
def test_follow_is_the_running_mean(momentum):
    encoder = network()
    copy = dictionaries.MomentumEncoder(encoder, momentum)
    before = [parameter.clone() for parameter in copy.parameters()]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    copy.follow()
    for ours, old, theirs in zip(copy.parameters(), before, encoder.parameters(), strict=True):
        torch.testing.assert_close(ours, momentum * old + (1 - momentum) * theirs)


def test_momentum_is_the_share_that_is_kept():
    """Fault 11: 0.001 where 0.999 was meant. Ours hardly moves at 0.999, and refuses what is no share."""
    encoder = network()
    copy = dictionaries.MomentumEncoder(encoder, 0.999)
    with torch.no_grad():
        encoder[0].weight += 1
    moved = copy.copy[0].weight.clone()
    copy.follow()
    torch.testing.assert_close(copy.copy[0].weight - moved, torch.full_like(moved, 0.001))
    with pytest.raises(ValueError, match=r"share of the old value that is kept, must be in \[0, 1\], got 1.5"):
        dictionaries.MomentumEncoder(encoder, 1.5)


def test_the_copy_gets_no_gradient_and_is_no_part_of_what_it_follows():
    encoder = network()
    copy = dictionaries.MomentumEncoder(encoder)
    assert not copy(torch.randn(5, 3).double()).requires_grad
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert sum(1 for _ in copy.parameters()) == sum(1 for _ in encoder.parameters())


def test_the_copy_keeps_batch_statistics_of_its_own():
    encoder = network()
    copy = dictionaries.MomentumEncoder(encoder, 0.5)
    encoder(torch.randn(8, 3).double())
    copy.follow()
    assert copy.copy[1].num_batches_tracked == 0
    copy(torch.randn(8, 3).double())
    assert copy.copy[1].num_batches_tracked == 1
    assert not torch.equal(copy.copy[1].running_mean, encoder[1].running_mean)


def test_momentum_may_be_scheduled():
    encoder = network()
    copy = dictionaries.MomentumEncoder(encoder, 0.999)
    with torch.no_grad():
        encoder[0].weight += 1
    copy.follow(0.0)
    torch.testing.assert_close(copy.copy[0].weight, encoder[0].weight.detach())
