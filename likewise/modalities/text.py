"""Define the text modality: one or more strings per item, such as captions; the tokenizer is learned on the data."""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from likewise import encoders
from likewise.data.builtin import needed
from likewise.data.items import TEXT
from likewise.data.parts import Ids, Part
from likewise.data.tokens import END, PADDING, SMALLEST, START, Tokenizer
from likewise.encoders import TEXT_ENCODERS
from likewise.modalities.modality import BATCHES, About, Choice, Exported, Modality, accelerated
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError, check_choice
from likewise.views.augmentation import Augmentation

NO_PRESETS: Mapping[str, Any] = {}
GIVEN = """from tokenizers import Tokenizer

words = Tokenizer.from_file("tokenizer.json").encode("a red circle", add_special_tokens=False).ids
tokens = np.array([[{start}, *words[:{length} - 2], {end}]], dtype=np.int64)  # pad shorter texts with {padding}"""


class TextModality(Modality):
    name = noun = TEXT
    presets = NO_PRESETS
    stands_alone = False

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        yield Choice("text.name", *accelerated("text_small", "text_tiny"))

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        options = recipe.text
        check_choice("text.name", options.name, TEXT_ENCODERS)
        needed("tokenizers", "text", "captions")
        if options.vocabulary < SMALLEST:
            raise RecipeError(
                f"text.vocabulary must be at least {SMALLEST}, since every byte is a token, got {options.vocabulary}"
            )
        if not 0 <= options.dropout < 1:
            raise RecipeError(f"text.dropout must be a share from 0 to below 1, got {options.dropout:g}")

    def learn_tokens(self, part: Part, train: Ids, recipe: Recipe) -> Tokenizer:
        """Learn a tokenizer on the texts of the training items."""
        return Tokenizer.learned(texts_of(part, train), recipe.text.vocabulary)

    def length(self, recipe: Recipe) -> int:
        """Return how many tokens of a text the encoder reads, at most."""
        return int(TEXT_ENCODERS[recipe.text.name].keywords["length"])

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        return encoders.build_text(recipe.text.name, about["vocabulary"], recipe.text.dropout)

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> Exported:
        length, vocabulary, rng = self.length(recipe), about["vocabulary"], generator(0, "export text")
        given = []
        for n, t in zip(BATCHES, (length // 2, 2, length), strict=True):
            ends, position = torch.randint(1, t, (n, 1), generator=rng), torch.arange(t)
            words = torch.randint(END + 1, vocabulary, (n, t), generator=rng).where(position < ends, PADDING)
            given.append(words.where(position != ends, END).where(position > 0, START))
        record: dict[str, Any] = {"input": "tokens", "shape": ["n", "t"], "tokenizer": "tokenizer.json"}
        record |= {"vocabulary": vocabulary, "length": length, "start": START, "end": END, "padding": PADDING}
        return Exported(given, given, record)

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        return f", at most {record['length']} of them: {record['start']}, the text, {record['end']}"

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        return GIVEN.format(**record)

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        return f"encoders.build_text({json.dumps(record['encoder'])}, {record['vocabulary']})"


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
