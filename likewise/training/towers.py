"""What is trained: a backbone and its head, from views to the rows that the loss compares."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from likewise import encoders, ranks
from likewise.encoders.batch_norm import split_batch_norm
from likewise.randomness import number
from likewise.training.recipe import Recipe
from likewise.training.run import build_backbone, build_head


class Tower(nn.Module):
    """Views (n, ...) to embeddings (n, d)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, views: Tensor) -> Tensor:
        return self.head(self.encoder(views))  # type: ignore[no-any-return]

    @property
    def keys(self) -> nn.Module:
        """What makes keys of views; a momentum copy is a copy of it."""
        return self


class FutureTower(nn.Module):
    """Sequences (n, t, c) to what each frame expects of the next ones, (n, f, horizon, d), and frames (n, f, d)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, sequences: Tensor) -> tuple[Tensor, Tensor]:
        frames = self.encoder.frames(sequences)  # type: ignore[operator]
        return self.head(self.encoder.context(frames)), frames  # type: ignore[operator]

    @property
    def keys(self) -> nn.Module:
        """Keys are frames: they need no context."""
        return self.encoder.frames  # type: ignore[return-value]


def build_tower(recipe: Recipe, about: Mapping[str, Any]) -> Tower | FutureTower:
    """The recipe's backbone and head, with fresh weights or those it starts from."""
    options = recipe.encoder
    torch.manual_seed(number(recipe.seed, "weights"))
    encoder = build_backbone(recipe, about["kind"], about["channels"], about["size"])
    if options.init:
        encoders.load_weights(encoder, options.init)
    kind = FutureTower if recipe.pairs.kind == "future" else Tower
    tower = kind(encoder, build_head(recipe, encoder))
    splits = options.bn_splits // ranks.count()  # ranks are splits already
    if splits > 1:
        split_batch_norm(tower, splits)
    return tower
