"""The table of pairs by name, one row for each kind, and the tower that a recipe trains."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from likewise import encoders, ranks
from likewise.data import Items
from likewise.data.parts import Ids, spread
from likewise.encoders.batch_norm import split_batch_norm
from likewise.encoders.features import features
from likewise.encoders.vit import VisionTransformer
from likewise.modalities import MODALITIES
from likewise.pairs.across import Across
from likewise.pairs.future import Future
from likewise.pairs.groups import Groups
from likewise.pairs.pairs import Pairs
from likewise.pairs.towers import Tower
from likewise.pairs.views import Views
from likewise.randomness import number
from likewise.recipe import Recipe
from likewise.views.augmentation import Augmentation

FITTED = 2000  # training items, at most, on which `finish` fits what comes after the features
# Random weights, also if the run started from others, whose file may no longer exist.
UNTRAINED = {"encoder.init": "", "encoder.frozen": False, "encoder.bn_splits": 1}

PAIRS: dict[str, type[Pairs]] = {pairs.name: pairs for pairs in (Views, Groups, Future, Across)}


def build_tower(recipe: Recipe, about: Mapping[str, Any]) -> Tower:
    """Build the recipe's backbone and head, with random weights or those that `encoder.init` names."""
    options, pairs = recipe.encoder, PAIRS[recipe.pairs.kind]
    torch.manual_seed(number(recipe.seed, "weights"))
    encoder = MODALITIES[about["modality"]].build(recipe, about)
    if options.fixed_patches and isinstance(encoder, VisionTransformer):  # only ViTs have a patch embedding
        encoder.patch_embed.requires_grad_(False)
    if options.init:
        encoders.load_weights(encoder, options.init)
    tower = pairs.build_tower(encoder, pairs.build_head(recipe, encoder), recipe, about)
    splits = options.bn_splits // ranks.count()  # the batch is already split over the ranks
    if splits > 1:
        split_batch_norm(tower, splits)
    if options.frozen:
        tower.encoder.requires_grad_(False)
        tower.encoder.eval()
    return tower


def build_untrained(recipe: Recipe, about: Mapping[str, Any]) -> Tower:
    """Build the tower of a run with random weights, to compare the trained one with."""
    return build_tower(recipe.with_values(UNTRAINED), about)


def finish(
    recipe: Recipe,
    encoder: nn.Module,
    augmentation: Augmentation,
    items: Items,
    train: Ids,
    *,
    like: nn.Module | None = None,
) -> None:
    """Fit what comes after the encoder's features on some of the items to train on.

    `like` is an encoder that this one will be compared with; if nothing was fitted for it, as in runs of 0.1.0, nothing
    is fitted here either.
    """
    pairs, some = PAIRS[recipe.pairs.kind], spread(train, FITTED)
    if like is None or pairs.is_finished(like):
        pairs.finish(encoder, lambda: features(encoder, augmentation, items, some))
