"""Vision transformers: timm's names, shapes and sizes, written out from what is known of them."""

import pytest
import torch

from likewise.encoders.vit import VITS, VisionTransformer, patch_of, resize_positions

BLOCK = [
    f"{part}.{end}"
    for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    for end in ("weight", "bias")
]
TIMM_NAMES = [
    "cls_token",
    "pos_embed",
    "patch_embed.proj.weight",
    "patch_embed.proj.bias",
    *(f"blocks.{i}.{name}" for i in range(12) for name in BLOCK),
    "norm.weight",
    "norm.bias",
]


@pytest.mark.parametrize(("name", "dim", "with_head"), [("vit_tiny", 192, 5_717_416), ("vit_small", 384, 22_050_664)])
def test_names_shapes_and_number_of_parameters_are_timms(name, dim, with_head):
    with torch.device("meta"):
        encoder = VITS[name](size=224)
    got = {key: tuple(tensor.shape) for key, tensor in encoder.state_dict().items()}
    assert list(got) == TIMM_NAMES
    assert sum(p.numel() for p in encoder.parameters()) == with_head - (dim * 1000 + 1000)
    assert got["cls_token"] == (1, 1, dim)
    assert got["pos_embed"] == (1, 197, dim)
    assert got["patch_embed.proj.weight"] == (dim, 3, 16, 16)
    assert got["blocks.11.attn.qkv.weight"] == (3 * dim, dim)
    assert got["blocks.0.mlp.fc1.weight"] == (4 * dim, dim)
    assert encoder.dim == dim


@pytest.mark.parametrize(("size", "patch"), [(28, 4), (32, 4), (63, 4), (64, 8), (127, 8), (128, 16), (224, 16)])
def test_patches_follow_the_size(size, patch):
    assert patch_of(size) == patch


@pytest.mark.parametrize(("size", "channels", "tokens"), [(28, 1, 50), (64, 3, 65)])
def test_images_become_rows(size, channels, tokens):
    encoder = VisionTransformer(8, 1, 2, size=size, channels=channels)
    assert encoder.pos_embed.shape == (1, tokens, 8)
    assert encoder(torch.randn(2, channels, size, size)).shape == (2, 8)


def test_attention_is_its_formula_and_the_output_the_normed_class_token():
    torch.manual_seed(0)
    encoder = VisionTransformer(8, 1, 2, size=8).double()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    block = encoder.blocks[0]
    patches = torch.stack(  # row after row
        [
            (encoder.patch_embed.proj.weight * images[:, None, :, y : y + 4, x : x + 4]).sum(dim=(2, 3, 4))
            for y in (0, 4)
            for x in (0, 4)
        ],
        dim=1,
    )
    tokens = torch.cat([encoder.cls_token.expand(3, 1, 8), patches], dim=1) + encoder.pos_embed
    query, key, value = block.attn.qkv(block.norm1(tokens)).chunk(3, dim=2)
    heads = [
        (query[..., h] @ key[..., h].mT / 2).softmax(dim=-1) @ value[..., h]  # √4 = 2
        for h in (slice(0, 4), slice(4, 8))
    ]
    tokens = tokens + block.attn.proj(torch.cat(heads, dim=2))
    hidden = torch.nn.functional.gelu(block.mlp.fc1(block.norm2(tokens)))
    tokens = tokens + block.mlp.fc2(hidden)
    torch.testing.assert_close(encoder(images), encoder.norm(tokens)[:, 0], rtol=1e-10, atol=1e-10)


def test_positions_keep_their_class_token_and_a_plane_stays_a_plane():
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    plane = torch.stack([y, x], dim=-1).reshape(1, 64, 2)
    positions = torch.cat([torch.tensor([[[-5.0, 7.0]]]), plane], dim=1)
    smaller = resize_positions(positions, 17)
    assert smaller.shape == (1, 17, 2)
    assert smaller[0, 0].tolist() == [-5, 7]
    inner = smaller[0, 1:].reshape(4, 4, 2)[1:3, 1:3]
    torch.testing.assert_close(inner[:, 0, 0], torch.tensor([2.5, 4.5]), rtol=0, atol=0.05)
    torch.testing.assert_close(inner[0, :, 1], torch.tensor([2.5, 4.5]), rtol=0, atol=0.05)
    torch.testing.assert_close(resize_positions(positions, 65), positions)


def test_every_parameter_learns():
    encoder = VisionTransformer(8, 2, 2, size=8)
    encoder(torch.randn(4, 3, 8, 8)).square().sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
