"""`likewise evaluate`: how good is an encoder, beside raw input and beside itself before training?

The encoder is a run, anyone's `module:callable`, or a file of embeddings: one ruler for all.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import data, encoders
from likewise.data import DataError, Items
from likewise.data.embeddings import ENDINGS, read_embeddings
from likewise.evaluation.figures import Embedded, measure
from likewise.pairs import augment
from likewise.pairs.crops import centre_square
from likewise.randomness import generator, number
from likewise.training.plan import split, spread
from likewise.training.recipe import Recipe
from likewise.training.run import EMBED_BATCH, Encoder, encoder_words, features, load, place_of
from likewise.training.towers import build_tower

Ids = NDArray[np.int64]
RAW_SIDE = 32  # raw images are compared at no more pixels than this, so that they fit in memory
WITH_VIEWS = 1024  # items of which two views are made
WITHOUT_TEST = 2000  # items looked at where nothing is held out


@dataclass(frozen=True)
class Way:
    """One way to see items: as vectors, and as the vectors of drawn views, (n, d) and what the loss compares."""

    embed: Callable[[Items, Ids], Tensor]
    view: Callable[[Items, Ids, str], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Subject:
    """What is evaluated: how it opens a source, and the ways that are compared."""

    name: str
    open: Callable[[Any], Items]
    ways: Callable[[Items, Ids], Mapping[str, Way]]  # given the items and those to train on
    recipe: Recipe  # for the split
    temperature: float = 0.1  # of the loss, for the information bound
    trained_on: str = ""  # fingerprint of the data


def evaluate(
    encoder: Encoder | str | Path,
    train: Any = None,
    test: Any = None,
    *,
    layer: str = "backbone",
    k: int = 20,
    temperature: float = 0.07,
    size: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Named figures by row: raw input, untrained encoder, learned encoder; `about` says what they depend on.

    `encoder` is a loaded one, a run's folder, a `module:callable`, or a file of embeddings (`.npz`, `.parquet`).
    `train` is a source, by default the run's own; `test` another, by default the source's own test part, else
    the part that the run held out. `k` and `temperature` are the k-NN's, `layer` is backbone or head, `size` the
    side of the images that a `module:callable` is given. Without labels only the geometry can be measured.
    """
    if layer not in ("backbone", "head"):
        raise ValueError(f"layer must be backbone or head, got {layer!r}")
    subject = _subject(encoder, train, layer, size, seed, progress)
    items = subject.open(train)
    train_ids, test_ids = split(items, subject.recipe)
    tested = items
    if test is not None:
        tested = subject.open(test)
        if tested.array.shape[1:] != items.array.shape[1:]:
            got = f"{tested.array.shape[1:]} and {items.array.shape[1:]}"
            raise DataError(f"test items must have the shape of the others, got {got}")
        train_ids, test_ids = np.arange(len(items)), np.arange(len(tested))
    labels: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if items.labels is not None and tested.labels is not None:
        labels = (torch.from_numpy(items.labels[train_ids]), torch.from_numpy(renamed(tested, items)[test_ids]))
    words = "items not trained on" if test is None and subject.trained_on == items.fingerprint else "test items"
    if not len(test_ids):
        test_ids, words = spread(train_ids, WITHOUT_TEST), "items, none held out"
        labels = (None, None)
    if any(part is None or not (part >= 0).any() for part in labels):
        labels = (None, None)
    about = {
        "encoder": subject.name,
        "data": items.name,
        "test": tested.name,
        "test_words": words,
        "train_items": len(train_ids),
        "test_items": len(test_ids),
        "labels": labels[0] is not None,
        "loss_temperature": subject.temperature,
    }
    found: dict[str, Any] = {"about": about}
    viewed = spread(test_ids, WITH_VIEWS)
    for name, way in subject.ways(items, train_ids).items():
        views = keys = None
        if way.view is not None:
            (first, first_key), (second, second_key) = (
                way.view(tested, viewed, which) for which in ("first", "second")
            )
            views, keys = (first, second), (first_key, second_key)
        embedded = Embedded(way.embed(items, train_ids), way.embed(tested, test_ids), views, keys)
        try:
            figures = measure(
                embedded,
                *labels,
                k=k,
                temperature=temperature,
                loss_temperature=subject.temperature,
                seed=seed,
            )
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        found[name] = figures.as_dict()
    return found


def _subject(
    encoder: Encoder | str | Path, train: Any, layer: str, size: int | None, seed: int, progress: bool
) -> Subject:
    is_callable = not isinstance(encoder, Encoder) and ":" in str(encoder) and not Path(encoder).exists()
    if size is not None and not is_callable:
        raise ValueError(f"size is for a module:callable, which does not know its own, got {size}")
    if isinstance(encoder, Encoder):
        return _run(encoder, layer, progress)
    text = str(encoder)
    if text.lower().endswith(ENDINGS):
        if layer != "backbone":
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        if train is not None:
            raise ValueError(f"a file of embeddings is measured without other data, got {text} and {train}")
        seeded = Recipe().with_values({"seed": seed})
        way = Way(lambda items, ids: torch.from_numpy(items[ids]))

        def opened(source: Any) -> Items:
            return read_embeddings(text if source is None else source)

        return Subject(f"the vectors of {text}", opened, lambda *_: {"embeddings": way}, seeded)
    if is_callable:
        if train is None:
            raise ValueError(f"name the data that {text} is to be measured on (--data)")
        if layer != "backbone":
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        return _anyones(text, size, seed, progress)
    return _run(load(encoder), layer, progress)


