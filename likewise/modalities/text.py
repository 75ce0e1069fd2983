"""Define the text modality: one string per item, or several as captions; the tokenizer is learned on the data."""

import functools
import json
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from likewise import encoders
from likewise.data import Items
from likewise.data.builtin import needed
from likewise.data.items import TEXT
from likewise.data.parts import Ids, Part
from likewise.data.tokens import END, PADDING, SMALLEST, Tokenizer
from likewise.encoders import TEXT_ENCODERS
from likewise.modalities.modality import BATCHES, About, Choice, Exported, Modality, accelerated
from likewise.modalities.tf_idf import TfIdf
from likewise.modalities.tiles import Tiles
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError, check_choice
from likewise.views import texts
from likewise.views.augmentation import Augmentation
from likewise.views.texts import TextViews

TOKENIZER = "tokenizer.json"
CARD, LETTERS, LINES = 96, 17, 9  # pixels per side of a picture of a text, and what fits on it
GIVEN = """from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.no_padding()
tokenizer.no_truncation()
words = tokenizer.encode("a red circle", add_special_tokens=False).ids
tokens = np.array([[{start}, *words[:{length} - 2], {end}]], dtype=np.int64)  # pad shorter texts with {padding}"""


class TextModality(Modality):
    name = noun = TEXT
    presets = texts.PRESETS

    def method(self, items: Items) -> tuple[str, str]:
        return "simclr", "two spans of one text are alike"

    def describe(self, part: Part) -> str:
        return f"about {part.native:,} words"

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        if recipe.pairs.preset == "dropout":
            return f", two passes with dropout {recipe.text.dropout:g}"
        return f", {recipe.pairs.preset} augmentations"

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        if recipe.encoder.name not in TEXT_ENCODERS:  # the one that a method names may be for images
            yield Choice("encoder.name", *accelerated("bert_mini", "bert_tiny"))
        if recipe.pairs.preset not in self.presets:
            yield Choice("pairs.preset", self.default_preset(part), "the items are texts")

    def default_preset(self, part: Part) -> str:
        return "text"

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        super().check(part, recipe, name)
        check_name("encoder.name", recipe.encoder.name)
        check_text(recipe)
        options = recipe.encoder
        if options.init and not recipe.text.tokenizer:
            raise RecipeError(
                "encoder.init needs text.tokenizer, the tokenizer.json that belongs to the weights, because other "
                "tokens would get their embeddings"
            )
        if recipe.pairs.preset == "dropout" and recipe.pairs.kind == "views":
            same = "or both views of a text are the same"
            if not recipe.text.dropout:
                raise RecipeError(f"pairs.preset dropout needs text.dropout above 0, {same}")
            if options.frozen:
                raise RecipeError(f"pairs.preset dropout needs an encoder that is trained, not encoder.frozen, {same}")

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        tokenizer = tokenizer_for(recipe, lambda: part.texts(train))
        length = length_of(recipe.encoder.name)
        about = {"channels": 1, "size": length, "stored": 0, "mean": [], "std": []}
        return about | about_tokens(tokenizer) | {"tokenizer": tokenizer.text}

    def kept_in(self, folder: Path) -> dict[str, Any]:
        return {"text.tokenizer": str(folder / TOKENIZER)} if (folder / TOKENIZER).exists() else {}

    def digest(self, about: About) -> str:
        return tokenizer_of(about["tokenizer"]).digest

    def files_of(self, about: About) -> dict[str, str]:
        return {TOKENIZER: about["tokenizer"]}

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        return texts.PRESETS[recipe.pairs.preset](tokenizer_of(about["tokenizer"]), about["size"])

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        raise RecipeError(
            "an encoder of texts that was not trained with likewise has its own tokenizer: evaluate a file of vectors"
        )

    def complaint(self, about: About) -> str | None:
        for name in ("vocabulary", "end"):
            if type(about.get(name)) is not int:
                return f"expected a whole number for {name}, got {str(about.get(name))[:40]!r}"
        if not isinstance(about.get("tokenizer"), str):
            return "expected a tokenizer as text, got something else"
        tokenizer = tokenizer_of(about["tokenizer"])
        if (tokenizer.vocabulary, tokenizer.end) != (about["vocabulary"], about["end"]):
            return f"expected a tokenizer of {about['vocabulary']:,} tokens, got one of {tokenizer.vocabulary:,}"
        return None if about["size"] > 2 else f"expected texts of more than 2 tokens, got {about['size']}"

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        return 0, size

    def rows_in_words(self, channels: int, size: int) -> str:
        return "texts"

    def input_of(self, part: Part) -> str:
        return "texts"

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        return build_encoder(recipe.encoder.name, recipe, about)

    def baseline_name(self, by_frame: bool) -> str:
        return "TF-IDF"

    def fitted_baseline(self, part: Part, train: Ids) -> Callable[[Part, Ids], Tensor]:
        words = TfIdf(part.texts(train))
        return lambda other, ids: words.rows(other.texts(ids))

    def baseline_of_views(self, views: Tensor, augmentation: Augmentation) -> Tensor | None:
        return None

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> Exported:
        assert isinstance(plain, TextViews)
        return exported(plain.tokenizer, plain.length)

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        return f", at most {record['length']} of them: {record['start']}, the text, {record['end']}"

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        return GIVEN.format(**record)

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        return f"encoders.build_text({json.dumps(record['encoder'])}, {record['vocabulary']})"

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        return cards(part.texts(ids))

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        assert isinstance(augmentation, TextViews)
        return cards([augmentation.tokenizer.decode(tokens) for tokens in views])


