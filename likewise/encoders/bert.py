"""Define BERT (Devlin et al., 2019) up to one feature per text, with the parameter names of Hugging Face transformers.

Attention looks in both directions, and each residual connection is followed by its norm. Weights are initialised by a
normal distribution of standard deviation 0.02, biases by 0. Every text is a single segment, so only the first row of
`token_type_embeddings` is used; the second is there for published weights.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.data.tokens import PADDING
from likewise.encoders.inputs import check_dropout, check_known, check_tokens, check_whole

POOLINGS = ("mean", "first")
EPS = 1e-12
SEGMENTS = 2


class Embeddings(nn.Module):
    """Add the embeddings of tokens (n, t), their positions and their segment, to (n, t, d)."""

    def __init__(self, vocabulary: int, length: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, dim)
        self.position_embeddings = nn.Embedding(length, dim)
        self.token_type_embeddings = nn.Embedding(SEGMENTS, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: tokens.shape[1]]  # (t, d)
        rows = self.word_embeddings(tokens) + positions + self.token_type_embeddings.weight[0]
        return self.dropout(self.LayerNorm(rows))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)

    def forward(self, rows: Tensor, is_text: Tensor) -> Tensor:
        query, key, value = (
            project(rows).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )  # (n, heads, t, d / heads) each
        dropout = self.dropout if self.training else 0.0
        mask = is_text[:, None, None]  # (n, 1, 1, t): all heads and all rows attend to the same tokens
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return attended.transpose(1, 2).flatten(2)  # (n, t, d)


class AddAndNorm(nn.Module):
    """Project the output of a part of a layer to `dim`, add it to the part's input, and normalise the sum."""

    def __init__(self, width: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, output: Tensor, rows: Tensor) -> Tensor:
        return self.LayerNorm(rows + self.dropout(self.dense(output)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.self = SelfAttention(dim, heads, dropout)
        self.output = AddAndNorm(dim, dim, dropout)

    def forward(self, rows: Tensor, is_text: Tensor) -> Tensor:
        return self.output(self.self(rows, is_text), rows)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection and a norm after it."""

    def __init__(self, dim: int, heads: int, intermediate: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(dim, heads, dropout)
        self.intermediate = nn.Sequential(OrderedDict(dense=nn.Linear(dim, intermediate), gelu=nn.GELU()))
        self.output = AddAndNorm(intermediate, dim, dropout)

    def forward(self, rows: Tensor, is_text: Tensor) -> Tensor:
        rows = self.attention(rows, is_text)
        return self.output(self.intermediate(rows), rows)  # type: ignore[no-any-return]


class Layers(nn.Module):
    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self, rows: Tensor, is_text: Tensor) -> Tensor:
        for layer in self.layer:
            rows = layer(rows, is_text)
        return rows


class Bert(nn.Module):
    """Map tokens (n, t) int64 to features (n, dim); PADDING has no effect.

    With pooling "mean", a feature is the mean over all tokens that are not padding, START and END included, as in
    sentence-transformers; with "first", it is the output at the first token, as in BGE.
    """

    def __init__(
        self,
        *,
        dim: int,
        depth: int,
        heads: int,
        length: int,
        vocabulary: int,
        intermediate: int | None = None,
        dropout: float = 0.0,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        intermediate = 4 * dim if intermediate is None else intermediate
        sizes = {"dim": dim, "depth": depth, "heads": heads, "length": length}
        for name, number in (sizes | {"vocabulary": vocabulary, "intermediate": intermediate}).items():
            check_whole(name, number)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of the number of heads, {heads}, got {dim}")
        check_dropout(dropout)
        check_known("pooling", pooling, POOLINGS)
        self.dim: int = dim
        self.length = length
        self.pooling = pooling
        self.embeddings = Embeddings(vocabulary, length, dim, dropout)
        self.encoder = Layers([Layer(dim, heads, intermediate, dropout) for _ in range(depth)])
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens, self.length)
        is_text = tokens != PADDING  # (n, t)
        rows = self.encoder(self.embeddings(tokens), is_text)
        if self.pooling == "first":
            return rows[:, 0]  # type: ignore[no-any-return]
        count = is_text.sum(dim=1, keepdim=True).clamp(min=1)  # (n, 1); at least 1, so that an empty row gives zeros
        return torch.where(is_text[:, :, None], rows, 0).sum(dim=1) / count
