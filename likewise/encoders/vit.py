"""Define vision transformers (Dosovitskiy et al., 2021) up to the normalised class token, with timm's parameter names.

Patches are 16 pixels wide for images of 128 pixels or more, 8 from 64 pixels on, and 4 below. Linear layers and
positions are initialised by a truncated normal distribution of standard deviation 0.02, the patch projection by
Xavier's uniform distribution (Chen et al., 2021, MoCo v3), biases by 0.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.encoders.inputs import check_images, check_whole


class Attention(nn.Module):
    """Multi-head attention among all tokens; if `causal`, a token only attends to itself and those before it."""

    def __init__(self, dim: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        n, t, d = tokens.shape
        # Chunks instead of an extra axis of length 3, because their gradients are then joined in a single copy.
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(tokens).chunk(3, dim=2)
        )  # (n, heads, t, d / heads) each
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.proj(attended.transpose(1, 2).reshape(n, t, d))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(tokens)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a norm before it, dropout after it and a residual connection."""

    def __init__(self, dim: int, heads: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads, causal=causal)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = FeedForward(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.dropout(self.attn(self.norm1(tokens)))
        return tokens + self.dropout(self.mlp(self.norm2(tokens)))  # type: ignore[no-any-return]


class PatchEmbedding(nn.Module):
    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]  # (n, t, d)


class VisionTransformer(nn.Module):
    """Map images (n, c, size, size) to features (n, dim)."""

    def __init__(
        self, dim: int, depth: int, heads: int, *, channels: int = 3, size: int = 224, patch: int | None = None
    ) -> None:
        super().__init__()
        check_whole("channels", channels)
        check_whole("size", size)
        patch = patch_of(size) if patch is None else patch
        if size % patch:
            raise ValueError(f"size must be a multiple of the patch of {patch} pixels, got {size}")
        self.channels, self.size = channels, size
        self.dim: int = dim
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, dim))  # class token first
        self.patch_embed = PatchEmbedding(channels, dim, patch)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        proj = self.patch_embed.proj
        nn.init.xavier_uniform_(proj.weight.view(self.dim, -1))  # a patch counts as one long vector
        if proj.bias is not None:
            nn.init.zeros_(proj.bias)

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.channels, self.size)
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], dim=1) + self.pos_embed
        return self.norm(self.blocks(tokens)[:, 0])  # type: ignore[no-any-return]


def patch_of(size: int) -> int:
    """Return the side of a patch, in pixels, for images of `size`."""
    if size >= 128:
        return 16
    return 8 if size >= 64 else 4


def resize_positions(positions: Tensor, tokens: int) -> Tensor:
    """Resize positions (1, 1 + a², d), learned on a × a patches, to (1, 1 + b², d), where 1 + b² = `tokens`."""
    a, b = math.isqrt(positions.shape[1] - 1), math.isqrt(tokens - 1)
    of_class, of_grid = positions[:, :1], positions[:, 1:]
    grid = of_grid.transpose(1, 2).reshape(1, -1, a, a).float()
    grid = functional.interpolate(grid, size=(b, b), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([of_class, grid.flatten(2).transpose(1, 2).to(positions.dtype)], dim=1)


def vit_tiny(*, channels: int = 3, size: int = 224) -> VisionTransformer:
    return VisionTransformer(192, 12, 3, channels=channels, size=size)


def vit_small(*, channels: int = 3, size: int = 224) -> VisionTransformer:
    return VisionTransformer(384, 12, 6, channels=channels, size=size)


VITS: dict[str, Callable[..., VisionTransformer]] = {"vit_tiny": vit_tiny, "vit_small": vit_small}
