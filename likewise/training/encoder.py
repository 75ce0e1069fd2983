"""The trained encoder of a run with its pre-processing, which turns any data into embeddings."""

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
from likewise.data.items import TEXT
from likewise.data.roles import CHANNELS, shortened
from likewise.data.text_part import cleaned
from likewise.data.tokens import Tokenizer
from likewise.data.words import unseen_words
from likewise.encoders.features import features, place_of, text_features
from likewise.guide import see
from likewise.malloc import keep_freed_memory
from likewise.modalities import MODALITIES
from likewise.modalities.modality import Exported
from likewise.modalities.text import TOKENIZER, exported
from likewise.pairs.across import WORDS, text_tower
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, check_choice, parse_columns
from likewise.training.progress import Screen
from likewise.training.run import RunError, first_not_finite, read_about, read_text
from likewise.training.trust import check_trust
from likewise.views.texts import TextViews

NO_WORDS = "text queries need an encoder trained on texts, or on images and captions, such as by method clip"


@dataclass(frozen=True)
class Embeddings:
    """The embeddings of all items of a source, in order."""

    vectors: NDArray[np.float32]  # (n, d)
    ids: NDArray[np.int64]  # (n,)
    labels: NDArray[np.int64] | None
    paths: tuple[str, ...] | None


class Encoder(nn.Module):
    """A trained backbone with its pre-processing.

    Its `state_dict` holds only the backbone's weights, under the backbone's own names, so that they can be loaded into
    any copy of the backbone. The head and the pre-processing are not part of it.
    """

    default_layer = "backbone"

    def __init__(self, backbone: nn.Module, head: nn.Module, recipe: Recipe, about: Mapping[str, Any]) -> None:
        super().__init__()
        self.backbone = backbone
        self.recipe, self.about = recipe, about
        self.modality = MODALITIES[about["modality"]]
        self.augmentation = self.modality.augmentation(recipe, about)
        self._head = [head]  # in a list, so that it is not registered as a submodule
        self.register_state_dict_post_hook(_without_prefix)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_with_prefix)  # type: ignore[no-untyped-call]

    def forward(self, views: Tensor) -> Tensor:
        """Return the features (n, d) of prepared views (n, c, h, w), (n, f) or (n, t, c)."""
        return self.backbone(views)  # type: ignore[no-any-return]

    def embed(self, source: Any, *, layer: str | None = None, progress: bool = True) -> Embeddings:
        """Return the embeddings of every item of a source, after the backbone or after the head (`layer="head"`)."""
        layer = layer or self.default_layer
        check_layer(layer, self.recipe)
        items = self.open(source, progress=progress)
        ids = np.arange(len(items))
        return Embeddings(
            features(self.up_to(layer), self.augmentation, items, ids).numpy(), ids, items.labels, items.paths
        )

    def open(self, source: Any = None, *, columns: Mapping[str, str] | None = None, progress: bool = True) -> Items:
        """Open a source with this encoder's size and rate; by default the run's own data.

        `columns` are names of arrays or columns in the data, such as {"y": "speaker"}.
        """
        if source is None or str(source) == self.recipe.data.source:
            columns = parse_columns(self.recipe.data.columns) | dict(columns or {})
        if source is None:
            check_there(self.recipe)
            source = self.recipe.data.source
        open_data = functools.partial(
            data.open,
            source,
            size=self.about["stored"] or None,
            fit=self.about.get("fit", "crop"),  # runs from before there was a choice cropped
            rate=self.about.get("rate") or None,
            gaps=self.recipe.data.gaps,
            progress=progress,
        )
        items = open_data(columns=columns or None)
        names = None if CHANNELS in (columns or {}) else modalities.of(items.main).columns_of(self.about, items.main)
        if names is not None:
            try:
                items = open_data(columns={**(columns or {}), CHANNELS: "+".join(names)})
            except data.DataError as error:
                raise data.DataError(f"the encoder needs the channels {shortened(names)}: {error}") from None
        expected = self.modality.rows_in_words(self.about["channels"], self.about["size"])
        got = modalities.of(items.main).input_of(items.main)
        if expected != got:
            raise data.DataError(f"the encoder takes {expected}, got {got} in {items.name}")
        self.modality.check_reopened(self.about, items.main, items.name)
        if progress and (left_out := unread.in_words(items)):
            first = items.skipped[0]
            Screen().say(f"{items.name}: {left_out}; the first is {first.path}: {first.reason}")
        for note in items.notes if progress else ():
            Screen().say(f"{items.name}: {note}")
        return items

    @property
    def has_text_tower(self) -> bool:
        """Return whether there is an encoder of text beside that of the items."""
        return False

    def layers_for_words(self) -> tuple[str, ...]:
        """Return the layers after which items can be compared with texts."""
        return ()

    @property
    def text_network(self) -> nn.Module:
        """Return the network that embeds text, if the encoder has one."""
        raise ValueError(NO_WORDS)

    def exported_text(self) -> Exported:
        """Return tokens to test the exported text encoder with, if there is one, and what is needed to use it."""
        raise ValueError(NO_WORDS)

    @property
    def texts(self) -> dict[str, str]:
        """Return the contents of the files that are needed to use the text encoder, by file name."""
        return {}

    def embed_text(self, texts: Sequence[str], *, layer: str | None = None) -> NDArray[np.float32]:
        """Return the vectors (n, d) of some texts after a layer, if the encoder can embed text."""
        raise ValueError(NO_WORDS)

    def unseen(self, text: str) -> list[str]:
        """Return the words of a text that no training caption contained."""
        return []

    def up_to(self, layer: str) -> nn.Module:
        """Return the network from prepared views to the output of `layer`."""
        return self.backbone if layer == "backbone" else nn.Sequential(self.backbone, self.head)

    def fingerprint(self, layer: str) -> str:
        """Return a hash of the weights and pre-processing up to `layer`, which does not depend on the run's folder."""
        known = {key: value for key, value in self.about.items() if key != "modality"}  # runs of 0.1.0 have none
        hashed = hashlib.sha256(json.dumps([layer, self.recipe.encoder.name, known]).encode())
        for module in (self.backbone, self.head)[: 1 if layer == "backbone" else 2]:
            for name, value in sorted(module.state_dict().items()):
                hashed.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                hashed.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return hashed.hexdigest()

    @property
    def head(self) -> nn.Module:
        """Return the projection head, on the backbone's device."""
        weights = place_of(self.backbone)
        return self._head[0].to(weights.device, weights.dtype)


