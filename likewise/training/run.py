"""A run's folder, and the encoder that it leaves behind.

`recipe.toml`, `metrics.jsonl`, `checkpoints/`, `encoder.safetensors`, `head.safetensors`, `skipped.txt`; of pairs
captions `text.safetensors`, `text_head.safetensors`, `tokenizer.json` and `words.txt` too.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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
from likewise.bounded import read_bounded
from likewise.data import Items, unread
from likewise.data.builtin import NAMES
from likewise.data.images import FITS
from likewise.data.roles import CHANNELS, shortened
from likewise.data.sequences import Sequences
from likewise.data.tokens import Tokenizer
from likewise.data.words import all_words, unseen_words
from likewise.malloc import keep_freed_memory
from likewise.recipe import Recipe, RecipeError, check_choice, parse_columns, read_toml
from likewise.training import metrics
from likewise.training.about import NEEDED, complaint
from likewise.training.features import channel_statistics, features, place_of, text_features
from likewise.training.footprint import check_size
from likewise.training.progress import Screen
from likewise.training.trust import check_trust
from likewise.views import Augmentation, preset, windows
from likewise.views.vectors import VectorViews

WORDS = "words.txt"  # of the captions that were trained on
LARGEST_TEXT = 64 << 20  # bytes of a tokenizer, or of words

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
        opened = functools.partial(
            data.open,
            source,
            size=self.about["stored"] or None,
            fit=self.about.get("fit", "crop"),  # what all runs did before there was a choice
            rate=self.about.get("rate") or None,
            progress=progress,
        )
        items = opened(columns=columns or None)
        if isinstance(items, Sequences) and items.table is not None and CHANNELS not in (columns or {}):
            # How columns move decides which are channels, and a sensor that moved in training may rest here.
            names = self.about.get("channel_names", items.channels)
            if items.channels != tuple(names):
                try:
                    items = opened(columns={**(columns or {}), CHANNELS: "+".join(names)})
                except data.DataError as error:
                    raise data.DataError(f"the encoder takes the channels {shortened(names)}: {error}") from None
        wanted = _kind_words(self.about["kind"], self.about["channels"], self.about["size"])
        got = _kind_words(items.kind, items.array.shape[1], items.array.shape[1])
        if wanted != got:
            raise data.DataError(f"the encoder takes {wanted}, got {got} in {items.name}")
        rate = self.about.get("rate", 0)
        if isinstance(items, Sequences) and rate and items.rate not in (0, rate):
            raise data.DataError(f"the encoder takes {rate:,} samples a second, got {items.rate:,} in {items.name}")
        if progress and (left_out := unread.in_words(items)):
            first = items.skipped[0]
            Screen().say(f"{items.name}: {left_out}; the first is {first.path}: {first.reason}")
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
        words: str | None = None,
    ) -> None:
        super().__init__(backbone, head, recipe, about)
        self.tokenizer, self.length = tokenizer, text.length  # tokens of a text that are read, at most
        self.words = None if words is None else frozenset(words.split())  # of the captions that were trained on
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

    def unseen(self, text: str) -> list[str]:
        """Words of a text that no caption had in training; none where a run is too old to know them."""
        return [] if self.words is None else unseen_words(text, self.words)

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


def save_words(folder: Path, captions: Iterable[str]) -> None:
    """Write which words the captions have, beside the tokenizer."""
    words = "\n".join(all_words(captions))
    if len(words.encode()) <= LARGEST_TEXT:  # they only serve a note, and what is larger would not be read again
        metrics.write_whole(folder / WORDS, words)


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


def load(folder: str | Path, *, trust: bool = False) -> Encoder:
    """The encoder of a run, ready to use: in evaluation mode, with its pre-processing.

    A run that was not made under this account and names a `module:callable` as its encoder is refused, unless `trust`
    allows its code to be run.
    """
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
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    captioned = recipe.pairs.kind == "captions" and (folder / "text.safetensors").exists()
    about = read_about(folder, captioned=captioned)
    try:
        names = ["encoder", "head", *(["text", "text_head"] if captioned else [])]
        weights = [safetensors.torch.load_file(folder / f"{name}.safetensors") for name in names]
        tokenizer = Tokenizer(read_text(folder / "tokenizer.json")) if captioned else None
        words = read_text(folder / WORDS) if captioned and (folder / WORDS).exists() else None
    except (OSError, safetensors.SafetensorError, UnicodeDecodeError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    if tokenizer is not None and tokenizer.vocabulary != about["vocabulary"]:
        got = f"{tokenizer.vocabulary:,} tokens for {about['vocabulary']:,}"
        raise RunError(f"the tokenizer.json of {folder} is not that of its weights: {got}")
    if about.get("fit", "crop") not in tuple(FITS):
        raise RunError(f"the images of {folder} must fit by crop, pad or stretch, got {about['fit']!r}")
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
    return CaptionEncoder(backbone, head, *text, tokenizer, recipe, about, words).eval()


def read_text(path: Path) -> str:
    """Read a file that stands beside the weights."""
    return read_bounded(path, LARGEST_TEXT).decode()


def read_about(folder: Path, *, captioned: bool = False) -> dict[str, Any]:
    """What has to be known to use the weights of a run, which stands in the file of its encoder."""
    try:
        with safetensors.safe_open(folder / "encoder.safetensors", framework="np") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("preprocessing", "null"))
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    except RecursionError:
        raise RunError(f"the weights of {folder} cannot be read: their pre-processing is nested too deeply") from None
    if wrong := complaint(about, (*NEEDED, *(["vocabulary"] if captioned else []))):
        raise RunError(f"the weights of {folder} must have their pre-processing with them, {wrong}")
    return about


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
        if recipe.encoder.head != "none":
            check_size({"encoder.dim": recipe.encoder.dim}, recipe.encoder.dim * dim)
        return encoders.build_head(recipe.encoder.head, dim, recipe.encoder.dim)
    if not isinstance(backbone, encoders.SequenceEncoder):
        raise RecipeError(f"pairs future needs an encoder with frames and contexts, got {recipe.encoder.name}")
    width, horizon = backbone.frames.width, recipe.pairs.horizon
    check_size({"pairs.horizon": horizon}, horizon * width * dim)
    return encoders.StepsAhead(dim, width, horizon)


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
        about |= {"size": recipe.pairs.window, "rate": items.rate, "mean": mean, "std": std}
        return about if items.table is None else about | {"channel_names": list(items.channels)}
    if items.kind == "vector":
        fitted = VectorViews.fitted(torch.from_numpy(items[train]))
        return about | {"channels": 1, "mean": list(fitted.mean), "std": list(fitted.std)}
    augmentation = preset(recipe.pairs.preset, size=recipe.data.size, channels=items.array.shape[1])
    return about | {"fit": recipe.data.fit, "mean": list(augmentation.mean), "std": list(augmentation.std)}


def build_augmentation(recipe: Recipe, about: Mapping[str, Any]) -> Augmentation:
    """The recipe's augmentations, which also prepare items for evaluation."""
    if about["kind"] == "vector":
        return VectorViews(about["size"], mean=tuple(about["mean"]), std=tuple(about["std"]))
    if about["kind"] == "sequence":
        check_choice("pairs.preset of sequences", recipe.pairs.preset, windows.PRESETS)
        views = windows.PRESETS[recipe.pairs.preset]
        return views(mean=tuple(about["mean"]), std=tuple(about["std"]))
    return preset(recipe.pairs.preset, size=about["size"], channels=about["channels"])
