"""A plan in words: the lines that `train` prints before the first step, and that the report repeats."""

import numpy as np

from likewise import methods
from likewise.data import Items, unread
from likewise.data.roles import shortened, told
from likewise.data.sequences import Sequences
from likewise.recipe import Recipe
from likewise.training.batches import visits
from likewise.training.plan import Plan, counted, hop_of
from likewise.training.progress import duration


def lines(plan: Plan, steps: int, parameters: int, seconds: float | None, device: str) -> list[str]:
    """The plan in a few lines, each a name and its words apart by a tab; `seconds` where it is still to be done."""
    recipe, items = plan.recipe, plan.items
    options = recipe.training
    labels = ", no labels" if items.labels is None else f", {counted(len(items.classes), 'class', 'classes')}"
    if items.groups is not None:
        labels += f", {counted(len(np.unique(items.groups)), 'group', 'groups')}"
    held = f", {len(plan.test):,} held out" if len(plan.test) else ""
    unusable = unread.unusable_in_words(items)
    skipped = f"; {unusable}, see skipped.txt" if unusable else ""
    kinds = unread.kinds_in_words(items.skipped)
    dictionary = {
        "batch": "the batch",
        "queue": f"a queue of {recipe.dictionary.size:,}",
        "bank": f"a memory bank of {len(plan.train):,}, {recipe.dictionary.negatives:,} drawn a step",
    }[recipe.dictionary.kind]
    by = "text tower" if recipe.pairs.kind == "captions" else recipe.keys.by
    keys = f", keys by {by}" + (f" copy, m {recipe.keys.momentum:g}" if recipe.keys.by == "momentum" else "")
    context = f"{recipe.encoder.context} context, " if items.kind == "sequence" else ""
    by_margin = recipe.loss.kind in ("pair_margin", "triplet")
    scale = f"margin {recipe.loss.margin:g}" if by_margin else f"temperature {recipe.loss.temperature:g}"
    if recipe.loss.learnable:
        scale += " at first, learned"
    captioned = recipe.pairs.kind == "captions"
    frozen = ", frozen" if recipe.encoder.frozen else ""
    head = {
        "none": "no head",
        "steps": f"{counted(recipe.pairs.horizon, 'matrix', 'matrices')} for the steps ahead",
    }.get(recipe.encoder.head, f"{recipe.encoder.head} head to {recipe.encoder.dim}")
    epoch = len(visits(items, plan.train, recipe.pairs.window))
    per_epoch = epoch // options.batch_size
    epochs = f"{steps / per_epoch:.1f} epochs"
    if items.kind == "sequence":
        epochs += f" of {counted(per_epoch, 'step', 'steps')} over {counted(epoch, 'window', 'windows')}"
    return [
        f"data\t{items.name}: {len(plan.train):,} {items.kind}s of {shape_words(items)}"
        f"{unread.fit_in_words(items, recipe.data.fit)}{held}{labels}{skipped}",
        *table_lines(items),
        *([f"left out\t{kinds}; see skipped.txt"] if kinds else []),
        f"method\t{recipe.method} ({methods.METHODS[recipe.method].paper})",
        f"pairs\t{pairs_words(recipe, items)}",
        f"dictionary\t{dictionary}{keys}",
        f"loss\t{recipe.loss.kind}, {scale}",
        f"encoder\t{recipe.encoder.name}{frozen}, {context}{head}, "
        f"{parameters:,} parameters{' with the text tower' * captioned}",
        *([f"text\t{recipe.text.name}, {head}, at most {recipe.text.vocabulary:,} tokens"] if captioned else []),
        f"training\t{steps:,} steps of {options.batch_size} ({epochs}), {recipe.optimizer.name} "
        f"at {recipe.optimizer.lr:g}, on {device}" + ("" if seconds is None else f": about {duration(seconds)}"),
        *(f"chosen\t{text}" for text in plan.chosen),
    ]


def table_lines(items: Items) -> list[str]:
    """What became of the columns of a table."""
    if not isinstance(items, Sequences) or items.table is None:
        return []
    times, left_out = items.table.times, items.table.left_out
    ordered = f"{shortened(times)} orders the rows" if times else "no column orders the rows: they stay as they come"
    others = [f"left out\t{told(left_out)}; --column channels=NAME+NAME takes other columns"] if left_out else []
    return [f"channels\t{shortened(items.channels)}", f"time\t{ordered}", *others]


def shape_words(items: Items) -> str:
    """`28×28` pixels, features, or channels, rate and median length."""
    if not isinstance(items, Sequences):
        return "×".join(map(str, items.array.shape[1:]))
    rate = f", {items.rate:,} samples a second" if items.rate else ""
    length = f"{items.native / items.rate:.2g} s" if items.rate else f"{items.native:,} samples"
    return f"{counted(items.array.shape[1], 'channel', 'channels')}{rate}, {length} long (median)"


def pairs_words(recipe: Recipe, items: Items) -> str:
    options = recipe.pairs
    augmentations = "" if options.preset == "none" else f", {options.preset} augmentations"
    if not isinstance(items, Sequences):
        kind = options.kind
        if kind == "captions" and items.captions is not None:
            kind += f", {sum(map(len, items.captions)):,} of them, one drawn a step"
        return f"{kind}{augmentations or ', no augmentations'}" + (
            f" to {recipe.data.size} pixels" if items.kind == "image" else ""
        )
    windows = f"windows of {options.window:,} samples"
    if items.rate:
        windows += f", {options.window / items.rate:.2g} s"
    if options.kind != "future":
        return f"{options.kind}{augmentations}, {windows}"
    drawn = {"both": "all sequences", "others": "other sequences", "same": "the same sequence"}[options.negatives]
    frames = options.window // hop_of(recipe, items)
    return (
        f"future{augmentations}, {windows}, {frames} frames; {options.horizon} steps ahead, "
        f"each among {options.candidates} frames of {drawn}"
    )