class TextEncoder(Encoder):
    """An encoder of texts with its tokenizer."""

    def layers_for_words(self) -> tuple[str, ...]:
        return ("backbone", "head")

    def embed_text(self, texts: Sequence[str], *, layer: str | None = None) -> NDArray[np.float32]:
        """Return vectors (n, d) of texts, to be compared by cosine with each other and with the run's items."""
        check_texts(texts)
        layer, views = layer or self.default_layer, self.augmentation
        check_layer(layer, self.recipe)
        assert isinstance(views, TextViews)
        return text_features(self.up_to(layer), views.tokenizer, [*map(cleaned, texts)], views.length).numpy()


class CaptionEncoder(Encoder):
    """An image encoder and a text encoder, whose heads lead to one space in which an image is near its caption.

    As a module it is the image encoder; `text` is a module of its own.
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
    def has_text_tower(self) -> bool:
        return True

    def layers_for_words(self) -> tuple[str, ...]:
        return ("head",)

    def exported_text(self) -> Exported:
        return exported(self.tokenizer, self.length)

    @property
    def texts(self) -> dict[str, str]:
        return {TOKENIZER: self.tokenizer.text}

    @property
    def image(self) -> nn.Module:
        """Return the image encoder, (n, c, h, w) to (n, features)."""
        return self.backbone

    @property
    def text(self) -> nn.Module:
        """Return the text encoder, (n, t) to (n, features), on the image encoder's device."""
        return self._where_images_are(self._text[0])

    @property
    def text_head(self) -> nn.Module:
        return self._where_images_are(self._text[1])

    @property
    def text_network(self) -> nn.Module:
        """Return the network from tokens to the space of the image embeddings, after the heads."""
        return nn.Sequential(self.text, self.text_head)

    def embed_text(self, texts: Sequence[str], *, layer: str | None = None) -> NDArray[np.float32]:
        """Return vectors (n, d) of texts, to be compared by cosine with image vectors after the head."""
        check_texts(texts)
        if layer not in (None, "head"):
            raise ValueError(
                f"texts can be compared with images after the head only, so layer must be head, got {layer}"
            )
        return text_features(self.text_network, self.tokenizer, texts, self.length).numpy()

    def unseen(self, text: str) -> list[str]:
        """Return the words of a text that no training caption contained; empty for old runs, which lack the list."""
        return [] if self.words is None else unseen_words(text, self.words)

    def _where_images_are(self, module: nn.Module) -> nn.Module:
        weights = place_of(self.backbone)
        return module.to(weights.device, weights.dtype)


