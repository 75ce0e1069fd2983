"""Define encoders of text, and build them by name: a causal transformer, or BERT, which is defined in `bert.py`.

The feature of the causal transformer is its output at the END token (Radford et al., 2021, CLIP). Attention only looks
back, so the padding after the end of a text has no effect.
"""

from functools import partial

import torch
from torch import Tensor, nn

from likewise.data.tokens import END
from likewise.encoders.bert import Bert
from likewise.encoders.inputs import check_dropout, check_known, check_tokens, check_whole
from likewise.encoders.vit import Block


class TextTransformer(nn.Module):
    """Map tokens (n, t) int64, of which one is `end`, to features (n, dim)."""

    def __init__(
        self, *, dim: int, depth: int, heads: int, length: int, vocabulary: int, dropout: float = 0.0, end: int = END
    ) -> None:
        super().__init__()
        check_whole("vocabulary", vocabulary)
        check_dropout(dropout)
        self.dim: int = dim
        self.length, self.end = length, end
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
        check_tokens(tokens, self.length)
        rows = self.dropout(self.token_embed(tokens) + self.pos_embed[: tokens.shape[1]])
        rows = self.norm(self.blocks(rows))
        end = (tokens == self.end).int().argmax(dim=1)
        return rows.gather(1, end[:, None, None].expand(-1, 1, self.dim))[:, 0]  # type: ignore[no-any-return]


TEXT_ENCODERS: dict[str, partial[TextTransformer] | partial[Bert]] = {
    "text_tiny": partial(TextTransformer, dim=128, depth=2, heads=4, length=32),
    "text_small": partial(TextTransformer, dim=256, depth=4, heads=4, length=48),
    "text_base": partial(TextTransformer, dim=512, depth=12, heads=8, length=77),  # CLIP's
    "bert_tiny": partial(Bert, dim=128, depth=2, heads=2, length=128),
    "bert_mini": partial(Bert, dim=256, depth=4, heads=4, length=256),
    "minilm": partial(Bert, dim=384, depth=6, heads=12, length=512),  # all-MiniLM-L6-v2's
    "bert_base": partial(Bert, dim=768, depth=12, heads=12, length=512),
}


def build_text(name: str, vocabulary: int, dropout: float = 0.0, *, end: int = END) -> TextTransformer | Bert:
    """Build a text encoder with random weights for `vocabulary` tokens; its `dim` is the number of features.

    `end` is the id of this token, if the tokenizer is not one that likewise learned.
    """
    check_known("text encoder", name, TEXT_ENCODERS)
    options = {} if TEXT_ENCODERS[name].func is Bert else {"end": end}  # which BERT need not know
    return TEXT_ENCODERS[name](vocabulary=vocabulary, dropout=dropout, **options)
