"""Split batch norm against its formula, and what it is for."""

import copy

import pytest
import torch
from torch import nn

from likewise.encoders import batch_norm
from likewise.encoders.batch_norm import (
    SplitBatchNorm1d,
    SplitBatchNorm2d,
    SplitBatchNorm3d,
    has_batch_norm,
    split_batch_norm,
)
from tests.encoders import slow


@pytest.fixture(params=["group by group", "groups as channels"])
def path(request, monkeypatch):
    """Run a test twice: as a CPU treats a large batch, and as it treats a small one and an accelerator any."""
    monkeypatch.setattr(batch_norm, "SMALL", 0 if request.param == "group by group" else 2**40)


def randomised(norm):
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return norm


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("n", "splits"), [(8, 1), (8, 2), (8, 8), (9, 2), (11, 4)])
def test_it_is_the_formula_group_by_group(n, splits, memory_format):
    torch.manual_seed(0)
    norm = randomised(SplitBatchNorm2d(3, splits).double())
    batch = torch.randn(n, 3, 4, 5, dtype=torch.float64).contiguous(memory_format=memory_format).requires_grad_()
    before = norm.running_mean.clone(), norm.running_var.clone()
    expected, means, variances = slow.split_batch_norm(batch, norm.weight, norm.bias, splits)
    output = norm(batch)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)

    weights = torch.randn_like(expected)
    inputs = [batch, norm.weight, norm.bias]
    got = torch.autograd.grad((output * weights).sum(), inputs)
    want = torch.autograd.grad((expected * weights).sum(), inputs)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)

    torch.testing.assert_close(norm.running_mean, 0.9 * before[0] + 0.1 * means.mean(dim=0))
    torch.testing.assert_close(norm.running_var, 0.9 * before[1] + 0.1 * variances.mean(dim=0))
    assert norm.num_batches_tracked == 1


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_single_precision_is_that_of_double(memory_format):
    """The inputs are off-centre, where a careless sum of squares loses digits."""
    torch.manual_seed(0)
    norm = randomised(SplitBatchNorm2d(16, 8))
    batch = (2 + 3 * torch.randn(64, 16, 8, 8)).contiguous(memory_format=memory_format).requires_grad_()
    weights = torch.randn(batch.shape)
    expected, *_ = slow.split_batch_norm(batch.double(), norm.weight.double(), norm.bias.double(), 8)
    output = norm(batch)
    inputs = [batch, norm.weight, norm.bias]
    got = torch.autograd.grad((output * weights).sum(), inputs)
    want = torch.autograd.grad((expected * weights).sum(), inputs)
    assert output.is_contiguous(memory_format=memory_format)
    for ours, exact in zip([output, *got], [expected, *want], strict=True):
        assert (ours - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.mark.parametrize(("n", "calls"), [(16, 1), (19, 2)])
def test_all_groups_take_one_kernel_or_two_where_they_are_uneven(n, calls):
    """An accelerator waits for the number of kernels, which must not grow with the number of groups."""
    norm, batch = SplitBatchNorm2d(4, 8), torch.randn(n, 4, 2, 2, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        norm(batch).sum().backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::native_batch_norm"] == calls
    assert counts["aten::native_batch_norm_backward"] == calls


@pytest.mark.usefixtures("path")
def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    norm = SplitBatchNorm2d(2, 2).double()
    batch = torch.randn(5, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (batch,))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (SplitBatchNorm1d(4, 2), (6, 4)),
        (SplitBatchNorm1d(4, 2), (6, 4, 5)),
        (SplitBatchNorm3d(4, 2), (6, 4, 2, 3, 2)),
        (SplitBatchNorm1d(4, 2, affine=False), (6, 4)),
        (SplitBatchNorm1d(4, 2, momentum=None), (6, 4)),
        (SplitBatchNorm1d(4, 2, track_running_stats=False), (6, 4)),
    ],
)
def test_every_kind_equals_torch_on_each_group(norm, shape):
    groups = torch.randn(2, shape[0] // 2, *shape[1:])
    plain = type(norm).__mro__[2](4, affine=norm.affine, momentum=norm.momentum, track_running_stats=False)
    torch.testing.assert_close(norm(groups.flatten(0, 1)), torch.cat([plain(group) for group in groups]))


def test_without_a_momentum_the_statistics_are_the_mean_of_all_batches():
    norm = SplitBatchNorm1d(3, 2, momentum=None)
    batches = torch.randn(5, 8, 3)
    for batch in batches:
        norm(batch)
    torch.testing.assert_close(norm.running_mean, batches.mean(dim=(0, 1)))
    torch.testing.assert_close(norm.running_var, batches.reshape(10, 4, 3).var(dim=1).mean(dim=0))


def test_in_evaluation_it_is_batch_norm():
    norm = randomised(SplitBatchNorm2d(3, 4)).eval()
    plain = nn.BatchNorm2d(3).eval()
    plain.load_state_dict(norm.state_dict())  # the names are the same
    batch = torch.randn(5, 3, 2, 2)
    assert torch.equal(norm(batch), plain(batch))


def test_frozen_parts_get_no_gradient():
    norm = SplitBatchNorm1d(3, 2)
    norm.weight.requires_grad_(False)
    norm(torch.randn(8, 3)).square().sum().backward()
    assert norm.weight.grad is None
    assert norm.bias.grad is not None


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("affine", [True, False])
def test_half_precision_keeps_wide_statistics(affine):
    norm = SplitBatchNorm2d(3, 2, affine=affine)
    batch = torch.randn(8, 3, 4, 4).bfloat16().requires_grad_()
    output = norm(batch)
    output.float().square().sum().backward()
    assert output.dtype == batch.grad.dtype == torch.bfloat16
    assert norm.running_mean.dtype == torch.float32
    expected = torch.cat([nn.BatchNorm2d(3)(group) for group in batch.float().chunk(2)])
    torch.testing.assert_close(output.float(), expected, rtol=0.02, atol=0.02)


def test_fault_12_permuting_a_batch_leaves_full_batch_statistics_as_they_were_and_changes_split_ones():
    """A shuffle on one device hides nothing from batch norm. Split statistics do depend on the order."""
    torch.manual_seed(0)
    batch, order = torch.randn(16, 4, 3, 3), torch.randperm(16)
    back = order.argsort()
    plain, split = nn.BatchNorm2d(4), SplitBatchNorm2d(4, 4)
    torch.testing.assert_close(plain(batch[order])[back], plain(batch))
    assert (split(batch[order])[back] - split(batch)).abs().max() > 0.1


def test_conversion_is_in_place_and_keeps_parameters_sharing_and_hooks():
    shared = nn.BatchNorm1d(4)
    net = nn.Sequential(nn.Linear(4, 4), shared, nn.Sequential(nn.ReLU(), shared), nn.BatchNorm1d(4))
    before, names, seen = list(net.parameters()), list(net.state_dict()), []
    shared.register_forward_hook(lambda *_: seen.append(1))
    assert split_batch_norm(net, 2) is net
    assert type(net[1]) is type(net[3]) is SplitBatchNorm1d
    assert net[2][1] is net[1]
    assert all(a is b for a, b in zip(net.parameters(), before, strict=True))
    assert list(net.state_dict()) == names
    net(torch.randn(8, 4))
    assert len(seen) == 2
    assert split_batch_norm(net, 3)[3].splits == 3
    assert copy.deepcopy(net)[3].splits == 3
    assert "splits=3" in repr(net)


def test_a_lone_batch_norm_and_one_in_no_module_at_all():
    assert isinstance(split_batch_norm(nn.BatchNorm2d(3), 2), SplitBatchNorm2d)
    linear = nn.Linear(2, 2)
    assert split_batch_norm(linear, 2) is linear


def test_has_batch_norm():
    assert has_batch_norm(nn.Sequential(nn.Sequential(nn.BatchNorm1d(3))))
    assert has_batch_norm(split_batch_norm(nn.BatchNorm1d(3), 2))
    assert not has_batch_norm(nn.Sequential(nn.LayerNorm(3), nn.GroupNorm(1, 3)))


class Activated(nn.BatchNorm2d):
    def forward(self, batch):
        return super().forward(batch).relu()


CASES = {
    "splits must be a whole number >= 1, got 0": lambda: SplitBatchNorm2d(3, 0),
    "splits must be a whole number >= 1, got True": lambda: split_batch_norm(nn.BatchNorm2d(3), True),
    "8 groups need more than one value per channel each, got a batch of shape (4, 3)": lambda: SplitBatchNorm1d(3, 8)(
        torch.randn(4, 3)
    ),
    "4 groups need more than one value per channel each, got a batch of shape (7, 3)": lambda: SplitBatchNorm1d(3, 4)(
        torch.randn(7, 3)
    ),
    "expected 4D input (got 2D input)": lambda: SplitBatchNorm2d(3, 2)(torch.randn(4, 3)),
    "only torch's BatchNorm1d, BatchNorm2d and BatchNorm3d can be split, got Activated at '0'": lambda: (
        split_batch_norm(nn.Sequential(Activated(3)), 2)
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence]()
    assert str(error.value) == sentence
