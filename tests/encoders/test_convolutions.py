"""The faster forms of convolutions have the results and gradients of torch's own."""

import pytest
import torch
from torch import nn

from likewise.encoders.convolutions import FEWEST, Conv1x1, Conv3x3


def like(convolution):
    """Torch's own convolution with the same weights."""
    own = nn.Conv2d(
        convolution.in_channels,
        convolution.out_channels,
        convolution.kernel_size,
        convolution.stride,
        convolution.padding,
        bias=convolution.bias is not None,
    ).to(convolution.weight.dtype)
    own.load_state_dict(convolution.state_dict())
    return own


def gradients(convolution, images):
    images = images.clone().requires_grad_()
    output = convolution(images)
    weights = torch.arange(output.numel(), dtype=output.dtype).view(output.shape).sin()
    torch.autograd.backward((output * weights).sum())
    return [output, images.grad, *(parameter.grad for parameter in convolution.parameters())]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    ("build", "stride", "sides"),
    [
        (Conv1x1, 1, (5, 4)),
        (Conv1x1, 2, (8, 8)),
        (Conv1x1, 2, (7, 5)),
        (Conv1x1, 3, (2, 1)),
        (Conv3x3, 1, (2, 2)),
        (Conv3x3, 2, (2, 2)),
        (Conv3x3, 1, (2, 3)),
        (Conv3x3, 1, (1, 2)),
    ],
)
def test_results_and_gradients_are_those_of_torch(build, stride, sides, last, bias):
    torch.manual_seed(0)
    convolution = build(3, 5, stride, bias=bias).double()
    images = torch.randn(FEWEST, 3, *sides, dtype=torch.float64)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    for got, expected in zip(gradients(convolution, images), gradients(like(convolution), images), strict=True):
        assert got.shape == expected.shape
        assert torch.allclose(got, expected, rtol=0, atol=1e-12)


def test_single_precision_is_as_exact_as_torch_s():
    torch.manual_seed(0)
    convolution, images = Conv3x3(64, 64), torch.randn(FEWEST, 64, 2, 2)
    exact = gradients(like(convolution).double(), images.double())
    for got, expected in zip(gradients(convolution, images), exact, strict=True):
        assert (got - expected).abs().max() <= 1e-6 * expected.abs().max()


@pytest.mark.parametrize("change", [{"dilation": (2, 2), "padding": (2, 2)}, {"padding_mode": "circular"}])
@torch.no_grad()
def test_a_convolution_whose_attributes_were_changed_is_torch_s_own(change):
    convolution = Conv3x3(3, 5)
    own = nn.Conv2d(3, 5, 3, bias=False, **{"padding": 1} | change)
    own.load_state_dict(convolution.state_dict())
    vars(convolution).update({name: value for name, value in vars(own).items() if not name.startswith("_p")})
    images = torch.randn(FEWEST, 3, 2, 2)
    assert torch.equal(convolution(images), own(images))


@torch.no_grad()
def test_a_batch_may_be_empty():
    for convolution in (Conv1x1(3, 5, 2), Conv3x3(3, 5)):
        images = torch.randn(0, 3, 2, 2)
        assert convolution(images).shape == like(convolution)(images).shape


def test_channels_that_come_last_in_memory_stay_last():
    images = torch.randn(FEWEST, 4, 4, 4).contiguous(memory_format=torch.channels_last)
    for output in (Conv1x1(4, 6, 2)(images), Conv3x3(4, 6)(images[:, :, :2, :2])):
        assert output.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("convolution", [Conv1x1(3, 5, 2), Conv3x3(3, 5)], ids=["1x1", "3x3"])
def test_an_exported_graph_has_torch_s_own_convolution(convolution):
    images = torch.randn(FEWEST, 3, 2, 2)
    traced = torch.jit.trace(convolution, images)
    operators = {node.kind() for node in traced.inlined_graph.nodes() if node.kind().startswith("aten::")}
    assert operators == {"aten::_convolution"}
    assert torch.allclose(traced(images), like(convolution)(images), atol=1e-6)
