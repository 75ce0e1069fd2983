"""Define encoders of text: a causal transformer over tokens, whose output at the END token is the feature.

Radford et al., 2021 (CLIP). Attention only looks back, so the padding after the end of a text has no effect.
"""

from functools import partial

import torch
from torch import Tensor, nn

from likewise.data.tokens import END
from likewise.encoders.inputs import check_known, check_whole
from likewise.encoders.vit import Block


class TextTransformer(nn.Module):
    """Map tokens (n, t) int64, START … END and then PADDING, to features (n, dim)."""

    def __init__(self, *, dim: int, depth: int, heads: int, length: int, vocabulary: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_whole("vocabulary", vocabulary)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a share from 0 to below 1, got {dropout:g}")
        self.dim: int = dim
        self.length = length
        self.token_embed = nn.Embedding(vocabulary, dim)
        self.pos_embed = nn.Parameter(torch.empty(length, dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=True, dropout=dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.normal_(self.token_embed.weight, std=0.02)
        nn.init.normal_(self.pos_embed, std=0.01)
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=self.dim**-0.5)
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.is_floating_point() or not 1 <= tokens.shape[1] <= self.length:
            got = f"{tokens.dtype} of {tuple(tokens.shape)}"
            raise ValueError(f"tokens must be whole numbers of shape (n, t), t at most {self.length}, got {got}")
        rows = self.dropout(self.token_embed(tokens) + self.pos_embed[: tokens.shape[1]])
        rows = self.norm(self.blocks(rows))
        end = (tokens == END).int().argmax(dim=1)
        return rows.gather(1, end[:, None, None].expand(-1, 1, self.dim))[:, 0]  # type: ignore[no-any-return]


TEXT_ENCODERS: dict[str, partial[TextTransformer]] = {
    "text_tiny": partial(TextTransformer, dim=128, depth=2, heads=4, length=32),
    "text_small": partial(TextTransformer, dim=256, depth=4, heads=4, length=48),
    "text_base": partial(TextTransformer, dim=512, depth=12, heads=8, length=77),  # CLIP's
}


def build_text(name: str, vocabulary: int, dropout: float = 0.0) -> TextTransformer:
    """Build a text encoder with random weights for `vocabulary` tokens; its `dim` is the number of features."""
    check_known("text encoder", name, TEXT_ENCODERS)
    return TEXT_ENCODERS[name](vocabulary=vocabulary, dropout=dropout)