def check_there(recipe: Recipe) -> None:
    """Raise an error if the data of a run is no longer where it was."""
    source = recipe.data.source
    if source not in NAMES and not Path(source).expanduser().exists():
        missing = source or "arrays in memory"
        raise RunError(f"the data of the run, {missing}, cannot be found: say where it is (DATA or --data)")


def check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a list of one or more strings, got {texts!r}")


def check_layer(layer: str, recipe: Recipe) -> None:
    if layer not in ("backbone", "head"):
        raise ValueError(f"layer must be backbone or head, got {layer!r}")
    pairs = PAIRS[recipe.pairs.kind]
    if layer == "head" and pairs.needs_frames:
        raise ValueError(
            f"the head of pairs {pairs.name} predicts what comes next and embeds no item, so layer must be backbone"
        )


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    """Use the backbone's own names in a state dict, also if the encoder is part of a larger module."""
    inner = f"{prefix}backbone."
    for name in [name for name in state if name.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)


def _with_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}backbone.{name.removeprefix(prefix)}"] = state.pop(name)


def load(folder: str | Path, *, trust: bool = False) -> Encoder:
    """Load the encoder of a run, in evaluation mode and with its pre-processing.

    A run that names a `module:callable` as its encoder and was not made under this account is refused, unless `trust`
    allows that code to be run.
    """
    keep_freed_memory()
    folder = Path(folder)
    if not (folder / "recipe.toml").exists():
        raise RunError(f"{folder} is not a run: expected a folder with recipe.toml")
    if not (folder / "encoder.safetensors").exists():
        raise RunError(
            f"{folder} has no encoder.safetensors yet, because its training has not finished; run the same "
            "`likewise train` command with --resume to continue it"
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
        raise RunError(
            f"the tokenizer.json of {folder} does not fit its weights: expected {about['vocabulary']:,} tokens, "
            f"got {tokenizer.vocabulary:,}"
        )
    if about.get("fit", "crop") not in tuple(FITS):
        raise RunError(f"the pre-processing of {folder} must have fit crop, pad or stretch, got {about['fit']!r}")
    backbone = MODALITIES[about["modality"]].build(recipe, about)
    head = pairs.build_head(recipe, backbone)
    text = text_tower(recipe, about) if captioned else ()
    try:
        for module, state in zip((backbone, head, *text), weights, strict=True):
            module.load_state_dict(state)
            module.eval()
    except RuntimeError:
        raise RunError(f"the weights of {folder} do not fit its recipe.toml: one of them was changed") from None
    for part in (backbone, head, *text):
        if name := first_not_finite(part):
            words = f"the weights of {folder} are not finite, such as {name}: train again with a lower optimizer.lr"
            raise RunError(f"{words} {see('not finite')}")
    if not text or tokenizer is None:
        kind = TextEncoder if about["modality"] == TEXT else Encoder
        return kind(backbone, head, recipe, about).eval()
    return CaptionEncoder(backbone, head, *text, tokenizer, recipe, about, words).eval()
