"""The interface of all kinds of pairs: before a run, while drawing batches, and for describing what was learned.

A pair has two sides. The first side becomes queries and the second side becomes keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from likewise import encoders, modalities
from likewise.data import Items
from likewise.data.held_out import groups_apart, has_groups_to_hold_out, items_apart
from likewise.data.parts import Ids
from likewise.data.tokens import joined
from likewise.dictionaries import Found
from likewise.dictionaries.catalog import KEYS
from likewise.dictionaries.kind import DictionaryKind
from likewise.losses.look_up import LookUp
from likewise.memory import check_size
from likewise.modalities.modality import Choice
from likewise.pairs.batch import Batch
from likewise.pairs.metric import Metric
from likewise.pairs.towers import PredictingTower, Tower
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError
from likewise.views.augmentation import PLAIN

STEPS = "steps"  # the head with one matrix for each step ahead

Read = Callable[[Tensor, str], Tensor]  # from places in the training part and the name of a side to their data


@dataclass(frozen=True)
class Shown:
    """What the report shows of the first batch."""

    sides: Mapping[str, str]  # the titles of the sides that are shown, by name
    task: str  # what the model has to do with them, in a sentence


class Pairs:
    """Which pairs should agree."""

    name: ClassVar[str]
    columns = 1  # of ids

    # Declared properties, from which it follows what these pairs can be combined with
    options: ClassVar[tuple[str, ...]] = ("preset", "symmetric", "window")  # recipe keys of [pairs] besides `kind`
    two_views: ClassVar[bool] = True  # both sides are views of one modality, so that either can be the query
    sides_in_words: ClassVar[str] = "two views"
    one_slot_an_item: ClassVar[bool] = False  # there is one key per item, as a memory bank needs
    needs_frames: ClassVar[bool] = False  # needs sequences, an encoder with frames, and a head for each step ahead
    keys_learn: ClassVar[bool] = False  # the keys have a separate tower, which only learns from their gradient
    in_chunks: ClassVar[bool] = True  # a batch can be embedded in several parts
    looks_ahead: ClassVar[bool] = False  # predicts within a window, which should be long
    has_text_tower: ClassVar[bool] = False  # items can be searched by text
    default_layer: ClassVar[str] = "backbone"
    kept_files: ClassVar[tuple[str, ...]] = ()  # files with what was fitted on the data, saved beside the weights
    notes: tuple[str, ...] = ()  # sentences about the data that the user should read

    # Before a run

    @classmethod
    def stand_in(cls, items: Items) -> Choice | None:
        """Return the choice of another kind of pairs if these items lack what this kind needs; else None."""
        return None

    @classmethod
    def check_items(cls, items: Items, train: Ids) -> None:
        """Raise a RecipeError if these items cannot be paired in this way."""

    @classmethod
    def share_labels(cls, items: Items) -> bool:
        """Return whether the partners of a pair have the same label."""
        return True

    @classmethod
    def choices(cls, items: Items, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        """Yield recipe values for these pairs, to be used where the user set none."""
        modality = modalities.of(items.main)
        if recipe.pairs.preset == PLAIN:
            yield Choice("pairs.preset", modality.default_preset(items.main), f"the items are {modality.noun}s")
        if recipe.encoder.head == STEPS:
            yield Choice("encoder.head", "mlp", f"pairs are {cls.name}")
        yield from modality.window_choices(items.main, train, recipe, looks_ahead=cls.looks_ahead)
        if cls.two_views:
            keys_learn = KEYS[recipe.keys.by].with_gradient
            yield from modality.view_choices(items.main, recipe, keys_learn=keys_learn)

    @classmethod
    def late_choices(cls, items: Items, recipe: Recipe) -> Iterator[Choice]:
        """Yield further recipe values, which depend on those chosen before."""
        yield from ()

    @classmethod
    def check(cls, items: Items, recipe: Recipe) -> None:
        """Raise a RecipeError if the recipe cannot work with these pairs."""

    @classmethod
    def refusal(cls, recipe: Recipe, dictionary: DictionaryKind) -> str | None:
        """Return a sentence that says why these pairs cannot be used with a dictionary, or None if they can."""
        return None

    @classmethod
    def numbers_per_step(cls, recipe: Recipe) -> dict[tuple[str, ...], int]:
        """Return how many numbers a step holds in memory, by the recipe keys that determine it."""
        return {}

    @classmethod
    def keys_per_epoch(cls, items: Items, train: Ids, recipe: Recipe) -> int:
        """Return how many different keys the data contain."""
        return len(train)

    @classmethod
    def split(cls, items: Items, recipe: Recipe) -> tuple[Ids, Ids]:
        """Return the ids to train on and the held-out ids, for data without a test part.

        Without labels there is nothing to evaluate, so nothing is held out. Whole groups are held out if there are
        enough of them (see data.apart), unless that would leave a class without items to train on.
        """
        if items.labels is None or not recipe.data.test:
            return np.arange(len(items)), np.arange(0)
        if recipe.data.apart == "groups" and items.groups is not None and has_groups_to_hold_out(items.groups):
            rng = generator(recipe.seed, "split")
            train, test = groups_apart(items.groups, recipe.data.test, rng, least=1)
            if np.isin(items.labels[test], items.labels[train]).all():
                return train, test
        return items_apart(len(items), recipe.data.test, generator(recipe.seed, "split"))

    @classmethod
    def describe(cls, items: Items, recipe: Recipe) -> str:
        """Describe the pairs for the plan."""
        return f"{cls.name}{modalities.of(items.main).describe_views(items.main, recipe)}"

    @classmethod
    def describe_keys(cls, recipe: Recipe) -> str:
        """Describe what encodes the keys."""
        return recipe.keys.by

    @classmethod
    def describe_defaults(cls, recipe: Recipe, scale: str) -> str:
        """Describe a method's defaults for the table of methods; `scale` is its temperature or margin."""
        encoder = f"{recipe.encoder.name}, " if recipe.encoder.name else ""
        preset = f", {recipe.pairs.preset} views" if recipe.pairs.preset else ""
        return f"{scale}, {encoder}{cls.describe_head(recipe)}{preset}"

    @classmethod
    def describe_head(cls, recipe: Recipe) -> str:
        options = recipe.encoder
        head = "no head" if options.head == "none" else f"{options.head} head to {options.dim}"
        return f"{head}, {options.predictor} predictor" if options.predictor else head

    @classmethod
    def describe_towers(cls, recipe: Recipe) -> list[str]:
        """Return the lines of the plan about other towers than the main one."""
        return []

    @classmethod
    def grid(cls, items: Items, recipe: Recipe) -> int:
        """Return a number of samples: every window begins at a multiple of it."""
        return 1

    # What is fitted on the data

    @classmethod
    def fit(cls, items: Items, train: Ids, recipe: Recipe) -> dict[str, str]:
        """Fit what these pairs need on the data, and return it as the content of `kept_files`, by name."""
        return {}

    @classmethod
    def build(cls, items: Items, train: Ids, recipe: Recipe, files: Mapping[str, str]) -> "Pairs":
        """Build the pairs of a run from the content of `kept_files`."""
        return cls()

    @property
    def about(self) -> dict[str, Any]:
        """Facts that are needed to build the towers, and that are saved with the weights."""
        return {}

    @property
    def files(self) -> dict[str, str]:
        """The contents of files that a run saves beside the weights, by name."""
        return {}

    @property
    def digest(self) -> str:
        """A digest of what was fitted, so that a resumed run can compare it; empty if nothing was fitted."""
        return ""

    # The model

    @classmethod
    def build_head(cls, recipe: Recipe, backbone: nn.Module) -> nn.Module:
        """Build the head that follows a backbone."""
        dim: int = backbone.dim  # type: ignore[assignment]
        if recipe.encoder.head != "none":
            check_size({"encoder.dim": recipe.encoder.dim}, recipe.encoder.dim * dim)
        return encoders.build_head(recipe.encoder.head, dim, recipe.encoder.dim)

    @classmethod
    def build_tower(cls, encoder: nn.Module, head: nn.Module, recipe: Recipe, about: Mapping[str, Any]) -> Tower:
        """Build the network that is trained from its backbone and head."""
        if not recipe.encoder.predictor:
            return Tower(encoder, head)
        known = [name for name in encoders.HEADS if name != "none"]
        if recipe.encoder.predictor not in known:
            got = f"{recipe.encoder.predictor!r}"
            raise RecipeError(f"encoder.predictor must be {', '.join(known)} or empty, got {got}")
        dim: int = head.dim  # type: ignore[assignment]
        check_size({"encoder.dim": dim}, dim * dim)
        return PredictingTower(encoder, head, encoders.build_head(recipe.encoder.predictor, dim, dim))

    @classmethod
    def finish(cls, encoder: nn.Module, embed: Callable[[], Tensor]) -> None:
        """Fit what comes after the encoder's features, if anything, on those of training items, which `embed` returns.

        It is called before features are evaluated and before weights are saved.
        """

    @classmethod
    def is_finished(cls, encoder: nn.Module) -> bool:
        """Return whether the encoder has all that `finish` fits."""
        return True

    # Drawing

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        """Draw the partner of each item, (n,); by default the item itself."""
        return items

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return the ids (n,) or (n, g) by which candidates are masked."""
        return items

    def read_partners(self, read: Read, data: Tensor, items: Tensor, partners: Tensor, *, is_whole: bool) -> Tensor:
        """Return the data of the second side, given those of the first: whole items if `is_whole`, else windows."""
        return data if is_whole and torch.equal(items, partners) else read(partners, "second")

    def distinct(self, each_once: bool) -> bool:
        """Return whether no two rows of a step share an id; `each_once` if an epoch sees every item once."""
        return self.columns == 1 and each_once

    # Embedding: `first` and `second` are functions that return the views of a side

    def second_view(self, data: Tensor) -> Tensor | None:
        """Return the second side unchanged if it is not augmented, or None if it is."""
        return None

    def inputs(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Return the tower's inputs that embed both sides in one pass."""
        return (joined([first(), second()]),)

    def sides(self, output: Any) -> tuple[Tensor, Tensor]:
        """Return the embeddings of both sides from the tower's output for `inputs`."""
        first, second = output.chunk(2)
        return first, second

    def queries(self, output: Any) -> Tensor:
        """Return the queries from the tower's output for the first side alone."""
        return output  # type: ignore[no-any-return]

    def key_view(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> Tensor:
        """Return the views that a momentum copy encodes as keys."""
        return second()

    def rows(
        self, query: Tensor, key: Tensor, batch: Batch, first: Callable[[], Tensor], tower: nn.Module
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys (n, d) and ids in the form that the dictionary takes."""
        return query, key, batch.ids.to(query.device)

    def some_rows(
        self, one: Tensor, other: Tensor, batch: Batch, first: Callable[[], Tensor], tower: nn.Module
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return some pairs (n, d) as the loss compares them, and their ids, from both sides of a batch."""
        return one, other, batch.ids.to(one.device)

    def look_ups(
        self, query: Tensor, found: Found, ids: Tensor, labels: Tensor | None, batch: Batch, *, size: int, seed: int
    ) -> list[LookUp]:
        """Return the look-ups that the loss scores; `size` is the batch size over all ranks."""
        return [LookUp(query, found, ids, labels, distinct=batch.distinct)]

    # What was learned

    def measure(self, look_ups: list[LookUp], similarity: str) -> dict[str, Any]:
        """Return figures of a logged step in addition to the loss, by their names in metrics.jsonl."""
        return {}

    def evaluate(self, tower: Tower, items: Items, ids: Ids, rows: Tensor) -> dict[str, float]:
        """Return figures of held-out items by name; `rows` are their features from the encoder."""
        return {}

    def captioned(self, tower: Tower, items: Items, ids: Ids, rows: Tensor) -> Any:
        """Return the embeddings of items and their captions in one space, or None without a text encoder."""
        return None

    @classmethod
    def metrics(cls, row: Mapping[str, Any], recipe: Recipe, held_out: Mapping[str, Any] | None = None) -> list[Metric]:
        """Describe the figures that these pairs measured in a logged row, together with those of `held_out` items."""
        return []

    @classmethod
    def shown(cls, recipe: Recipe) -> Shown:
        """Return what the report shows of the first batch."""
        sides = {"first": "first view", "second": "second view"}
        task = "If you cannot tell which two views belong together, the model may not be able to either."
        return Shown(sides, task)

    def texts_shown(self, partner_data: Tensor) -> list[str] | None:
        """Return the texts below the items in the report, or None if the second side is not text."""
        return None