def check_text(recipe: Recipe) -> None:
    """Raise an error if the recipe's tokenizer or dropout cannot be."""
    options = recipe.text
    needed("tokenizers", "text", "captions")
    if options.vocabulary < SMALLEST:
        raise RecipeError(
            f"text.vocabulary must be at least {SMALLEST}, since every byte is a token, got {options.vocabulary}"
        )
    if not 0 <= options.dropout < 1:
        raise RecipeError(f"text.dropout must be a share from 0 to below 1, got {options.dropout:g}")


def check_name(key: str, name: str) -> None:
    """Raise an error unless this is the name of a text encoder."""
    check_choice(key, name, TEXT_ENCODERS)


def about_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return what an encoder of its tokens needs to know of a tokenizer."""
    return {"vocabulary": tokenizer.vocabulary, "end": tokenizer.end}


def build_encoder(name: str, recipe: Recipe, about: About) -> nn.Module:
    """Build a text encoder for the tokens of `about_tokens`."""
    end = about.get("end", END)  # runs of 0.1.0 have none
    return encoders.build_text(name, about["vocabulary"], recipe.text.dropout, end=end)


def length_of(name: str) -> int:
    """Return how many tokens of a text an encoder reads, at most."""
    return int(TEXT_ENCODERS[name].keywords["length"])


def tokenizer_for(recipe: Recipe, read: Callable[[], list[str]]) -> Tokenizer:
    """Return the tokenizer that the recipe names, or else one that is learned on the texts that `read` returns."""
    if recipe.text.tokenizer:
        return Tokenizer(read_file(recipe.text.tokenizer))
    return Tokenizer.learned(read(), recipe.text.vocabulary)


def read_file(path: str) -> str:
    """Return the content of a tokenizer's file."""
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecipeError(f"text.tokenizer must be a tokenizer.json, got {path}: {reason}") from None


@functools.lru_cache(maxsize=4)
def tokenizer_of(text: str) -> Tokenizer:
    """Return a tokenizer from its content; reading a large one takes a moment, so some are kept."""
    return Tokenizer(text)


def exported(tokenizer: Tokenizer, length: int) -> Exported:
    """Return random tokens to test an exported text encoder with, and the information that is needed to use it."""
    rng, given = generator(0, "export text"), []
    special = torch.tensor([PADDING, tokenizer.start, tokenizer.end])
    for n, t in zip(BATCHES, (length // 2, 2, length), strict=True):
        ends, position = torch.randint(1, t, (n, 1), generator=rng), torch.arange(t)
        words = torch.randint(0, tokenizer.vocabulary, (n, t), generator=rng)
        words = words.where(~torch.isin(words, special), tokenizer.vocabulary - 1)
        tokens = words.where(position < ends, PADDING).where(position != ends, tokenizer.end)
        given.append(tokens.where(position > 0, tokenizer.start))
    record: dict[str, Any] = {"input": "tokens", "shape": ["n", "t"], "tokenizer": TOKENIZER}
    record |= {"vocabulary": tokenizer.vocabulary, "length": length}
    record |= {"start": tokenizer.start, "end": tokenizer.end, "padding": PADDING}
    return Exported(given, given, record)


def cards(shown: Sequence[str]) -> Tiles:
    """Draw the first words of each text, black on white."""
    font = ImageFont.load_default(9)
    tiles = np.empty((len(shown), CARD, CARD, 3), dtype=np.uint8)
    for tile, text in zip(tiles, shown, strict=True):
        image = Image.new("RGB", (CARD, CARD), "white")
        lines = textwrap.wrap(text[: 2 * LETTERS * LINES], LETTERS)[:LINES]
        ImageDraw.Draw(image).multiline_text((3, 3), "\n".join(lines), fill="black", font=font, spacing=1)
        tile[:] = np.asarray(image)
    return tiles


def texts_of(part: Part, items: Ids) -> list[str]:
    """Return the texts of some items, item by item."""
    return [text for texts in texts_by_item(part, items) for text in texts]


def texts_by_item(part: Part, items: Ids) -> list[list[str]]:
    """Return the texts of some items, a list for each."""
    assert part.item is not None
    starts, ends = part.item.searchsorted(items), part.item.searchsorted(items, side="right")
    return [part.array[start:end].tolist() for start, end in zip(starts, ends, strict=True)]


def same_text(text: str) -> str:
    """Return a normal form of a text, composed and in lower case as for the tokenizer, to recognize equal texts."""
    return unicodedata.normalize("NFC", text).lower()


def matches(texts: Sequence[Sequence[str]]) -> tuple[list[str], torch.Tensor]:
    """Return every distinct text once, and pairs (p, 2) of an item and the index of a text that it has."""
    distinct: dict[str, tuple[int, str]] = {}
    pairs = {
        (item, distinct.setdefault(same_text(text), (len(distinct), text))[0])
        for item, item_texts in enumerate(texts)
        for text in item_texts
    }
    return [text for _, text in distinct.values()], torch.tensor(sorted(pairs))
