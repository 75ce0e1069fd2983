"""The table of pairs by name, one row for each kind, and the tower that a recipe trains."""

from collections.abc import Mapping
from typing import Any

import torch

from likewise import encoders, ranks
from likewise.encoders.batch_norm import split_batch_norm
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
