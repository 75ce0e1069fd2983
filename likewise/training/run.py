"""A run's folder, and the encoder that it leaves behind.

`recipe.toml`, `metrics.jsonl`, `checkpoints/`, `encoder.safetensors`, `head.safetensors`, `skipped.txt`; of pairs
captions `text.safetensors`, `text_head.safetensors` and `tokenizer.json` too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import data, encoders
from likewise.data import Items
from likewise.data.builtin import NAMES
from likewise.data.sequences import Sequences
from likewise.data.tokens import Tokenizer
from likewise.malloc import keep_freed_memory
from likewise.pairs import augment, sequence_views
from likewise.training import metrics
from likewise.training.features import channel_statistics, features, place_of, text_features
from likewise.training.recipe import Recipe, RecipeError, parse_columns, read_toml

FINE_TUNED = "finetuned.json"  # what fine-tuning measured, beside what it kept


class RunError(ValueError):
    """A folder that is not the run it should be: one sentence."""


class NotFiniteError(ValueError):
    """A loss or a weight that is NaN or infinite."""


@dataclass(frozen=True)
class Embeddings:
    """What an encoder makes of a source, in the order of its items."""

    vectors: NDArray[np.float32]  # (n, d)
    ids: NDArray[np.int64]  # (n,)
    labels: NDArray[np.int64] | None
    paths: tuple[str, ...] | None


class Encoder(nn.Module):
    """A trained backbone with its pre-processing; its `state_dict` has the backbone's own names.

    The head and the pre-processing are no part of that state: weights load wherever the backbone does.
    """

    default_layer = "backbone"

    def __init__(self, backbone: nn.Module, head: nn.Module, recipe: Recipe, about: Mapping[str, Any]) -> None:
        super().__init__()
        self.backbone = backbone
        self.recipe, self.about = recipe, about
        self.augmentation = build_augmentation(recipe, about)
        self._head = [head]  # in a list, so that it does not count as part of this module
        self.register_state_dict_post_hook(_without_prefix)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_with_prefix)  # type: ignore[no-untyped-call]

    def forward(self, views: Tensor) -> Tensor:
        """Prepared views (n, c, h, w), (n, f) or (n, t, c) to features (n, d)."""
        return self.backbone(views)  # type: ignore[no-any-return]

    def embed(self, source: Any, *, layer: str | None = None, progress: bool = True) -> Embeddings:
        """Vectors of every item of a source, by the backbone, or by its head (`layer="head"`)."""
        layer = layer or self.default_layer
        check_layer(layer, self.recipe)
        items = self.open(source, progress=progress)
        ids = np.arange(len(items))
        return Embeddings(
            features(self.up_to(layer), self.augmentation, items, ids).numpy(), ids, items.labels, items.paths
        )

    def open(self, source: Any = None, *, columns: Mapping[str, str] | None = None, progress: bool = True) -> Items:
        """A source as this encoder wants it; without one, that of its run. `columns` name labels, say, in it."""
        if source is None or str(source) == self.recipe.data.source:
            columns = parse_columns(self.recipe.data.columns) | dict(columns or {})
        if source is None:
            source = self.recipe.data.source
            if source not in NAMES and not Path(source).expanduser().exists():
                gone = source or "arrays in memory"
                raise RunError(f"the data of the run is not there, {gone}: name it (DATA or --data)")
        items = data.open(
            source,
            size=self.about["stored"] or None,
            rate=self.about.get("rate") or None,
            columns=columns or None,
            progress=progress,
        )
        wanted = _kind_words(self.about["kind"], self.about["channels"], self.about["size"])
        got = _kind_words(items.kind, items.array.shape[1], items.array.shape[1])
        if wanted != got:
            raise data.DataError(f"the encoder takes {wanted}, got {got} in {items.name}")
        rate = self.about.get("rate", 0)
        if isinstance(items, Sequences) and rate and items.rate not in (0, rate):
            raise data.DataError(f"the encoder takes {rate:,} samples a second, got {items.rate:,} in {items.name}")
        return items

    def up_to(self, layer: str) -> nn.Module:
        """From prepared views to the features of this layer."""
        return self.backbone if layer == "backbone" else nn.Sequential(self.backbone, self.head)

    def fingerprint(self, layer: str) -> str:
        """Same weights and pre-processing up to this layer, same fingerprint, wherever they lie."""
        found = hashlib.sha256(json.dumps([layer, self.recipe.encoder.name, dict(self.about)]).encode())
        for module in (self.backbone, self.head)[: 1 if layer == "backbone" else 2]:
            for name, value in sorted(module.state_dict().items()):
                found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return found.hexdigest()

    @property
    def head(self) -> nn.Module:
        """The projection head, where the backbone is."""
        weights = place_of(self.backbone)
        return self._head[0].to(weights.device, weights.dtype)


class CaptionEncoder(Encoder):
    """An encoder of images and one of text, whose heads lead into one space: there an image is near its caption.

    As a module it is the encoder of images; `text` is one of its own.
    """

    default_layer = "head"

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        text: encoders.TextTransformer,
        text_head: nn.Module,
        tokenizer: Tokenizer,
        recipe: Recipe,
        about: Mapping[str, Any],
    ) -> None:
        super().__init__(backbone, head, recipe, about)
        self.tokenizer, self.length = tokenizer, text.length  # tokens of a text that are read, at most
        self._text = [text, text_head]  # in a list, as the head is

    @property
    def image(self) -> nn.Module:
        """The encoder of images, (n, c, h, w) to (n, features)."""
        return self.backbone

    @property
    def text(self) -> nn.Module:
        """The encoder of tokens, (n, t) to (n, features), where that of images is."""
        return self._where_images_are(self._text[0])

    @property
    def text_head(self) -> nn.Module:
        return self._where_images_are(self._text[1])

    def embed_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, d) of texts, to be compared by cosine with those of images after the head."""
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"texts must be a list of one or more strings, got {texts!r}")
        network = nn.Sequential(self.text, self.text_head)
        return text_features(network, self.tokenizer, texts, self.length).numpy()

    def _where_images_are(self, module: nn.Module) -> nn.Module:
        weights = place_of(self.backbone)
        return module.to(weights.device, weights.dtype)


