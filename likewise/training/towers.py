"""What is trained: a backbone and its head, from views to the rows that the loss compares."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from likewise import encoders, ranks
from likewise.encoders.batch_norm import split_batch_norm
from likewise.randomness import number
from likewise.recipe import Recipe, RecipeError
from likewise.training.run import build_backbone, build_head, build_text


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


class CaptionTower(nn.Module):
    """Views of images (n, c, h, w) and tokens of captions (n, t) to embeddings (n, d) of each, in one space."""

    def __init__(self, encoder: nn.Module, head: nn.Module, text: Tower) -> None:
        super().__init__()
        self.encoder, self.head, self.text = encoder, head, text

    def forward(self, views: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.encoder(views)), self.text(tokens)

    @property
    def keys(self) -> nn.Module:
        """Keys are captions."""
        return self.text


AnyTower = Tower | FutureTower | CaptionTower


def build_tower(recipe: Recipe, about: Mapping[str, Any]) -> AnyTower:
    """The recipe's backbone and head, with fresh weights or those it starts from."""
    options = recipe.encoder
    torch.manual_seed(number(recipe.seed, "weights"))
    encoder = build_backbone(recipe, about["kind"], about["channels"], about["size"])
    if options.init:
        encoders.load_weights(encoder, options.init)
    head = build_head(recipe, encoder)
    tower: AnyTower
    if recipe.pairs.kind == "captions":
        text = Tower(*build_text(recipe, about["vocabulary"]))
        if head.dim != text.head.dim:
            raise RecipeError(
                f"head none needs encoders of one width for images and text, got {head.dim} and {text.head.dim}"
            )
        tower = CaptionTower(encoder, head, text)
    else:
        tower = (FutureTower if recipe.pairs.kind == "future" else Tower)(encoder, head)
    splits = options.bn_splits // ranks.count()  # ranks are splits already
    if splits > 1:
        split_batch_norm(tower, splits)
    if options.frozen:
        tower.encoder.requires_grad_(False)
        tower.encoder.eval()
    return tower
