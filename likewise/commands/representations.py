"""What `likewise evaluate` can measure: a run, a `module:callable` or a file of embeddings, each with its baselines.

A representation turns items into vectors. It is a trained or untrained encoder, or a baseline that needs no training.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from likewise import data, modalities
from likewise.data import Items
from likewise.data.embeddings import ENDINGS, read_embeddings
from likewise.data.parts import ROWS_AT_ONCE, Ids
from likewise.encoders import hop_of
from likewise.encoders.features import as_dtype, features, frame_features, place_of, text_features
from likewise.modalities.modality import Frames, Modality
from likewise.pairs.catalog import PAIRS, build_untrained, finish
from likewise.randomness import generator, number
from likewise.recipe import Recipe
from likewise.training.batches import read
from likewise.training.encoder import Encoder, check_layer, load
from likewise.views.augmentation import Augmentation, changes


class Representation:
    """Turns items into vectors (n, d). Methods that a representation does not support return None."""

    def embed(self, items: Items, ids: Ids) -> Tensor:
        raise NotImplementedError

    def embed_frames(self, items: Items, ids: Ids, frames: Frames) -> Tensor:
        """Return the vectors of single frames of sequences, (m, d)."""
        raise NotImplementedError

    def scaled(self, items: Items, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors of training and test items on the scale on which they are compared."""
        return train, test

    def embed_text(self, texts: Sequence[str]) -> Tensor | None:
        """Return the vectors of texts, in the space of the items' vectors."""
        return None

    def embed_view(self, items: Items, ids: Ids, side: str) -> tuple[Tensor, Tensor] | None:
        """Return the vectors of augmented views, and their vectors after the head, which the loss compares."""
        return None


class Identity(Representation):
    """Items that are embeddings already."""

    def embed(self, items: Items, ids: Ids) -> Tensor:
        return torch.from_numpy(items[ids])


