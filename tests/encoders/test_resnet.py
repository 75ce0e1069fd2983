"""ResNets: torchvision's names, shapes and sizes, written out from what is known of them."""

import pytest
import torch

from likewise import encoders
from likewise.encoders.resnet import RESNETS


def norm(name):
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def torchvision_names(depths, convolutions, first_shortcut):
    """The layout of torchvision's state dict, its `fc` left out."""
    names = ["conv1.weight", *norm("bn1")]
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            at = f"layer{stage}.{block}"
            for i in range(1, convolutions + 1):
                names += [f"{at}.conv{i}.weight", *norm(f"{at}.bn{i}")]
            if block == 0 and (stage > 1 or first_shortcut):
                names += [f"{at}.downsample.0.weight", *norm(f"{at}.downsample.1")]
    return names


@pytest.fixture(scope="module")
def built():
    """Every ResNet with the ImageNet stem, made once and without memory for its weights."""
    with torch.device("meta"):
        return {name: make(stem="imagenet") for name, make in RESNETS.items()}


def shapes(module):
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "depths", "convolutions", "dim", "with_fc"),
    [
        ("resnet18", (2, 2, 2, 2), 2, 512, 11_689_512),
        ("resnet34", (3, 4, 6, 3), 2, 512, 21_797_672),
        ("resnet50", (3, 4, 6, 3), 3, 2048, 25_557_032),
    ],
)
def test_names_and_number_of_parameters_are_torchvisions(built, name, depths, convolutions, dim, with_fc):
    encoder = built[name]
    assert list(encoder.state_dict()) == torchvision_names(depths, convolutions, first_shortcut=convolutions == 3)
    assert sum(p.numel() for p in encoder.parameters()) == with_fc - (dim * 1000 + 1000)
    assert encoder.dim == dim


def test_shapes_of_resnet18(built):
    got = shapes(built["resnet18"])
    assert got["conv1.weight"] == (64, 3, 7, 7)
    assert got["bn1.running_var"] == (64,)
    assert got["layer1.0.conv1.weight"] == got["layer1.1.conv2.weight"] == (64, 64, 3, 3)
    assert got["layer2.0.conv1.weight"] == (128, 64, 3, 3)
    assert got["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert got["layer4.1.conv2.weight"] == (512, 512, 3, 3)
    assert got["layer4.1.bn2.weight"] == (512,)


def test_shapes_of_resnet50(built):
    got = shapes(built["resnet50"])
    assert got["layer1.0.conv1.weight"] == (64, 64, 1, 1)
    assert got["layer1.0.conv2.weight"] == (64, 64, 3, 3)
    assert got["layer1.0.conv3.weight"] == got["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert got["layer1.1.conv1.weight"] == (64, 256, 1, 1)
    assert got["layer2.0.conv1.weight"] == (128, 256, 1, 1)
    assert got["layer4.0.downsample.0.weight"] == (2048, 1024, 1, 1)
    assert got["layer4.2.conv3.weight"] == (2048, 512, 1, 1)


def test_the_stride_of_a_bottleneck_is_in_its_second_convolution(built):
    block = built["resnet50"].layer2[0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


@pytest.mark.parametrize(
    ("name", "size", "stem", "channels"),
    [
        ("resnet_tiny", 32, "auto", 3),
        ("resnet_tiny", 28, "small", 1),
        ("resnet_tiny", 65, "auto", 3),
        ("resnet18", 16, "imagenet", 1),
        ("resnet18", 16, "small", 3),
    ],
)
def test_images_become_rows(name, size, stem, channels):
    encoder = encoders.build(name, channels=channels, size=size, stem=stem)
    kernel = 7 if stem == "imagenet" or size > 64 else 3
    assert encoder.conv1.weight.shape[1:] == (channels, kernel, kernel)
    assert encoder(torch.randn(2, channels, size, size)).shape == (2, encoder.dim)


def test_the_small_stem_keeps_the_size_and_the_other_leaves_a_quarter():
    sizes = []
    for stem in ("small", "imagenet"):
        encoder = encoders.build("resnet_tiny", stem=stem)
        encoder.layer1.register_forward_pre_hook(lambda _, args: sizes.append(tuple(args[0].shape[2:])))
        encoder(torch.randn(2, 3, 32, 32))
    assert sizes == [(32, 32), (8, 8)]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_memory_format_of_the_images_does_not_matter(channels):
    torch.manual_seed(0)
    encoder = encoders.build("resnet_tiny", channels=channels).double()
    images = torch.randn(4, channels, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(encoder(images.contiguous(memory_format=torch.channels_last)), encoder(images))
    assert all(tensor.is_contiguous() for tensor in encoder.state_dict().values())  # safetensors asks for it


def test_a_block_is_the_formula_of_a_residual():
    torch.manual_seed(0)
    block = encoders.build("resnet_tiny").layer2[0].eval()
    images = torch.randn(2, 32, 8, 8)
    change = block.bn2(block.conv2(block.bn1(block.conv1(images)).relu()))
    torch.testing.assert_close(block(images), (change + block.downsample(images)).relu())


def test_it_starts_from_he_and_from_the_seed():
    torch.manual_seed(3)
    encoder = encoders.build("resnet18", stem="small")
    weight = encoder.layer3[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert (encoder.layer3[1].bn2.weight == 1).all()
    torch.manual_seed(3)
    assert torch.equal(encoders.build("resnet18", stem="small").layer3[1].conv1.weight, weight)


def test_every_parameter_learns():
    encoder = encoders.build("resnet_tiny", bn_splits=2)
    encoder(torch.randn(8, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
