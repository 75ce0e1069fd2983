"""Weights from elsewhere: what is taken, and what is refused with the encoder left as it was."""

import os
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from likewise import encoders
from likewise.encoders.resnet import BasicBlock, ResNet
from likewise.encoders.vit import VisionTransformer


def tiny(*, stem="small", channels=3, depths=(1, 1, 1, 1), widths=(2, 4, 4, 4)):
    return ResNet(BasicBlock, depths, widths, first=2, stem=stem, channels=channels)


@pytest.fixture
def state():
    """An encoder's weights, with a classifier beside them."""
    torch.manual_seed(1)
    return {**tiny().state_dict(), "fc.weight": torch.randn(10, 4), "fc.bias": torch.randn(10)}


def assert_loaded(encoder, state):
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize(
    "prefix",
    ["", "module.", "encoder.", "backbone.", "encoder_q.", "module.encoder_q.", "model.backbone.", "_orig_mod."],
)
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
def test_prefixes_and_wrappers_come_off(tmp_path, state, prefix, wrapper):
    content = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    content["queue"] = torch.randn(3, 3)
    torch.save({wrapper: content, "epoch": 3} if wrapper else content, tmp_path / "w.pth")
    encoder = tiny()
    encoders.load_weights(encoder, tmp_path / "w.pth")
    assert_loaded(encoder, state)


def test_mocos_queries_are_taken_and_not_its_keys(tmp_path, state):
    keys = {f"module.encoder_k.{name}": torch.zeros_like(tensor) for name, tensor in state.items()}
    queries = {f"module.encoder_q.{name}": tensor for name, tensor in state.items()}
    torch.save({"state_dict": OrderedDict(keys | queries), "arch": "resnet50"}, tmp_path / "moco.pth.tar")
    encoder = tiny()
    encoders.load_weights(encoder, str(tmp_path / "moco.pth.tar"))
    assert_loaded(encoder, state)


def test_safetensors_and_the_folder_of_a_run(tmp_path, state):
    save_file(state, tmp_path / "encoder.safetensors")
    for path in (tmp_path, tmp_path / "encoder.safetensors"):
        encoder = tiny()
        encoders.load_weights(encoder, path)
        assert_loaded(encoder, state)


def test_what_is_saved_here_loads_here(tmp_path):
    encoder, other = (encoders.build("resnet_tiny", bn_splits=2) for _ in range(2))
    save_file(encoder.state_dict(), tmp_path / "encoder.safetensors")
    encoders.load_weights(other, tmp_path)
    assert_loaded(other, encoder.state_dict())


def test_old_files_count_no_batches(tmp_path, state):
    torch.save({k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}, tmp_path / "w.pt")
    encoder = tiny()
    encoders.load_weights(encoder, tmp_path / "w.pt")
    assert_loaded(encoder, state)


def test_colours_become_grey_by_their_sum(tmp_path, state):
    torch.save(state, tmp_path / "w.pt")
    colour, grey = tiny().eval(), tiny(channels=1).eval()
    encoders.load_weights(colour, tmp_path / "w.pt")
    encoders.load_weights(grey, tmp_path / "w.pt")
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(grey(images), colour(images.expand(2, 3, 8, 8)))


def test_positions_of_another_size_are_resized(tmp_path):
    large, small = VisionTransformer(8, 1, 2, size=48, patch=4), VisionTransformer(8, 1, 2, size=32, patch=4)
    torch.save({**large.state_dict(), "head.weight": torch.randn(3, 8)}, tmp_path / "w.pt")
    encoders.load_weights(small, tmp_path / "w.pt")
    assert torch.equal(small.pos_embed[:, 0], large.pos_embed[:, 0])
    assert torch.equal(small.blocks[0].attn.qkv.weight, large.blocks[0].attn.qkv.weight)