class Baseline(Representation):
    """The modality's baseline without training, such as pixels; with `encoder`, for that encoder's views and frames.

    What it needs to know of the data, such as which words are rare, is taken from the training items.
    """

    def __init__(self, items: Items, train: Ids, encoder: Encoder | None = None, hop: int = 0) -> None:
        self.encoder, self.hop = encoder, hop
        self._baseline = self._modality(items).fitted_baseline(items.main, train)

    def embed(self, items: Items, ids: Ids) -> Tensor:
        return self._baseline(items.main, ids)

    def embed_frames(self, items: Items, ids: Ids, frames: Frames) -> Tensor:
        return self._modality(items).baseline_of_frames(items.main, ids, frames, self.hop)

    def scaled(self, items: Items, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        return self._modality(items).scaled_baseline(train, test)

    def _modality(self, items: Items) -> Modality:
        return modalities.of(items.main) if self.encoder is None else self.encoder.modality

    def embed_view(self, items: Items, ids: Ids, side: str) -> tuple[Tensor, Tensor] | None:
        if self.encoder is None or not has_two_views(self.encoder):
            return None
        parts: list[Tensor] = []
        for views in drawn_views(self.encoder, items, ids, side, torch.device("cpu")):
            rows = self.encoder.modality.baseline_of_views(views, self.encoder.augmentation)
            if rows is None:
                return None
            parts.append(rows)
        return torch.cat(parts), torch.cat(parts)


class Network(Representation):
    """A network with its pre-processing."""

    def __init__(self, network: nn.Module, prepared: Augmentation) -> None:
        self.network, self.prepared = network, prepared

    def embed(self, items: Items, ids: Ids) -> Tensor:
        return features(self.network, self.prepared, items, ids)


class RunNetwork(Representation):
    """Backbone and head of a run, trained or not, up to `layer`; `text` is the text encoder, if there is one."""

    def __init__(self, encoder: Encoder, network: nn.Sequential, text: nn.Module | None, layer: str) -> None:
        self.encoder, self.network, self.text, self.layer = encoder, network, text, layer

    @property
    def _up_to_layer(self) -> nn.Module:
        return self.network[0] if self.layer == "backbone" else self.network

    def embed(self, items: Items, ids: Ids) -> Tensor:
        return features(self._up_to_layer, self.encoder.augmentation, items, ids)

    def embed_frames(self, items: Items, ids: Ids, frames: Frames) -> Tensor:
        backbone: Any = self.network[0]
        return frame_features(backbone, self.encoder.augmentation, items, ids, frames.places, frames.starts)

    def embed_text(self, texts: Sequence[str]) -> Tensor | None:
        if self.text is None:
            return None
        return text_features(self.text, self.encoder.tokenizer, texts, self.encoder.length)  # type: ignore[arg-type]

    def embed_view(self, items: Items, ids: Ids, side: str) -> tuple[Tensor, Tensor] | None:
        if not has_two_views(self.encoder):
            return None
        device = place_of(self.network).device
        vectors, keys = through(self.network, drawn_views(self.encoder, items, ids, side, device))
        return vectors if self.layer == "backbone" else keys, keys


@dataclass(frozen=True)
class Evaluated:
    """An encoder to evaluate: how it opens data, and the representations that are compared."""

    name: str
    open: Callable[[Any], Items]
    # From the items, the ids of those to train on, and whether frames are compared.
    representations: Callable[[Items, Ids, bool], Mapping[str, Representation]]
    recipe: Recipe  # decides the split
    temperature: float = 0.1  # of the loss, for the information bound
    trained_on: str = ""  # fingerprint of the training data
    hop: int = 0  # samples from frame to frame; 0 means that there are no frames
    knows_words: bool = False


def evaluated(
    encoder: Encoder | str | Path,
    train: Any,
    *,
    layer: str | None,
    columns: Mapping[str, str] | None,
    size: int | None,
    seed: int,
    trust: bool,
    progress: bool,
) -> Evaluated:
    """Return a run, a `module:callable` or a file of embeddings as something to evaluate, or raise an error."""
    is_callable = not isinstance(encoder, Encoder) and ":" in str(encoder) and not Path(encoder).exists()
    if size is not None and not is_callable:
        raise ValueError(f"size can only be given for a module:callable, got {size}")
    if isinstance(encoder, Encoder):
        return _trained_run(encoder, layer, columns, progress)
    text = str(encoder)
    if text.lower().endswith(ENDINGS):
        if layer not in (None, "backbone"):
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        if columns:
            raise ValueError(f"columns cannot be given for a file of embeddings, got {text} and {dict(columns)}")
        if train is not None:
            raise ValueError(f"data cannot be given for a file of embeddings, got {text} and {train}")
        return _embeddings(text, seed)
    if is_callable:
        if train is None:
            raise ValueError(f"{text} needs data to be evaluated on (--data)")
        if layer not in (None, "backbone"):
            raise ValueError(f"{text} has no head, so layer must be backbone, got {layer!r}")
        return _custom(text, columns, size, seed, progress)
    return _trained_run(load(encoder, trust=trust), layer, columns, progress)


def _embeddings(path: str, seed: int) -> Evaluated:
    def open_vectors(source: Any) -> Items:
        return read_embeddings(path if source is None else source)

    seeded = Recipe().with_values({"seed": seed})
    return Evaluated(f"the vectors of {path}", open_vectors, lambda *_: {"embeddings": Identity()}, seeded)


def _trained_run(encoder: Encoder, layer: str | None, columns: Mapping[str, str] | None, progress: bool) -> Evaluated:
    recipe, about = encoder.recipe, encoder.about
    layer = layer or encoder.default_layer
    check_layer(layer, recipe)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    # Work on copies, so that the mode and device of the caller's encoder do not change.
    learned = copy.deepcopy(nn.Sequential(encoder.backbone, encoder.head)).to(device)
    fresh = build_untrained(recipe, about)
    untrained = nn.Sequential(fresh.encoder, fresh.head).to(device)
    hop = hop_of(encoder.backbone)
    words: tuple[nn.Module | None, nn.Module | None] = (None, None)
    knows_words = encoder.has_text_tower and layer in encoder.layers_for_words()
    if knows_words:
        words = fresh.keys.to(device), copy.deepcopy(encoder.text_network).to(device)

    def representations(items: Items, train: Ids, by_frame: bool) -> Mapping[str, Representation]:
        finish(recipe, fresh.encoder, encoder.augmentation, items, train, like=encoder.backbone)
        return {
            encoder.modality.baseline_name(by_frame): Baseline(items, train, encoder, hop),
            "untrained encoder": RunNetwork(encoder, untrained, words[0], layer),
            "learned encoder": RunNetwork(encoder, learned, words[1], layer),
        }

    dim = encoder.backbone.dim if layer == "backbone" else recipe.encoder.dim
    features_of = encoder.modality.describe_features(recipe, about, layer)
    name = f"{features_of}, {dim} features, {recipe.method}, seed {recipe.seed}"
    opened = partial(encoder.open, columns=columns, progress=progress)
    temperature = about.get("temperature", recipe.loss.temperature)
    trained_on = about.get("fingerprint", "")
    return Evaluated(name, opened, representations, recipe, temperature, trained_on, hop, knows_words)


def _custom(name: str, columns: Mapping[str, str] | None, size: int | None, seed: int, progress: bool) -> Evaluated:
    """Return an encoder `module:callable`, which was not trained by likewise, as something to evaluate."""
    seeded = Recipe().with_values({"seed": seed})

    def representations(items: Items, train: Ids, by_frame: bool) -> Mapping[str, Representation]:
        modality = modalities.of(items.main)
        modality.check_data(items.main, seeded, items.name)
        torch.manual_seed(number(seed, "weights"))  # in case the callable draws random weights
        prepared = modality.plain(items.main, train, size)
        network = modality.build_named(name, items.main, size)
        network.to(torch.accelerator.current_accelerator() or "cpu")
        return {modality.baseline_name(by_frame): Baseline(items, train), name: Network(network, prepared)}

    return Evaluated(name, partial(data.open, size=size, columns=columns, progress=progress), representations, seeded)


def has_two_views(encoder: Encoder) -> bool:
    """Return whether the run was trained on pairs of views that differ, unlike pairs future, captions and dropout."""
    return PAIRS[encoder.recipe.pairs.kind].two_views and changes(encoder.augmentation)


def drawn_views(encoder: Encoder, items: Items, ids: Ids, side: str, device: torch.device) -> Iterator[Tensor]:
    """Yield augmented views of some items, in parts of at most ROWS_AT_ONCE."""
    seed, augmentation = encoder.recipe.seed, encoder.augmentation
    drawn = augmentation.draw(len(ids), generator(seed, f"evaluated {side} view"))
    for start in range(0, len(ids), ROWS_AT_ONCE):
        part = slice(start, min(start + ROWS_AT_ONCE, len(ids)))
        rng = generator(seed, f"evaluated {side} window")
        rows, _ = read(items.main, ids[part], encoder.about["size"], len(ids), part, rng)
        yield augmentation.apply(rows.to(device), drawn.rows(part))


@torch.no_grad()
def through(network: nn.Sequential, parts: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the outputs of the backbone and of the head for views that come in parts, (n, d) each."""
    dtype = place_of(network).dtype
    network.eval()
    backbone, head = network
    vectors = [backbone(as_dtype(part, dtype)) for part in parts]
    keys = [head(part) for part in vectors]
    return torch.cat([part.float().cpu() for part in vectors]), torch.cat([part.float().cpu() for part in keys])
