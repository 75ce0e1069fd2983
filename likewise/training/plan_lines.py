"""The plan as text: the lines that `likewise train` prints before the first step, and that the report repeats."""

import numpy as np

from likewise import methods, modalities
from likewise.data import Items, unread
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.losses.catalog import LOSSES
from likewise.modalities.modality import counted
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe
from likewise.training.plan import Plan
from likewise.training.progress import duration


def lines(plan: Plan, steps: int, parameters: int, seconds: float | None, device: str) -> list[str]:
    """Return the plan as lines of a name and a text, separated by a tab; `seconds` is the expected duration."""
    recipe, items = plan.recipe, plan.items
    options, pairs, modality = recipe.training, PAIRS[recipe.pairs.kind], modalities.of(items.main)
    kinds = unread.kinds_in_words(items.skipped)
    further = pairs.describe_towers(recipe)
    frozen = ", frozen" if recipe.encoder.frozen else ""
    with_others = " with the text encoder" if further else ""
    time = "" if seconds is None else f": about {duration(seconds)}"
    if seconds is not None and plan.limit is not None:
        time += plan.limit.note
    return [
        f"data\t{data_in_words(plan)}",
        *modality.describe_columns(items.main),
        *([f"left out\t{kinds}; see skipped.txt"] if kinds else []),
        *(f"note\t{note}" for note in items.notes),
        f"method\t{recipe.method} ({methods.METHODS[recipe.method].paper})",
        f"pairs\t{pairs.describe(items, recipe)}",
        f"dictionary\t{dictionary_in_words(recipe, len(plan.train))}",
        f"loss\t{loss_in_words(recipe)}",
        f"encoder\t{recipe.encoder.name}{frozen}, {modality.describe_encoder(recipe)}{pairs.describe_head(recipe)}, "
        f"{parameters:,} parameters{with_others}",
        *further,
        f"training\t{steps:,} steps of {options.batch_size} ({epochs_in_words(plan, steps)}), {recipe.optimizer.name} "
        f"at {recipe.optimizer.lr:g}, on {device}{time}",
        *(f"chosen\t{text}" for text in plan.chosen),
    ]


def data_in_words(plan: Plan) -> str:
    items = plan.items
    labels = ", no labels" if items.labels is None else f", {counted(len(items.classes), 'class', 'classes')}"
    if items.groups is not None:
        labels += f", {counted(len(np.unique(items.groups)), 'group', 'groups')}"
    held_out = f", {len(plan.test):,} held out" if len(plan.test) else ""
    if items.groups is not None and len(plan.test):
        kept_apart = np.setdiff1d(items.groups[plan.test], items.groups[plan.train])
        if len(kept_apart) == len(np.unique(items.groups[plan.test])):
            held_out += f" ({counted(len(kept_apart), 'whole group', 'whole groups')})"
    if between := len(items) - len(plan.train) - len(plan.test):
        held_out += f", {between:,} between these left out as a gap"
    unusable = unread.unusable_in_words(items)
    skipped = f"; {unusable}, see skipped.txt" if unusable else ""
    return (
        f"{items.name}: {len(plan.train):,} {items.kind}s of {rows_in_words(items)}"
        f"{unread.fit_in_words(items, plan.recipe.data.fit)}{held_out}{labels}{skipped}"
    )


def rows_in_words(items: Items) -> str:
    return modalities.of(items.main).describe(items.main)


def dictionary_in_words(recipe: Recipe, items: int) -> str:
    keys = f", keys by {PAIRS[recipe.pairs.kind].describe_keys(recipe)}"
    if KEYS[recipe.keys.by].by_copy:
        keys += f" copy, m {recipe.keys.momentum:g}"
    return DICTIONARIES[recipe.dictionary.kind].describe(recipe.dictionary, items) + keys


def loss_in_words(recipe: Recipe) -> str:
    learned = " to start with, learned" if recipe.loss.learnable else ""
    return f"{recipe.loss.kind}, {LOSSES[recipe.loss.kind].scale_in_words(recipe.loss)}{learned}"


def epochs_in_words(plan: Plan, steps: int) -> str:
    window, part = plan.recipe.pairs.window, plan.items.main
    epoch = len(part.visits(plan.train, window))
    per_epoch = epoch // plan.recipe.training.batch_size
    words = f"{steps / per_epoch:.1f} epochs"
    if part.is_whole(window):
        return words
    return f"{words} of {counted(per_epoch, 'step', 'steps')} over {counted(epoch, 'window', 'windows')}"
