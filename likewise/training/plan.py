"""From what was asked to a whole recipe: what was left open is chosen for the data, and said with the reason."""

import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from likewise import data, encoders, methods, ranks
from likewise.data import Items
from likewise.data.builtin import needed
from likewise.data.sequences import Sequences
from likewise.data.tokens import SMALLEST
from likewise.encoders import SEQUENCE_ENCODERS, TEXT_ENCODERS
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError, check_choice, parse_columns, read_toml
from likewise.training import schedule
from likewise.training.batches import visits
from likewise.training.footprint import check_image, check_memory
from likewise.training.run import read_about, stored_size
from likewise.training.trust import check_trust
from likewise.views import windows

BATCH_SIZE = Recipe().training.batch_size
SMALLEST_SPLIT = 16  # items that share batch statistics
SHORT_RUN = 10_000  # steps
AUDIO_RATE = 4000  # samples a second from which on one channel is taken to be sound
FRAMES = 128  # of a window, at most: 1.28 s of audio, as in CPC's paper
SEQUENCES = 64  # of a batch whose frames are looked up one by one
MOST_WORKERS = 256  # each reads two batches ahead
PRECISIONS = ("32", "bf16-mixed", "16-mixed", "64-true")


@dataclass(frozen=True)
class Plan:
    """A recipe with nothing left open, its data, which items train, and what was chosen, with reasons."""

    recipe: Recipe
    items: Items
    train: NDArray[np.int64]  # ids of the items to train on
    test: NDArray[np.int64]  # ids of those held out
    chosen: tuple[str, ...]