def _run(encoder: Encoder, layer: str, progress: bool) -> Subject:
    recipe, about = encoder.recipe, encoder.about
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    # Copies: neither the mode nor the place of the caller's encoder changes.
    learned = copy.deepcopy(nn.Sequential(encoder.backbone, encoder.head)).to(device)
    # Random weights also where the run started from others, whose file may be gone.
    fresh = build_tower(recipe.with_values({"encoder.init": "", "encoder.bn_splits": 1}), about)
    untrained = nn.Sequential(fresh.encoder, fresh.head).to(device)

    def way(network: nn.Sequential) -> Way:
        def embed(items: Items, ids: Ids) -> Tensor:
            return features(network[0] if layer == "backbone" else network, encoder.augmentation, items, ids)

        def view(items: Items, ids: Ids, which: str) -> tuple[Tensor, Tensor]:
            rows = _views(encoder.augmentation, items, ids, recipe.seed, which, device)
            keys = _through(network, rows)
            return _through(network[0], rows) if layer == "backbone" else keys, keys

        return Way(embed, view)

    raw = Way(_raw, lambda items, ids, which: _raw_views(encoder.augmentation, items, ids, recipe.seed, which))
    ways = {"raw input": raw, "untrained encoder": way(untrained), "learned encoder": way(learned)}
    dim = encoder.backbone.dim if layer == "backbone" else recipe.encoder.dim
    name = f"{encoder_words(recipe, about, layer)}, {dim} features, {recipe.method}, seed {recipe.seed}"
    opened = partial(encoder.open, progress=progress)
    temperature = about.get("temperature", recipe.loss.temperature)
    return Subject(name, opened, lambda *_: ways, recipe, temperature, about.get("fingerprint", ""))


def _anyones(name: str, size: int | None, seed: int, progress: bool) -> Subject:
    def ways(items: Items, train: Ids) -> Mapping[str, Way]:
        torch.manual_seed(number(seed, "weights"))  # where it draws its own
        if items.kind == "vector":
            prepared: augment.Augmentation = augment.VectorViews.fitted(torch.from_numpy(items[train]))
            network = encoders.build(name, features=items.array.shape[1])
        else:
            channels, side = items.array.shape[1], size or min(items.array.shape[2:])
            prepared = augment.preset("none", size=side, channels=channels)
            network = encoders.build(name, channels=channels, size=side)
        network.to(torch.accelerator.current_accelerator() or "cpu")
        return {"raw input": Way(_raw), name: Way(lambda items, ids: features(network, prepared, items, ids))}

    seeded = Recipe().with_values({"seed": seed})
    return Subject(name, lambda source: data.open(source, size=size, progress=progress), ways, seeded)


def renamed(tested: Items, items: Items) -> NDArray[np.int64]:
    """Labels of `tested` by the classes of `items`, as two sources may number theirs differently; others behind."""
    assert tested.labels is not None
    if tested.classes == items.classes:
        return tested.labels
    known = {name: place for place, name in enumerate(items.classes)}
    place = [known.setdefault(name, len(known)) for name in tested.classes]
    return np.where(tested.labels < 0, -1, np.array([*place, -1], dtype=np.int64)[tested.labels])


def _raw(items: Items, ids: Ids) -> Tensor:
    """Vectors as they are; images as their pixels, made small."""
    if items.kind == "vector":
        return torch.from_numpy(items[ids]).float()
    side = min(RAW_SIDE, *items.array.shape[2:])
    parts = np.array_split(ids, max(1, -(-len(ids) // EMBED_BATCH)))
    return torch.cat([centre_square(torch.from_numpy(items[part]), side).flatten(1) / 255 for part in parts])


def _raw_views(
    augmentation: augment.Augmentation, items: Items, ids: Ids, seed: int, which: str
) -> tuple[Tensor, Tensor]:
    """Pixels of drawn views, (n, d), as `_raw` has them, for both uses."""
    views = torch.cat(_views(augmentation, items, ids, seed, which, torch.device("cpu")))
    if isinstance(augmentation, augment.PlainViews):
        views = augmentation.restored(views)
        if views.shape[-1] > RAW_SIDE:
            views = nn.functional.interpolate(views, size=RAW_SIDE, mode="area")
    return views.flatten(1), views.flatten(1)


def _views(
    augmentation: augment.Augmentation, items: Items, ids: Ids, seed: int, which: str, device: torch.device
) -> list[Tensor]:
    """Drawn views of some items, in parts."""
    drawn = augmentation.draw(len(ids), generator(seed, f"evaluated {which} view"))
    rows = [slice(start, start + EMBED_BATCH) for start in range(0, len(ids), EMBED_BATCH)]
    return [augmentation.apply(torch.from_numpy(items[ids[part]]).to(device), drawn.rows(part)) for part in rows]


@torch.no_grad()
def _through(network: nn.Module, parts: list[Tensor]) -> Tensor:
    dtype = place_of(network).dtype
    network.eval()
    return torch.cat([network(part.to(dtype)).float().cpu() for part in parts])