def _kind_words(kind: str, channels: int, size: int) -> str:
    return f"vectors of {size} features" if kind == "vector" else f"{kind}s of {channels} channel{'s' * (channels > 1)}"


def check_layer(layer: str, recipe: Recipe) -> None:
    if layer not in ("backbone", "head"):
        raise ValueError(f"layer must be backbone or head, got {layer!r}")
    if layer == "head" and recipe.pairs.kind == "future":
        raise ValueError("the head of pairs future says what comes next, not what an item is: layer must be backbone")


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    """The backbone's own names, also where the encoder is part of something larger."""
    inner = f"{prefix}backbone."
    for name in [name for name in state if name.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)


def _with_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}backbone.{name.removeprefix(prefix)}"] = state.pop(name)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path

    @property
    def report(self) -> Path:
        """A page to look at in a browser."""
        return self.folder / "report.html"

    @property
    def recipe(self) -> Recipe:
        return Recipe().with_values(read_toml(self.folder / "recipe.toml"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return metrics.read(self.folder / "metrics.jsonl")

    @property
    def encoder(self) -> Encoder:
        return load(self.folder)


def save_weights(folder: Path, parts: Mapping[str, nn.Module], preprocessing: Mapping[str, Any]) -> None:
    """Write the parts, encoder and head, say, each as a file of its name with the pre-processing beside it."""
    for name, module in parts.items():
        save_module(folder / f"{name}.safetensors", module, {"preprocessing": json.dumps(preprocessing)})


def save_module(path: Path, module: nn.Module, about: dict[str, str]) -> None:
    """Write a module's weights, and what is to be known of them: whole or not at all, and only if they are finite."""
    if name := first_not_finite(module):
        raise NotFiniteError(f"{path} is not written: its weights are not finite, {name} for one; lower the lr")
    state = {key: value.detach().cpu().contiguous().clone() for key, value in module.state_dict().items()}
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(safetensors.torch.save(state, metadata=about))
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def first_not_finite(module: nn.Module) -> str:
    """The name of the first parameter that holds NaN or infinity; empty if all are finite.

    Buffers are not looked at: an attention mask may well hold minus infinity, and statistics of batch norm that are
    not finite come with a loss that is not.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        return ""
    # One answer for all of them: each read from an accelerator makes the host wait.
    finite = torch.stack([value.detach().isfinite().all() for value in parameters.values()])
    return next((name for name, is_finite in zip(parameters, finite.tolist(), strict=True) if not is_finite), "")


def load(folder: str | Path) -> Encoder:
    """The encoder of a run, ready to use: in evaluation mode, with its pre-processing."""
    keep_freed_memory()
    folder = Path(folder)
    if not (folder / "recipe.toml").exists():
        raise RunError(f"{folder} is not a run: expected a folder with recipe.toml")
    if not (folder / "encoder.safetensors").exists():
        raise RunError(
            f"{folder} has no encoder.safetensors yet: the run has not finished; `likewise train` goes on with it, "
            "given the same options and --resume"
        )
    recipe = Recipe().with_values(read_toml(folder / "recipe.toml"))
    captioned = recipe.pairs.kind == "captions" and (folder / "text.safetensors").exists()
    try:
        with safetensors.safe_open(folder / "encoder.safetensors", framework="pt") as file:
            about = json.loads((file.metadata() or {})["preprocessing"])
        names = ["encoder", "head", *(["text", "text_head"] if captioned else [])]
        weights = [safetensors.torch.load_file(folder / f"{name}.safetensors") for name in names]
        tokenizer = Tokenizer((folder / "tokenizer.json").read_text(encoding="utf-8")) if captioned else None
    except (OSError, safetensors.SafetensorError, KeyError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    wanted = (
        "kind",
        "channels",
        "size",
        "stored",
        "fingerprint",
        "mean",
        "std",
        *(["vocabulary"] if captioned else []),
    )
    missing = [name for name in wanted if not isinstance(about, dict) or name not in about]
    if missing:
        raise RunError(f"the weights of {folder} must have their pre-processing with them, got no {', '.join(missing)}")
    backbone = build_backbone(recipe, about["kind"], about["channels"], about["size"])
    head = build_head(recipe, backbone)
    text = build_text(recipe, about["vocabulary"]) if captioned else ()
    try:
        for module, state in zip((backbone, head, *text), weights, strict=True):
            module.load_state_dict(state)
            module.eval()
    except RuntimeError:
        raise RunError(f"the weights of {folder} are not those of its recipe.toml: one of them was changed") from None
    for part in (backbone, head, *text):
        if name := first_not_finite(part):
            raise RunError(f"the weights of {folder} are not finite, {name} for one: train again with a lower lr")
    if not text or tokenizer is None:
        return Encoder(backbone, head, recipe, about).eval()
    if tokenizer.vocabulary != about["vocabulary"]:
        got = f"{tokenizer.vocabulary:,} tokens for {about['vocabulary']:,}"
        raise RunError(f"the tokenizer.json of {folder} is not that of its weights: {got}")
    return CaptionEncoder(backbone, head, *text, tokenizer, recipe, about).eval()


def stored_size(size: int) -> int:
    """The resolution that images are kept at, for views of `size`: larger ones leave room to crop."""
    return size if size <= 64 else size * 8 // 7


def build_backbone(recipe: Recipe, kind: str, channels: int, size: int) -> nn.Module:
    """The recipe's backbone for images of `channels` at `size` pixels, vectors, or sequences of `size` samples."""
    name = recipe.encoder.name
    if kind == "vector":
        return encoders.build(name, features=size)
    if kind == "sequence":
        return encoders.build(name, channels=channels, samples=size, context=recipe.encoder.context)
    return encoders.build(name, channels=channels, size=size, stem=recipe.encoder.stem)


def build_head(recipe: Recipe, backbone: nn.Module) -> nn.Module:
    """The recipe's head: a projection, or, of pairs future, one matrix for each step ahead."""
    dim: int = backbone.dim  # type: ignore[assignment]
    if recipe.pairs.kind != "future":
        return encoders.build_head(recipe.encoder.head, dim, recipe.encoder.dim)
    if not isinstance(backbone, encoders.SequenceEncoder):
        raise RecipeError(f"pairs future needs an encoder with frames and contexts, got {recipe.encoder.name}")
    return encoders.StepsAhead(dim, backbone.frames.width, recipe.pairs.horizon)


def build_text(recipe: Recipe, vocabulary: int) -> tuple[encoders.TextTransformer, nn.Module]:
    """The recipe's encoder of captions for so many tokens, and its head."""
    encoder = encoders.build_text(recipe.text.name, vocabulary, recipe.text.dropout)
    return encoder, build_head(recipe, encoder)


def encoder_words(recipe: Recipe, about: Mapping[str, Any], layer: str = "backbone") -> str:
    """What every figure about embeddings depends on: layer, encoder, stem or context."""
    if about["kind"] == "sequence":
        return f"{layer} of {recipe.encoder.name} with {recipe.encoder.context} context"
    stem = recipe.encoder.stem
    if stem == "auto":
        stem = "small" if about["size"] <= 64 else "imagenet"
    return f"{layer} of {recipe.encoder.name}" + (f", {stem} stem" if recipe.encoder.name.startswith("resnet") else "")


def preprocessing(recipe: Recipe, items: Items, train: NDArray[np.int64]) -> dict[str, Any]:
    """What has to be known to prepare items as in training."""
    about: dict[str, Any] = {"kind": items.kind, "channels": items.array.shape[1], "size": recipe.data.size}
    about |= {"stored": recipe.data.stored, "fingerprint": items.fingerprint, "items": len(train)}
    if isinstance(items, Sequences):
        mean, std = channel_statistics(items, train)
        return about | {"size": recipe.pairs.window, "rate": items.rate, "mean": mean, "std": std}
    if items.kind == "vector":
        fitted = augment.VectorViews.fitted(torch.from_numpy(items[train]))
        return about | {"channels": 1, "mean": list(fitted.mean), "std": list(fitted.std)}
    augmentation = augment.preset(recipe.pairs.preset, size=recipe.data.size, channels=items.array.shape[1])
    return about | {"mean": list(augmentation.mean), "std": list(augmentation.std)}


def build_augmentation(recipe: Recipe, about: Mapping[str, Any]) -> augment.Augmentation:
    """The recipe's augmentations, which also prepare items for evaluation."""
    if about["kind"] == "vector":
        return augment.VectorViews(about["size"], mean=tuple(about["mean"]), std=tuple(about["std"]))
    if about["kind"] == "sequence":
        windows = sequence_views.PRESETS[recipe.pairs.preset]
        return windows(mean=tuple(about["mean"]), std=tuple(about["std"]))
    return augment.preset(recipe.pairs.preset, size=about["size"], channels=about["channels"])
