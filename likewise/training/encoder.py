"""The encoder that a run leaves behind, with its pre-processing: from any source to vectors."""

import functools
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

from likewise import data, methods, modalities
from likewise.data import Items, unread
from likewise.data.builtin import NAMES
from likewise.data.images import FITS
from likewise.data.roles import CHANNELS, shortened
from likewise.data.tokens import Tokenizer
from likewise.data.words import unseen_words
from likewise.encoders.features import features, place_of, text_features
from likewise.malloc import keep_freed_memory
from likewise.modalities import MODALITIES, Modality
from likewise.pairs import across
from likewise.pairs.across import TOKENIZER, WORDS, text_tower
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, check_choice, parse_columns
from likewise.training.progress import Screen
from likewise.training.run import RunError, first_not_finite, read_about, read_text
from likewise.training.trust import check_trust

NO_WORDS = "words are for encoders of images and captions, as of method clip"


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
        self.modality = MODALITIES[about["modality"]]
        self.augmentation = self.modality.augmentation(recipe, about)
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
            check_there(self.recipe)
            source = self.recipe.data.source
        opened = functools.partial(
            data.open,
            source,
            size=self.about["stored"] or None,
            fit=self.about.get("fit", "crop"),  # what all runs did before there was a choice
            rate=self.about.get("rate") or None,
            progress=progress,
        )
        items = opened(columns=columns or None)
        names = None if CHANNELS in (columns or {}) else modalities.of(items.main).columns_of(self.about, items.main)
        if names is not None:
            try:
                items = opened(columns={**(columns or {}), CHANNELS: "+".join(names)})
            except data.DataError as error:
                raise data.DataError(f"the encoder takes the channels {shortened(names)}: {error}") from None
        wanted = self.modality.rows_in_words(self.about["channels"], self.about["size"])
        got = modalities.of(items.main).rows_in_words(items.array.shape[1], items.array.shape[1])
        if wanted != got:
            raise data.DataError(f"the encoder takes {wanted}, got {got} in {items.name}")
        self.modality.check_reopened(self.about, items.main, items.name)
        if progress and (left_out := unread.in_words(items)):
            first = items.skipped[0]
            Screen().say(f"{items.name}: {left_out}; the first is {first.path}: {first.reason}")
        return items

    @property
    def knows_words(self) -> bool:
        """Whether items can be asked for in words, after the head."""
        return False

    @property
    def text_network(self) -> nn.Module:
        """The network of texts, where the encoder knows words."""
        raise ValueError(NO_WORDS)

    @property
    def text_modality(self) -> Modality:
        """The modality of what the network of texts takes, where the encoder knows words."""
        raise ValueError(NO_WORDS)

    @property
    def texts(self) -> dict[str, str]:
        """Files that whoever uses the network of texts needs, by name."""
        return {}

    def embed_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, where the encoder knows words."""
        raise ValueError(NO_WORDS)

    def unseen(self, text: str) -> list[str]:
        """Return the words of a text that no caption had in training."""
        return []

    def up_to(self, layer: str) -> nn.Module:
        """Return the network from prepared views to the features of this layer."""
        return self.backbone if layer == "backbone" else nn.Sequential(self.backbone, self.head)

    def fingerprint(self, layer: str) -> str:
        """Same weights and pre-processing up to this layer, same fingerprint, wherever they lie."""
        known = {key: value for key, value in self.about.items() if key != "modality"}  # runs of 0.1.0 have none
        hashed = hashlib.sha256(json.dumps([layer, self.recipe.encoder.name, known]).encode())
        for module in (self.backbone, self.head)[: 1 if layer == "backbone" else 2]:
            for name, value in sorted(module.state_dict().items()):
                hashed.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                hashed.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return hashed.hexdigest()

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
        text: nn.Module,
        text_head: nn.Module,
        tokenizer: Tokenizer,
        recipe: Recipe,
        about: Mapping[str, Any],
        words: str | None = None,
    ) -> None:
        super().__init__(backbone, head, recipe, about)
        self.tokenizer, self.length = tokenizer, int(text.length)  # type: ignore[arg-type]  # tokens of a text that are read, at most
        self.words = None if words is None else frozenset(words.split())  # of the captions that were trained on
        self._text = [text, text_head]  # in a list, as the head is

    @property
    def knows_words(self) -> bool:
        return True

    @property
    def text_modality(self) -> Modality:
        return across.text

    @property
    def texts(self) -> dict[str, str]:
        return {TOKENIZER: self.tokenizer.text}

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

    @property
    def text_network(self) -> nn.Module:
        """The network from tokens to the space of the images, after both heads."""
        return nn.Sequential(self.text, self.text_head)

    def embed_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors (n, d) of texts, to be compared by cosine with those of images after the head."""
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"texts must be a list of one or more strings, got {texts!r}")
        return text_features(self.text_network, self.tokenizer, texts, self.length).numpy()

    def unseen(self, text: str) -> list[str]:
        """Words of a text that no caption had in training; none where a run is too old to know them."""
        return [] if self.words is None else unseen_words(text, self.words)

    def _where_images_are(self, module: nn.Module) -> nn.Module:
        weights = place_of(self.backbone)
        return module.to(weights.device, weights.dtype)


def check_there(recipe: Recipe) -> None:
    """Expect the data that a run was trained on to be where they were."""
    source = recipe.data.source
    if source not in NAMES and not Path(source).expanduser().exists():
        gone = source or "arrays in memory"
        raise RunError(f"the data of the run is not there, {gone}: name it (DATA or --data)")


def check_layer(layer: str, recipe: Recipe) -> None:
    if layer not in ("backbone", "head"):
        raise ValueError(f"layer must be backbone or head, got {layer!r}")
    pairs = PAIRS[recipe.pairs.kind]
    if layer == "head" and pairs.needs_frames:
        raise ValueError(
            f"the head of pairs {pairs.name} says what comes next, not what an item is: layer must be backbone"
        )


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    """The backbone's own names, also where the encoder is part of something larger."""
    inner = f"{prefix}backbone."
    for name in [name for name in state if name.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)


def _with_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}backbone.{name.removeprefix(prefix)}"] = state.pop(name)


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
    recipe = Recipe().with_values(methods.read_recipe(folder / "recipe.toml"))
    check_choice("pairs", recipe.pairs.kind, PAIRS)  # a run may have been made with pairs of somebody's own
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    pairs = PAIRS[recipe.pairs.kind]
    captioned = pairs.has_text_tower and (folder / "text.safetensors").exists()
    about = read_about(folder, captioned=captioned)
    try:
        names = ["encoder", "head", *(["text", "text_head"] if captioned else [])]
        weights = [safetensors.torch.load_file(folder / f"{name}.safetensors") for name in names]
        tokenizer = Tokenizer(read_text(folder / TOKENIZER)) if captioned else None
        words = read_text(folder / WORDS) if captioned and (folder / WORDS).exists() else None
    except (OSError, safetensors.SafetensorError, UnicodeDecodeError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    if tokenizer is not None and tokenizer.vocabulary != about["vocabulary"]:
        got = f"{tokenizer.vocabulary:,} tokens for {about['vocabulary']:,}"
        raise RunError(f"the tokenizer.json of {folder} is not that of its weights: {got}")
    if about.get("fit", "crop") not in tuple(FITS):
        raise RunError(f"the images of {folder} must fit by crop, pad or stretch, got {about['fit']!r}")
    backbone = MODALITIES[about["modality"]].build(recipe, about)
    head = pairs.build_head(recipe, backbone)
    text = text_tower(recipe, about) if captioned else ()
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
