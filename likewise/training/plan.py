"""Complete a recipe: values that the user did not give are chosen for the data, each with a reason that is shown."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from likewise import data, methods, modalities, ranks
from likewise.data import Items, stretches
from likewise.data.held_out import APART
from likewise.data.parts import Ids
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.losses.catalog import LOSSES
from likewise.modalities.image import stored_size
from likewise.modalities.modality import Choice
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, RecipeError, check_choice, parse_columns
from likewise.training import schedule
from likewise.training.footprint import check_image, check_memory
from likewise.training.pace import Limit
from likewise.training.run import read_about
from likewise.training.trust import check_trust

SMALLEST_SPLIT = 16  # fewest items that may share batch statistics
SHORT_RUN = 10_000  # steps below which the momentum copy follows faster
MOST_WORKERS = 256  # each reads two batches ahead
PRECISIONS = ("32", "bf16-mixed", "16-mixed", "64-true")
OPENING = (
    "data.size",
    "data.stored",
    "data.fit",
    "data.cache",
    "data.rate",
    "data.gaps",
    "data.columns",
)  # keys that are needed to open the data


@dataclass(frozen=True)
class Plan:
    """A complete recipe, its data, the split, and the choices that were made, with reasons."""

    recipe: Recipe
    items: Items
    train: Ids  # ids of the items to train on
    test: Ids  # ids of the held-out items
    chosen: tuple[str, ...]
    asked: frozenset[str] = frozenset()  # keys that the user gave, whose values are not chosen
    limit: Limit | None = None  # the time from which the number of steps follows; None if the recipe says how many


class _Draft:
    """A recipe in progress: values that the user asked for are fixed, others are being chosen."""

    def __init__(self, recipe: Recipe, asked: Mapping[str, Any]) -> None:
        self.recipe, self.asked = recipe, asked
        self._reasons: dict[str, str] = {}  # by key; a later choice for a key replaces an earlier one

    def choose(self, choices: Iterable[Choice]) -> None:
        """Set the values that the user did not ask for, and keep the reasons."""
        for choice in choices:
            if choice.key not in self.asked and self.recipe.value(choice.key) != choice.value:
                self.settle({choice.key: choice.value})
                self._reasons.pop(choice.key, None)
                if choice.why:
                    self._reasons[choice.key] = f"{choice.key} = {choice.value}: {choice.why}"

    def settle(self, values: Mapping[str, Any]) -> None:
        """Set values, even if the user asked for others."""
        self.recipe = self.recipe.with_values(values)

    @property
    def reasons(self) -> list[str]:
        return list(self._reasons.values())


def make_plan(
    source: Any,
    method: str | None,
    asked: Mapping[str, Any],
    *,
    limit: Limit | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Plan:
    """Open the data and complete the recipe. `asked` are the values that the user asked for, by recipe key.

    - `limit`: the time from which the number of steps will follow. The plan is then completed by `with_steps`, when the
      speed has been measured.
    - `trust`: allow the run in encoder.init to name an encoder (`module:callable`) even if it was not made under this
      account.
    """
    asked = dict(asked)
    method = method or Recipe().with_values({"method": asked.get("method", "")}).method or None
    if method is not None:
        check_choice("method", method, methods.METHODS)
    items, stored = open_data(source, asked, progress)
    reasons, notes = [], []
    if method is None:
        method, why = choose_method(items)
        reasons.append(f"method {method}: {why}")
    recipe = methods.defaults(method).with_values(asked).with_values({"method": method})
    draft = _Draft(recipe, asked)
    draft.settle({"data.source": recipe.data.source or items.name, "data.stored": stored})
    methods.check_kinds(draft.recipe)
    train, test = split(items, draft.recipe)
    if not len(train):
        raise RecipeError(f"there is nothing to train on in {items.name}: all its items are test items")
    check_items(draft, items, train)
    choose_for_data(draft, items, train, trust)
    epoch = len(items.main.visits(train, draft.recipe.pairs.window))
    choose_for_size(draft, items, train, epoch)
    if limit is None:
        options = draft.recipe.training
        choose_for_length(draft, options.steps or options.epochs * (epoch // options.batch_size))
    check(draft.recipe, items, epoch)
    notes += methods.unused(draft.recipe, asked)
    if already_seen := seen_before(draft.recipe.encoder.init, items, test):
        init = draft.recipe.encoder.init
        notes.append(f"note that {init} was trained on {already_seen:,} of the {len(test):,} items held out here")
    return Plan(draft.recipe, items, train, test, (*reasons, *draft.reasons, *notes), frozenset(asked), limit)


def with_steps(plan: Plan, steps: Choice) -> Plan:
    """Return a plan with its number of steps, and with the choices that depend on it."""
    draft = _Draft(plan.recipe, dict.fromkeys(plan.asked))
    draft.choose([steps])
    choose_for_length(draft, steps.value)
    return replace(plan, recipe=draft.recipe, chosen=(*plan.chosen, *draft.reasons))


def open_data(source: Any, asked: Mapping[str, Any], progress: bool) -> tuple[Items, int]:
    """Open a source with the values that the user asked for; also return the resolution at which images are stored."""
    options = Recipe().with_values({key: asked[key] for key in OPENING if key in asked}).data
    # The recipe of a run has the resolution with which its data was opened; a 0 there must not be chosen again.
    stored = options.stored if "data.stored" in asked else stored_size(options.size)
    check_image(options.size, stored)
    items = data.open(
        source,
        size=stored or None,
        fit=options.fit,
        rate=options.rate or None,
        gaps=options.gaps,
        columns=parse_columns(options.columns) or None,
        cache=options.cache or None,
        progress=progress,
    )
    return items, stored


def check_items(draft: _Draft, items: Items, train: Ids) -> None:
    """Refuse items that the pairs or the loss cannot use; pairs that the user did not ask for may be replaced."""
    modalities.of(items.main).check_data(items.main, draft.recipe, items.name)
    if "pairs.kind" not in draft.asked and (instead := PAIRS[draft.recipe.pairs.kind].stand_in(items)):
        draft.choose([instead])
    pairs, loss = PAIRS[draft.recipe.pairs.kind], LOSSES[draft.recipe.loss.kind]
    pairs.check_items(items, train)
    if loss.needs_labels and items.labels is None:
        raise RecipeError(
            f"loss {loss.name} needs labels of several classes (class folders, or y in an .npz), "
            f"got none in {items.name}"
        )
    if loss.needs_labels and not pairs.share_labels(items):
        raise RecipeError(
            f"loss {loss.name} needs pairs of the same label, so pairs must be views, got {pairs.name} in {items.name}"
        )


def choose_for_data(draft: _Draft, items: Items, train: Ids, trust: bool) -> None:
    """Choose the encoder, augmentations and windows that suit the modality and the pairs."""
    modality, init = modalities.of(items.main), draft.recipe.encoder.init
    draft.settle(modality.settled(items.main, draft.recipe))
    same = encoder_of(init)
    if same:  # what was fitted, such as a tokenizer, belongs to the weights
        same |= modality.kept_in(Path(init))
    draft.choose(Choice(key, value, f"the same as in {init}") for key, value in same.items())
    if "encoder.name" not in draft.asked:
        check_trust(Path(init) / "recipe.toml", draft.recipe.encoder.name, trust)
    draft.choose(modality.choices(items.main, train, draft.recipe))
    pairs = PAIRS[draft.recipe.pairs.kind]
    draft.choose(pairs.choices(items, train, draft.recipe))
    draft.choose(pairs.late_choices(items, draft.recipe))


def choose_for_size(draft: _Draft, items: Items, train: Ids, epoch: int) -> None:
    """Choose what depends on the amount of data: `epoch` is the number of items, or windows, in an epoch."""
    if epoch < draft.recipe.training.batch_size:
        fits = 1 << max(1, (epoch // 2).bit_length() - 1)
        draft.choose([Choice("training.batch_size", fits, f"there are {len(train):,} items to train on")])
    defaults = LOSSES[draft.recipe.loss.kind].defaults
    draft.choose(Choice(key, *value) for key, value in defaults.items())
    options = draft.recipe.training
    splits = max(1, options.batch_size // SMALLEST_SPLIT)
    if splits < draft.recipe.encoder.bn_splits:
        draft.choose([Choice("encoder.bn_splits", splits, f"batch statistics need {SMALLEST_SPLIT} items or more")])
    keys = PAIRS[draft.recipe.pairs.kind].keys_per_epoch(items, train, draft.recipe)
    chosen = DICTIONARIES[draft.recipe.dictionary.kind].choices(draft.recipe, len(train), keys)
    draft.choose(Choice(key, *value) for key, value in chosen.items())


def choose_for_length(draft: _Draft, steps: int) -> None:
    """Choose what depends on the number of steps."""
    if KEYS[draft.recipe.keys.by].by_copy and steps < SHORT_RUN:
        short = f"the run has only {steps:,} steps, and at 0.999 the copy averages over about 1,000"
        draft.choose([Choice("keys.momentum", 0.99, short)])


def check(recipe: Recipe, items: Items, train: int) -> None:
    """Refuse a recipe that cannot work, before anything is built."""
    methods.check(recipe)
    if recipe.training.devices < 1:
        raise RecipeError(f"training.devices must be at least 1, got {recipe.training.devices}")
    for name, most in {"training.devices": max(16, os.cpu_count() or 1), "data.workers": MOST_WORKERS}.items():
        if recipe.value(name) > most:
            raise RecipeError(f"{name} must be at most {most:,} on this machine, got {recipe.value(name):,}")
    options, world = recipe.training, world_size(recipe)
    if options.batch_size > train:
        what = "items" if items.main.is_whole(recipe.pairs.window) else "windows"
        raise RecipeError(
            f"training.batch_size must be at most the {train:,} {what} to train on, got {options.batch_size:,}"
        )
    if options.batch_size < 2 or options.batch_size % world:
        ranked = f", and a multiple of the {world} ranks" if world > 1 else ""
        raise RecipeError(f"training.batch_size must be 2 or more{ranked}, got {options.batch_size}")
    counts = ("epochs", "log_every", "checkpoint_every", "evaluate_every")
    for name in (*(f"training.{count}" for count in counts), "encoder.bn_splits"):
        if recipe.value(name) < 1:
            raise RecipeError(f"{name} must be at least 1, got {recipe.value(name)}")
    for name in (
        "seed",
        "training.steps",
        "training.chunk",
        "data.workers",
        "optimizer.clip",
        "optimizer.weight_decay",
    ):
        if recipe.value(name) < 0:
            raise RecipeError(f"{name} must not be negative, got {recipe.value(name)}")
    if recipe.loss.weight <= 0:
        raise RecipeError(f"loss.weight must be positive, got {recipe.loss.weight:g}")
    if recipe.optimizer.lr <= 0:
        raise RecipeError(f"optimizer.lr must be positive, got {recipe.optimizer.lr:g}")
    if recipe.optimizer.lr > torch.finfo(torch.float32).max:  # a single step would make the weights infinite
        raise RecipeError(f"optimizer.lr must be at most 3.4e38, the largest float32, got {recipe.optimizer.lr:g}")
    if not 0 <= recipe.optimizer.warmup <= 1:
        raise RecipeError(f"optimizer.warmup must be a share from 0 to 1, got {recipe.optimizer.warmup:g}")
    check_choice("data.apart", recipe.data.apart, APART)
    check_choice("optimizer.schedule", recipe.optimizer.schedule, schedule.SCHEDULES)
    check_choice("keys.schedule", recipe.keys.schedule, schedule.MOMENTUM_SCHEDULES)
    check_choice("training.precision", options.precision, PRECISIONS)
    if options.precision == "16-mixed" and not torch.accelerator.is_available():
        raise RecipeError("training.precision 16-mixed needs an accelerator; use 32, bf16-mixed or 64-true on a CPU")
    modalities.of(items.main).check(items.main, recipe, items.name)
    PAIRS[recipe.pairs.kind].check(items, recipe)
    check_memory(recipe, items)


def encoder_of(init: str) -> dict[str, Any]:
    """Return the encoder of the run `init` as recipe values; empty if it is not a run."""
    if not init or not (Path(init) / "recipe.toml").is_file():
        return {}
    values = methods.read_recipe(Path(init) / "recipe.toml")
    return {key: values[key] for key in ("encoder.name", "encoder.stem") if key in values}


def seen_before(init: str, items: Items, test: Ids) -> int:
    """Return how many of the held-out items the run `init`, whose weights training starts from, was trained on."""
    weights = Path(init) / "encoder.safetensors"
    if not init or not weights.is_file() or not (Path(init) / "recipe.toml").is_file():
        return 0
    if read_about(Path(init))["fingerprint"] != items.fingerprint:
        return 0
    before = Recipe().with_values(methods.read_recipe(Path(init) / "recipe.toml"))
    return len(np.intersect1d(split(items, before)[0], test))


def choose_method(items: Items) -> tuple[str, str]:
    """Return a method that suits the data, and the reason."""
    return modalities.of(items.main).method(items)


def split(items: Items, recipe: Recipe) -> tuple[Ids, Ids]:
    """Return the ids to train on and those held out: the data's own test part, or else a share.

    The share is random, except that of a log's stretches consecutive ones are held out.
    """
    if not 0 <= recipe.data.test < 1:
        raise RecipeError(f"data.test must be a share from 0 to below 1, got {recipe.data.test:g}")
    if items.test is not None:
        return np.flatnonzero(~items.test), np.flatnonzero(items.test)
    if items.consecutive:
        return stretches.hold_out(len(items), recipe.data.test)
    return PAIRS[recipe.pairs.kind].split(items, recipe)


def world_size(recipe: Recipe) -> int:
    """Return the number of ranks: those that a launcher started, or else training.devices."""
    launched = ranks.launched()
    return launched.world if launched else recipe.training.devices