def test_a_classifier_of_the_encoders_own_is_loaded_where_it_fits(tmp_path, state):
    torch.save(state, tmp_path / "w.pt")
    for classes in (10, 7):
        encoder = tiny()
        encoder.fc = nn.Linear(4, classes)
        before = encoder.fc.weight.clone()
        encoders.load_weights(encoder, tmp_path / "w.pt")
        assert torch.equal(encoder.fc.weight, state["fc.weight"] if classes == 10 else before)
        assert torch.equal(encoder.conv1.weight, state["conv1.weight"])


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    trap = tmp_path / "was_run"
    torch.save({"state_dict": {"conv1.weight": Hostile(trap)}}, tmp_path / "w.pt")
    sentence = refusal(tiny(), tmp_path / "w.pt")
    assert sentence == (
        f"weights must be tensors only, got {tmp_path / 'w.pt'}, a pickle with code or other objects in it; "
        "it was not run"
    )
    assert not trap.exists()


def refusal(encoder, path):
    """The sentence of the refusal; the encoder stays as it was."""
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    with pytest.raises(ValueError) as error:  # noqa: PT011
        encoders.load_weights(encoder, path)
    assert_loaded(encoder, before)
    return str(error.value)


@pytest.mark.parametrize(("mine", "other"), [("small", "imagenet"), ("imagenet", "small")])
def test_another_stem_is_refused_with_the_setting_that_helps(tmp_path, mine, other):
    path = tmp_path / "w.pt"
    torch.save(tiny(stem=other).state_dict(), path)
    kernels = {"small": "3 × 3", "imagenet": "7 × 7"}
    assert refusal(tiny(stem=mine), path) == (
        f"{path} must have a first convolution of {kernels[mine]} pixels, got {kernels[other]}: "
        f"use --set encoder.stem={other}"
    )
    assert "--set encoder.stem" in refusal(tiny(stem=mine, channels=1), path)


def test_weights_of_another_encoder_are_refused(tmp_path, state):
    path = tmp_path / "w.pt"
    torch.save(state, path)
    assert refusal(tiny(widths=(2, 4, 4, 8)), path) == (
        f"{path} must have weights of the encoder's shapes, got layer4.0.conv1.weight (4, 4, 3, 3) for (8, 4, 3, 3), "
        "layer4.0.bn1.weight (4,) for (8,), layer4.0.bn1.bias (4,) for (8,) and 12 more"
    )
    assert refusal(tiny(depths=(1, 2, 1, 1)), path) == (
        f"{path} must have all weights of the encoder, got none for "
        "layer2.1.conv1.weight, layer2.1.bn1.weight, layer2.1.bn1.bias and 7 more"
    )
    torch.save(tiny(depths=(1, 2, 1, 1)).state_dict(), path)
    assert refusal(tiny(), path) == (
        f"{path} must be weights of this encoder, got more than it has: "
        "layer2.1.conv1.weight, layer2.1.bn1.weight, layer2.1.bn1.bias and 9 more"
    )
    assert refusal(nn.Linear(2, 2), path) == (
        f"{path} must have weights with the encoder's names, such as weight, bias; "
        "got conv1.weight, bn1.weight, bn1.bias and 81 more"
    )


def test_what_is_no_file_of_weights_is_refused(tmp_path):
    encoder = nn.Linear(2, 2)
    assert refusal(encoder, tmp_path / "no.pt") == (
        f"weights must be a file or a run's folder, got {tmp_path / 'no.pt'}, which does not exist"
    )
    assert refusal(encoder, tmp_path) == (
        f"weights must be a file or a run's folder, got {tmp_path} without encoder.safetensors"
    )
    (tmp_path / "w.onnx").write_bytes(b"")
    assert refusal(encoder, tmp_path / "w.onnx") == (
        f"weights must be a file in .safetensors, .pt or .pth, got {tmp_path / 'w.onnx'}"
    )
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    assert refusal(encoder, tmp_path / "list.pt") == (
        f"weights must be a dictionary of tensors, got list without any in {tmp_path / 'list.pt'}"
    )


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_a_torn_file_is_refused(tmp_path, state, suffix, keep):
    path = tmp_path / f"w{suffix}"
    torch.save(state, path) if suffix == ".pt" else save_file(state, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    assert refusal(tiny(), path).startswith("weights must be ")