def make_plan(
    source: Any, method: str | None, asked: Mapping[str, Any], *, progress: bool = True, trust: bool = False
) -> Plan:
    """Open the data and fill in the recipe; `asked` are the values that were asked for, by recipe key.

    `trust` allows the code of the encoder that a run to start from names.
    """
    asked = dict(asked)
    method = method or Recipe().with_values({"method": asked.get("method", "")}).method or None
    if method is not None:
        check_choice("method", method, methods.METHODS)
    opening = ("data.size", "data.stored", "data.fit", "data.cache", "data.rate", "data.columns")
    given = Recipe().with_values({key: asked[key] for key in opening if key in asked})
    # What a run was opened at stands in its recipe: an empty 0 there is an answer, not a question.
    stored = given.data.stored if "data.stored" in asked else stored_size(given.data.size)
    check_image(given.data.size, stored)
    items = data.open(
        source,
        size=stored or None,
        fit=given.data.fit,
        rate=given.data.rate or None,
        columns=parse_columns(given.data.columns) or None,
        cache=given.data.cache or None,
        progress=progress,
    )
    chosen = []
    if method is None:
        method, why = choose_method(items)
        chosen.append(f"method {method}: {why}")
    recipe = methods.defaults(method).with_values(asked).with_values({"method": method})
    recipe = recipe.with_values({"data.source": recipe.data.source or items.name, "data.stored": stored})
    train, test = split(items, recipe)
    if not len(train):
        raise RecipeError(f"there is nothing to train on in {items.name}: all items are its test part")

    def choose(key: str, value: Any, why: str) -> None:
        nonlocal recipe
        if key not in asked and recipe.value(key) != value:
            recipe = recipe.with_values({key: value})
            chosen[:] = [text for text in chosen if not text.startswith(f"{key} = ")]  # the last word counts
            chosen.append(f"{key} = {value}: {why}")

    if recipe.data.fit != "crop" and items.kind != "image":
        raise RecipeError(f"data.fit is for images, got {recipe.data.fit} for the {items.kind}s of {items.name}")
    if recipe.pairs.kind == "groups" and items.labels is None and items.groups is None:
        if "pairs.kind" in asked:
            raise RecipeError(f"pairs groups needs class folders, labels or groups, got none in {items.name}")
        choose("pairs.kind", "views", "there are no labels or groups, so two views of an item are a pair")
    if recipe.loss.kind == "sup_con" and items.labels is None:
        raise RecipeError(
            f"loss sup_con needs labels of several classes (class folders, or y in an .npz), got none in {items.name}"
        )
    if recipe.loss.kind == "sup_con" and recipe.pairs.kind == "groups" and items.groups is not None:
        raise RecipeError(
            f"loss sup_con needs partners of one label, so pairs must be views, got groups in {items.name}"
        )
    if recipe.pairs.kind == "future" and not isinstance(items, Sequences):
        raise RecipeError(f"pairs future needs sequences, which have one, got {items.kind}s in {items.name}")
    if recipe.pairs.kind == "captions":
        if items.captions is None or items.kind != "image":
            got = "none" if items.kind == "image" else f"{items.kind}s"
            raise RecipeError(
                f"pairs captions needs images with captions (captions.jsonl or .csv in a folder, captions in an .npz, "
                f".txt in shards), got {got} in {items.name}"
            )
        captions = {text.lower() for item in train for text in items.captions[item]}
        groups = [-1] if items.groups is None else items.groups[train].tolist()
        one_group = min(groups) >= 0 and len(set(groups)) == 1
        if len(captions) < 2 or one_group:
            what = "group" if one_group else "caption"
            raise RecipeError(f"there is nothing to tell apart in {items.name}: all items are of one {what}")
        large = torch.accelerator.is_available()
        where = "there is an accelerator" if large else "there is no accelerator; text_small is larger and slower"
        choose("text.name", "text_small" if large else "text_tiny", where)
    if isinstance(items, Sequences):
        if recipe.data.rate not in (0, items.rate):
            got = f"{items.rate:,}" if items.rate else "an unknown one"
            raise RecipeError(
                f"data.rate resamples audio only, got {recipe.data.rate:,} for {items.name} of rate {got}"
            )
        recipe = recipe.with_values({"data.rate": items.rate})
        for key, value, why in sequence_choices(recipe, items, train):
            choose(key, value, why)
        frames = recipe.pairs.window // hop_of(recipe, items)
        if recipe.pairs.kind == "future" and 2 <= frames <= recipe.pairs.horizon:
            few = f"a window of {recipe.pairs.window:,} samples has {counted(frames, 'frame', 'frames')}"
            choose("pairs.horizon", max(1, frames // 2), few)
        check_window(recipe, items)
        if recipe.encoder.head != "mlp_bn" and "encoder.bn_splits" not in asked:
            recipe = recipe.with_values({"encoder.bn_splits": 1})  # there is no batch norm to split
    elif items.kind == "vector":
        choose("encoder.name", "mlp", "the items are vectors")
        choose("pairs.preset", "vector", "the items are vectors")
        recipe = recipe.with_values({"data.size": items.array.shape[1]})
    else:
        recipe = recipe.with_values({"data.size": recipe.data.size or min(items.array.shape[2:])})
        for key, value in encoder_of(recipe.encoder.init).items():
            choose(key, value, f"that of {recipe.encoder.init}")
        if "encoder.name" not in asked:
            check_trust(Path(recipe.encoder.init) / "recipe.toml", recipe.encoder.name, trust)
        large = torch.accelerator.is_available()
        where = "there is an accelerator" if large else "there is no accelerator; resnet18 is larger and slower"
        if not recipe.encoder.name:
            choose("encoder.name", "resnet18" if large else "resnet_tiny", where)
        if items.array.shape[1] == 1:
            choose("pairs.preset", "greyscale", "the images have one channel")
        elif not recipe.pairs.preset:
            choose("pairs.preset", "simclr", "they are colour images")
    epoch = len(visits(items, train, recipe.pairs.window))
    if epoch < recipe.training.batch_size:
        fits = 1 << max(1, (epoch // 2).bit_length() - 1)
        choose("training.batch_size", fits, f"there are {len(train):,} items to train on")
    if recipe.loss.kind == "sigmoid":
        choose("loss.temperature", 0.1, "SigLIP's, at first")
    if recipe.loss.kind == "triplet":
        choose("loss.margin", 0.2, "the paper's, for triplets of unit rows")
    splits = max(1, recipe.training.batch_size // SMALLEST_SPLIT)
    if splits < recipe.encoder.bn_splits:
        choose("encoder.bn_splits", splits, f"batch statistics need {SMALLEST_SPLIT} items or more")
    steps = recipe.training.steps or recipe.training.epochs * (epoch // recipe.training.batch_size)
    if recipe.keys.by == "momentum" and steps < SHORT_RUN:
        choose("keys.momentum", 0.99, f"the run has {steps:,} steps, and at 0.999 a copy remembers 1,000")
    keys = len(train)
    if recipe.pairs.kind == "future" and isinstance(items, Sequences):
        keys = int((items.lengths[train] // hop_of(recipe, items)).sum())
    if recipe.dictionary.kind == "queue" and keys < recipe.dictionary.size:
        choose("dictionary.size", keys, "the queue is no longer than the data")
    if recipe.dictionary.kind == "bank" and len(train) < recipe.dictionary.negatives:
        choose("dictionary.negatives", len(train), "no more than there are slots")
    check(recipe, items, epoch)
    if met := seen_before(recipe.encoder.init, items, test):
        chosen.append(
            f"note that {recipe.encoder.init} was trained on {met:,} of the {len(test):,} items held out here"
        )
    return Plan(recipe, items, train, test, tuple(chosen))


def check(recipe: Recipe, items: Items, train: int) -> None:
    """Refuse what cannot work, before anything is built."""
    methods.check(recipe)
    if recipe.training.devices < 1:
        raise RecipeError(f"training.devices must be at least 1, got {recipe.training.devices}")
    for name, most in {"training.devices": max(16, os.cpu_count() or 1), "data.workers": MOST_WORKERS}.items():
        if recipe.value(name) > most:
            raise RecipeError(f"{name} must be at most {most:,} on this machine, got {recipe.value(name):,}")
    if recipe.pairs.kind == "captions":
        check_text(recipe)
    options, world = recipe.training, world_size(recipe)
    if options.batch_size > train:
        what = "windows" if items.kind == "sequence" else "items"
        raise RecipeError(
            f"training.batch_size must be at most the {train:,} {what} to train on, got {options.batch_size:,}"
        )
    if options.batch_size < 2 or options.batch_size % world:
        ranked = f", and a multiple of {world} for as many ranks" if world > 1 else ""
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
    if recipe.optimizer.lr <= 0:
        raise RecipeError(f"optimizer.lr must be positive, got {recipe.optimizer.lr:g}")
    if recipe.optimizer.lr > torch.finfo(torch.float32).max:  # one step with it would leave no finite weight
        raise RecipeError(f"optimizer.lr must be at most 3.4e38, as weights are, got {recipe.optimizer.lr:g}")
    if not 0 <= recipe.optimizer.warmup <= 1:
        raise RecipeError(f"optimizer.warmup must be a share from 0 to 1, got {recipe.optimizer.warmup:g}")
    check_choice("optimizer.schedule", recipe.optimizer.schedule, schedule.SCHEDULES)
    check_choice("keys.schedule", recipe.keys.schedule, schedule.MOMENTUM_SCHEDULES)
    check_choice("training.precision", options.precision, PRECISIONS)
    if options.precision == "16-mixed" and not torch.accelerator.is_available():
        raise RecipeError("training.precision 16-mixed needs an accelerator; a CPU has bf16-mixed, 32 and 64-true")
    presets = {"vector": ("vector",), "sequence": tuple(windows.PRESETS)}
    of_images = recipe.pairs.preset not in ("vector", "sequence")
    if recipe.pairs.preset not in presets.get(items.kind, ()) and not (items.kind == "image" and of_images):
        raise RecipeError(f"pairs.preset {recipe.pairs.preset} does not go with items that are {items.kind}s")
    check_memory(recipe, items)


def check_text(recipe: Recipe) -> None:
    """Expect an encoder of text that there is, and what it is learned with."""
    check_choice("text.name", recipe.text.name, TEXT_ENCODERS)
    needed("tokenizers", "text", "captions")
    if recipe.text.vocabulary < SMALLEST:
        raise RecipeError(
            f"text.vocabulary must be at least {SMALLEST}, every byte being a token, got {recipe.text.vocabulary}"
        )
    if not 0 <= recipe.text.dropout < 1:
        raise RecipeError(f"text.dropout must be a share from 0 to below 1, got {recipe.text.dropout:g}")


def check_window(recipe: Recipe, items: Sequences) -> None:
    """Expect a window that has frames, and of pairs future one that reaches as far as they do."""
    for name in ("pairs.window", "pairs.horizon", "pairs.candidates"):
        if recipe.value(name) < 1:
            raise RecipeError(f"{name} must be at least 1, got {recipe.value(name)}")
    if recipe.pairs.kind != "future":
        return
    hop = hop_of(recipe, items)
    frames = recipe.pairs.window // hop
    if frames < 2:
        raise RecipeError(f"pairs.window must be two frames of {hop} samples at least, got {recipe.pairs.window:,}")
    if recipe.pairs.horizon >= frames:
        raise RecipeError(
            f"pairs.horizon must be below the frames of a window, {frames} in {recipe.pairs.window:,} samples, "
            f"got {recipe.pairs.horizon}"
        )


def sequence_choices(recipe: Recipe, items: Sequences, train: NDArray[np.int64]) -> Iterator[tuple[str, Any, str]]:
    """What is chosen for sequences, in order: keys of the recipe, values and reasons."""
    if items.channels == ("audio",) and not items.rate:
        raise RecipeError(f"the audio in {items.name} has no rate: say it, as in --set data.rate=8000")
    if not is_audio(items):
        name, why = "sensors", f"{counted(items.array.shape[1], 'channel', 'channels')} of a series"
    elif items.rate < 12_000:
        name, why = "audio_8k", f"audio of {items.rate:,} samples a second"
    else:
        large = torch.accelerator.is_available()
        name = "audio_16k" if large else "audio_16k_small"
        why = "there is an accelerator" if large else "there is no accelerator; audio_16k is larger and slower"
    yield "encoder.name", name, why
    future = recipe.pairs.kind == "future"
    if recipe.pairs.preset not in windows.PRESETS or not future:
        # The method's presets are of images.
        yield "pairs.preset", "none" if future else "sequence", "the items are sequences"
    if not future and recipe.encoder.head == "steps":
        yield "encoder.head", "mlp", f"pairs are {recipe.pairs.kind}"
    if future:
        yield "encoder.head", "steps", "one matrix for each step ahead"
        yield "training.batch_size", SEQUENCES, "each sequence has many frames"
        if recipe.loss.similarity == "dot":
            yield "optimizer.lr", 0.001, "products of rows of any length are learned in smaller steps"
    hop = hop_of(recipe if recipe.encoder.name else recipe.with_values({"encoder.name": name}), items)
    typical = int(np.quantile(items.lengths[train], 0.75)) if future else int(np.median(items.lengths[train]) * 3 / 4)
    window = max(1, min(FRAMES, typical // hop)) * hop
    if not recipe.pairs.window:
        length = f"{typical:,} samples" + (f" ({typical / items.rate:.2g} s)" if items.rate else "")
        if typical // hop > FRAMES:
            why = f"no more than {FRAMES} frames of {hop} samples are chosen"
        elif future:
            why = f"three quarters of the training sequences have at most {length}, and {hop} make a frame"
        else:
            why = f"three quarters of the training sequences' median length are {length}, and {hop} make a frame"
        yield "pairs.window", window, why


def is_audio(items: Sequences) -> bool:
    """Whether sequences are sound: one channel, and many samples a second."""
    return items.array.shape[1] == 1 and items.rate >= AUDIO_RATE


def hop_of(recipe: Recipe, items: Items) -> int:
    """Samples from one frame of the encoder to the next; 1 for an encoder that knows of none."""
    name = recipe.encoder.name
    if name in SEQUENCE_ENCODERS:
        return math.prod(SEQUENCE_ENCODERS[name].keywords["strides"])
    return _hop_elsewhere(name, items.array.shape[1], items.native, recipe.encoder.context) if ":" in name else 1


@functools.cache
def _hop_elsewhere(name: str, channels: int, samples: int, context: str) -> int:
    """That of anyone's encoder, which has to be built for it."""
    return int(getattr(encoders.build(name, channels=channels, samples=samples, context=context), "hop", 1))


def encoder_of(init: str) -> dict[str, Any]:
    """Which images' encoder a run has, where weights to start from are a run's."""
    if not init or not (Path(init) / "recipe.toml").is_file():
        return {}
    values = read_toml(Path(init) / "recipe.toml")
    return {key: values[key] for key in ("encoder.name", "encoder.stem") if key in values}


def seen_before(init: str, items: Items, test: NDArray[np.int64]) -> int:
    """How many of the items to be held out the run that one starts from was trained on."""
    weights = Path(init) / "encoder.safetensors"
    if not init or not weights.is_file() or not (Path(init) / "recipe.toml").is_file():
        return 0
    if read_about(Path(init))["fingerprint"] != items.fingerprint:
        return 0
    before = Recipe().with_values(read_toml(Path(init) / "recipe.toml"))
    return len(np.intersect1d(split(items, before)[0], test))


def choose_method(items: Items) -> tuple[str, str]:
    """A method for data that nobody named one for, and the reason."""
    if items.captions is not None and items.kind == "image":
        return "clip", "the images have captions"
    if items.kind == "sequence":
        return "cpc", "a sequence has a future to be predicted"
    if items.kind == "vector":
        return "simclr", "vectors make large batches cheap, and then the batch is dictionary enough"
    return "moco", "its queue gives many negatives at any batch size"


def split(items: Items, recipe: Recipe) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids to train on and those held out: the data's own test part, else a share drawn by the seed.

    Without labels or captions there is nothing to evaluate, and nothing is held out. Of captioned images whole
    groups are: of an item drawn by several hands, one drawing would give the others' caption away.
    """
    if not 0 <= recipe.data.test < 1:
        raise RecipeError(f"data.test must be a share from 0 to below 1, got {recipe.data.test:g}")
    if items.test is not None:
        return np.flatnonzero(~items.test), np.flatnonzero(items.test)
    captioned = recipe.pairs.kind == "captions"
    share = recipe.data.test if items.labels is not None or captioned else 0.0
    rng = generator(recipe.seed, "split")
    if captioned and items.groups is not None:
        alone = items.groups.max(initial=0) + 1 + np.arange(len(items))  # an item without a group is one of its own
        groups, group = np.unique(np.where(items.groups < 0, alone, items.groups), return_inverse=True)
        order = torch.randperm(len(groups), generator=rng).numpy()
        held_out = np.isin(group, order[: round(share * len(groups))])
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    held = round(share * len(items))
    order = torch.randperm(len(items), generator=rng).numpy()
    return np.sort(order[held:]), np.sort(order[:held])


def spread(ids: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many ids, evenly from first to last."""
    return ids if len(ids) <= most else ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]


def counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def world_size(recipe: Recipe) -> int:
    """How many ranks there will be: those that a launcher started, or the devices asked for."""
    found = ranks.launched()
    return found.world if found else recipe.training.devices
