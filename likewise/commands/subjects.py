"""What can be evaluated: a run, anyone's `module:callable`, or a file of embeddings, and what each is compared with."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import data, encoders
from likewise.commands import raw
from likewise.commands.raw import Frames
from likewise.data import Items
from likewise.data.embeddings import ENDINGS, read_embeddings
from likewise.data.sequences import Sequences
from likewise.randomness import generator, number
from likewise.recipe import Recipe
from likewise.training.batches import read
from likewise.training.features import (
    EMBED_BATCH,
    channel_statistics,
    features,
    frame_features,
    place_of,
    text_features,
)
from likewise.training.run import CaptionEncoder, Encoder, check_layer, encoder_words, load
from likewise.training.towers import CaptionTower, build_tower
from likewise.views import Augmentation, preset
from likewise.views.vectors import VectorViews
from likewise.views.windows import PlainWindows

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Way:
    """One way to see items: as vectors, and as the vectors of drawn views, (n, d) and what the loss compares.

    Where it can see words too, `embed_text` leads them into the space of the items' vectors.
    """

    embed: Callable[[Items, Ids], Tensor]
    embed_text: Callable[[Sequence[str]], Tensor] | None = None
    embed_frames: Callable[[Sequences, Ids, Frames], Tensor] | None = None
    view: Callable[[Items, Ids, str], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Subject:
    """What is evaluated: how it opens a source, and the ways that are compared."""

    name: str
    open: Callable[[Any], Items]
    ways: Callable[[Items, Ids, str], Mapping[str, Way]]  # given the items, those to train on, and item or frame
    recipe: Recipe  # for the split
    temperature: float = 0.1  # of the loss, for the information bound
    trained_on: str = ""  # fingerprint of the data
    hop: int = 0  # samples from frame to frame; 0: there are no frames
    worded: bool = False  # it can see words


def subject_of(
    encoder: Encoder | str | Path,
    train: Any,
    *,
    layer: str | None,
    columns: Mapping[str, str] | None,
    size: int | None,
    seed: int,
    trust: bool,
    progress: bool,
) -> Subject:
    """How this is to be evaluated, or why it cannot be."""
    is_callable = not isinstance(encoder, Encoder) and ":" in str(encoder) and not Path(encoder).exists()
    if size is not None and not is_callable:
        raise ValueError(f"size is for a module:callable, which does not know its own, got {size}")
    if isinstance(encoder, Encoder):
        return _run(encoder, layer, columns, progress)
    text = str(encoder)
    if text.lower().endswith(ENDINGS):
        if layer not in (None, "backbone"):
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        if columns:
            raise ValueError(f"columns are of data, not of embeddings, got {text} and {dict(columns)}")
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
        if layer not in (None, "backbone"):
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        return _anyones(text, columns, size, seed, progress)
    return _run(load(encoder, trust=trust), layer, columns, progress)


def _run(encoder: Encoder, layer: str | None, columns: Mapping[str, str] | None, progress: bool) -> Subject:
    recipe, about = encoder.recipe, encoder.about
    layer = layer or encoder.default_layer
    check_layer(layer, recipe)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    # Copies: neither the mode nor the place of the caller's encoder changes.
    learned = copy.deepcopy(nn.Sequential(encoder.backbone, encoder.head)).to(device)
    # Random weights also where the run started from others, whose file may be gone.
    anew = {"encoder.init": "", "encoder.frozen": False, "encoder.bn_splits": 1}
    fresh = build_tower(recipe.with_values(anew), about)
    untrained = nn.Sequential(fresh.encoder, fresh.head).to(device)
    words: tuple[nn.Module | None, nn.Module | None] = (None, None)
    # Words lead to where the head leads.
    if isinstance(encoder, CaptionEncoder) and isinstance(fresh, CaptionTower) and layer == "head":
        words = fresh.text.to(device), copy.deepcopy(nn.Sequential(encoder.text, encoder.text_head)).to(device)

    def way(network: nn.Sequential, text: nn.Module | None) -> Way:
        def embed(items: Items, ids: Ids) -> Tensor:
            return features(network[0] if layer == "backbone" else network, encoder.augmentation, items, ids)

        def embed_frames(items: Sequences, ids: Ids, frames: Frames) -> Tensor:
            backbone = network[0]
            assert isinstance(backbone, encoders.SequenceEncoder)
            return frame_features(backbone, encoder.augmentation, items, ids, frames.places, frames.starts)

        def view(items: Items, ids: Ids, which: str) -> tuple[Tensor, Tensor]:
            rows = _views(encoder, items, ids, which, device)
            vectors, keys = _through(network, rows)
            return vectors if layer == "backbone" else keys, keys

        def embed_text(texts: Sequence[str]) -> Tensor:
            assert text is not None
            assert isinstance(encoder, CaptionEncoder)
            return text_features(text, encoder.tokenizer, texts, encoder.length)

        # The future of a sequence is one of a kind, and an image's partner its caption: there are no two views.
        viewed = recipe.pairs.kind not in ("future", "captions")
        return Way(embed, None if text is None else embed_text, embed_frames, view if viewed else None)

    def raw_view(items: Items, ids: Ids, which: str) -> tuple[Tensor, Tensor]:
        rows = raw.of_views(torch.cat(_views(encoder, items, ids, which, torch.device("cpu"))), encoder.augmentation)
        return rows, rows

    hop = encoder.backbone.hop if isinstance(encoder.backbone, encoders.SequenceEncoder) else 0
    plainly = Way(
        raw.vectors,
        embed_frames=lambda items, ids, frames: raw.of_frames(items, ids, frames, hop),
        view=None if about["kind"] == "sequence" or recipe.pairs.kind == "captions" else raw_view,
    )

    def ways(items: Items, train: Ids, by: str) -> Mapping[str, Way]:
        return {
            raw.name_of(items, by): plainly,
            "untrained encoder": way(untrained, words[0]),
            "learned encoder": way(learned, words[1]),
        }

    dim = encoder.backbone.dim if layer == "backbone" else recipe.encoder.dim
    name = f"{encoder_words(recipe, about, layer)}, {dim} features, {recipe.method}, seed {recipe.seed}"
    opened = partial(encoder.open, columns=columns, progress=progress)
    temperature = about.get("temperature", recipe.loss.temperature)
    return Subject(name, opened, ways, recipe, temperature, about.get("fingerprint", ""), hop, words[1] is not None)


def _anyones(name: str, columns: Mapping[str, str] | None, size: int | None, seed: int, progress: bool) -> Subject:
    def ways(items: Items, train: Ids, by: str) -> Mapping[str, Way]:
        torch.manual_seed(number(seed, "weights"))  # where it draws its own
        if isinstance(items, Sequences):
            mean, std = channel_statistics(items, train)
            prepared: Augmentation = PlainWindows(tuple(mean), tuple(std))
            network = encoders.build(name, channels=items.array.shape[1], samples=items.native)
        elif items.kind == "vector":
            prepared = VectorViews.fitted(torch.from_numpy(items[train]))
            network = encoders.build(name, features=items.array.shape[1])
        else:
            channels, side = items.array.shape[1], size or min(items.array.shape[2:])
            prepared = preset("none", size=side, channels=channels)
            network = encoders.build(name, channels=channels, size=side)
        network.to(torch.accelerator.current_accelerator() or "cpu")
        way = Way(lambda items, ids: features(network, prepared, items, ids))
        return {raw.name_of(items, by): Way(raw.vectors), name: way}

    seeded = Recipe().with_values({"seed": seed})
    opened = partial(data.open, size=size, columns=columns, progress=progress)
    return Subject(name, opened, ways, seeded)


def _views(encoder: Encoder, items: Items, ids: Ids, which: str, device: torch.device) -> list[Tensor]:
    """Drawn views of some items, in parts."""
    seed, augmentation = encoder.recipe.seed, encoder.augmentation
    drawn = augmentation.draw(len(ids), generator(seed, f"evaluated {which} view"))
    found = []
    for start in range(0, len(ids), EMBED_BATCH):
        part = slice(start, min(start + EMBED_BATCH, len(ids)))
        rng = generator(seed, f"evaluated {which} window")
        rows, _ = read(items, ids[part], encoder.about["size"], len(ids), part, rng)
        found.append(augmentation.apply(rows.to(device), drawn.rows(part)))
    return found


@torch.no_grad()
def _through(network: nn.Sequential, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """What the backbone makes of views that come in parts, and what the head makes of that: (n, d) each."""
    dtype = place_of(network).dtype
    network.eval()
    backbone, head = network
    vectors = [backbone(part.to(dtype)) for part in parts]
    keys = [head(part) for part in vectors]
    return torch.cat([part.float().cpu() for part in vectors]), torch.cat([part.float().cpu() for part in keys])
