"""Two parts of one item are a pair, such as an image and its caption: the pretext task of CLIP (Radford et al., 2021).

An item's key is one of its captions, drawn at each step. Items with the same caption, and images of the same group
(for example several drawings of one thing), are not each other's negatives: the ids are (group or item, caption).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from likewise import modalities
from likewise.data import Items
from likewise.data.held_out import groups_apart, items_apart
from likewise.data.items import CAPTION, IMAGE, Captions
from likewise.data.parts import Ids
from likewise.data.tokens import Tokenizer, trimmed
from likewise.data.words import all_words
from likewise.encoders.features import evaluating, text_features
from likewise.evaluation.cross_modal import cross_modal
from likewise.losses.catalog import LOSSES
from likewise.losses.look_up import LookUp, shares_right
from likewise.modalities.modality import Choice, accelerated
from likewise.modalities.text import (
    TOKENIZER,
    about_tokens,
    build_encoder,
    check_name,
    check_text,
    length_of,
    matches,
    same_text,
    texts_by_item,
    texts_of,
    tokenizer_for,
    tokenizer_of,
)
from likewise.pairs.metric import MOST_HELD_OUT, Chart, Metric
from likewise.pairs.pairs import Pairs, Shown
from likewise.pairs.towers import Tower
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError

WORDS = "words.txt"  # the words of the training captions
LARGEST_TEXT = 64 << 20  # bytes of a tokenizer or word file, at most


class TwoTowers(Tower):
    """Maps views of images (n, c, h, w) and tokens of captions (n, t) to embeddings (n, d) in one space."""

    def __init__(self, encoder: nn.Module, head: nn.Module, text: Tower) -> None:
        super().__init__(encoder, head)
        self.text = text

    def forward(self, views: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.head(self.encoder(views)), self.text(tokens)

    @property
    def keys(self) -> nn.Module:
        """The text encoder with its head: keys are captions."""
        return self.text

    @property
    def saved(self) -> dict[str, nn.Module]:
        return {"text": self.text.encoder, "text_head": self.text.head, **super().saved}


class Captioned(NamedTuple):
    """The embeddings of images and of their captions, each caption once, in one space."""

    images: Tensor  # (n, d)
    texts: list[str]  # m captions
    words: Tensor  # (m, d): the embeddings of `texts`
    pairs: Tensor  # (p, 2): rows of an image and of one of its captions


class Across(Pairs):
    """Pairs of an image and one of its captions.

    `captions` holds the texts of each item, `tokens` (captions, t) all of them in order, and `groups` (items,) the
    group of each item, if there are groups.
    """

    name = "captions"
    columns = 2
    options = ("preset",)
    two_views = False
    sides_in_words = "an image and a caption"
    keys_learn = True
    has_text_tower = True
    default_layer = "head"
    kept_files = (TOKENIZER,)

    def __init__(self, captions: Captions, tokens: Tensor, groups: Tensor | None = None) -> None:
        counts = torch.tensor([len(texts) for texts in captions])
        if not len(counts) or counts.min() < 1:
            raise ValueError("captions must have at least one text for each item, got an item without any")
        if len(tokens) != counts.sum():
            raise ValueError(f"tokens must have one row a caption, {int(counts.sum())}, got {len(tokens)}")
        self.tokens = tokens
        self.tokenizer: Tokenizer | None = None  # set by `build`
        self.length = tokens.shape[1]
        self.notes: tuple[str, ...] = ()
        self._count = counts
        self._first = counts.cumsum(dim=0) - counts
        self._owner = torch.arange(len(counts))
        if groups is not None:
            if len(groups) != len(counts):
                raise ValueError(f"groups must have one entry an item, {len(counts)}, got {len(groups)}")
            # An item without a group becomes a group by itself.
            self._owner = torch.where(groups < 0, groups.max().clamp(min=0) + 1 + self._owner, groups.long())
        text_ids: dict[str, int] = {}
        id_of_caption = [text_ids.setdefault(same_text(each), len(text_ids)) for texts in captions for each in texts]
        self._text = torch.tensor(id_of_caption)
        self._is_distinct = len(text_ids) == len(id_of_caption) and len(set(self._owner.tolist())) == len(counts)
        self._words = [each for texts in captions for each in texts]

    # Before a run

    @classmethod
    def check_items(cls, items: Items, train: Ids) -> None:
        if CAPTION not in items.parts or items.main.modality != IMAGE:
            got = "none" if items.main.modality == IMAGE else f"{items.kind}s"
            raise RecipeError(
                f"pairs captions needs images with captions (captions.csv or metadata.csv in a folder, captions in an "
                f".npz, .txt in shards), got {got} in {items.name}"
            )
        groups = [-1] if items.groups is None else items.groups[train].tolist()
        one_group = min(groups) >= 0 and len(set(groups)) == 1
        if one_group or len(set(map(same_text, texts_of(items.parts[CAPTION], train)))) < 2:
            what = "belong to one group" if one_group else "have the same caption"
            raise RecipeError(f"there are no negatives in {items.name}: all items {what}")

    @classmethod
    def choices(cls, items: Items, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        yield from super().choices(items, train, recipe)
        yield Choice("text.name", *accelerated("text_small", "text_tiny"))

    @classmethod
    def check(cls, items: Items, recipe: Recipe) -> None:
        check_name("text.name", recipe.text.name)
        check_text(recipe)

    @classmethod
    def split(cls, items: Items, recipe: Recipe) -> tuple[Ids, Ids]:
        """Hold out whole groups, because other images of a group would give the caption of a held-out image away."""
        rng, share = generator(recipe.seed, "split"), recipe.data.test
        if items.groups is None:
            return items_apart(len(items), share, rng)
        return groups_apart(items.groups, share, rng)

    @classmethod
    def describe(cls, items: Items, recipe: Recipe) -> str:
        views = modalities.of(items.main).describe_views(items.main, recipe)
        return f"captions, {len(items.parts[CAPTION]):,} of them, one per image drawn each step{views}"

    @classmethod
    def describe_keys(cls, recipe: Recipe) -> str:
        return "text encoder"

    @classmethod
    def describe_defaults(cls, recipe: Recipe, scale: str) -> str:
        return f"{scale}, learned, {recipe.encoder.head} heads to {recipe.encoder.dim}"

    @classmethod
    def describe_towers(cls, recipe: Recipe) -> list[str]:
        options = recipe.text
        return [f"text\t{options.name}, {cls.describe_head(recipe)}, at most {options.vocabulary:,} tokens"]

    # What is fitted

    @classmethod
    def fit(cls, items: Items, train: Ids, recipe: Recipe) -> dict[str, str]:
        return {TOKENIZER: tokenizer_for(recipe, lambda: texts_of(items.parts[CAPTION], train)).text}

    @classmethod
    def build(cls, items: Items, train: Ids, recipe: Recipe, files: Mapping[str, str]) -> "Across":
        captions = tuple(map(tuple, texts_by_item(items.parts[CAPTION], train)))
        groups = None if items.groups is None else torch.from_numpy(items.groups[train])
        tokenizer, length = tokenizer_of(files[TOKENIZER]), length_of(recipe.text.name)
        tokens, cut = tokenizer.encode_counting([each for texts in captions for each in texts], length)
        pairs = cls(captions, tokens, groups)
        pairs.tokenizer, pairs.length = tokenizer, length
        if cut:
            longer = f"{cut:,} of {len(tokens):,} captions are longer than the {length} tokens that"
            pairs.notes = (f"{longer} {recipe.text.name} reads, and are truncated",)
        return pairs

    @property
    def about(self) -> dict[str, Any]:
        return {} if self.tokenizer is None else about_tokens(self.tokenizer)

    @property
    def files(self) -> dict[str, str]:
        if self.tokenizer is None:
            return {}
        words = "\n".join(all_words(self._words))
        # The words are only used for a note. A file larger than this would not be read, so it is not written.
        word_file = {WORDS: words} if len(words.encode()) <= LARGEST_TEXT else {}
        return {TOKENIZER: self.tokenizer.text} | word_file

    @property
    def digest(self) -> str:
        return "" if self.tokenizer is None else self.tokenizer.digest

    # The model

    @classmethod
    def build_tower(cls, encoder: nn.Module, head: nn.Module, recipe: Recipe, about: Mapping[str, Any]) -> Tower:
        tower = Tower(*text_tower(recipe, about))
        if head.dim != tower.head.dim:
            raise RecipeError(
                f"encoder.head none needs encoders of the same width for images and text, "
                f"got {head.dim} and {tower.head.dim}"
            )
        return TwoTowers(encoder, head, tower)

    # Drawing

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        """Draw one caption of each item, and return its row in `tokens`."""
        shares = torch.rand(len(items), generator=rng, dtype=torch.float64)
        count = self._count[items]
        return self._first[items] + (shares * count).long().minimum(count - 1)

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        """Return the ids (group or item, caption) of each item, (n, 2)."""
        return torch.stack([self._owner[items], self._text[partners]], dim=1)

    def read_partners(
        self, read: Callable[[Tensor, str], Tensor], data: Tensor, items: Tensor, partners: Tensor, *, is_whole: bool
    ) -> Tensor:
        return self.read(partners)

    def read(self, partners: Tensor) -> Tensor:
        """Return the tokens (n, t) of these captions, padded to the longest."""
        return trimmed(self.tokens[partners])

    def distinct(self, each_once: bool = True) -> bool:
        return self._is_distinct

    def second_view(self, tokens: Tensor) -> Tensor | None:
        return tokens  # tokens are not augmented

    def inputs(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return first(), second()

    def sides(self, output: Any) -> tuple[Tensor, Tensor]:
        images, captions = output
        return images, captions

    # What was learned

    def measure(self, look_ups: list[LookUp], similarity: str) -> dict[str, Any]:
        return {"recall": shares_right(look_ups, similarity)[0]}

    @torch.no_grad()
    def captioned(self, tower: Tower, items: Items, ids: Ids, rows: Tensor) -> Captioned | None:
        assert isinstance(tower, TwoTowers)
        assert self.tokenizer is not None
        texts, pairs = matches(texts_by_item(items.parts[CAPTION], ids))
        weights = next(tower.parameters())
        with evaluating(tower.head):
            images = tower.head(rows.to(weights)).float().cpu()
        words = text_features(tower.text, self.tokenizer, texts, self.length)
        return Captioned(images, texts, words, pairs)

    def evaluate(self, tower: Tower, items: Items, ids: Ids, rows: Tensor) -> dict[str, float]:
        held_out = self.captioned(tower, items, ids, rows)
        if held_out is None or not (held_out.images.isfinite().all() and held_out.words.isfinite().all()):
            return {}
        return {"recall_at_10": cross_modal(held_out.images, held_out.words, held_out.pairs).image_to_text.recall[10]}

    @classmethod
    def metrics(cls, row: Mapping[str, Any], recipe: Recipe, held_out: Mapping[str, Any] | None = None) -> list[Metric]:
        metrics = []
        if (recall := row.get("recall")) is not None:
            where = "queue" if row.get("oldest") else "batch"
            temperature = f"  temperature {row['temperature']:.3f}" if row.get("temperature") is not None else ""
            how_often = "How often an image is nearer to its own caption than to any other caption of the batch."
            chart = Chart("Recall@1 in the batch", how_often, {"recall": "recall@1"})
            note = f"share of images nearest to their own caption in the last batch of {recipe.training.batch_size}"
            progress = f"recall@1 in the {where} {recall:.2f}{temperature}"
            metrics.append(Metric("recall", recall, f"{recall:.3f}", note, progress, chart=chart))
        if (recall := row.get("recall_at_10")) is not None:
            among = "How often a held-out image has one of its own captions among the ten nearest. It may be higher "
            among += "than the figure at the top, because fewer images are evaluated during training."
            chart = Chart("Recall@10, image → text", among, {"recall_at_10": "recall@10"})
            note = "share of images with one of their own captions among the ten nearest; at most "
            note += f"{MOST_HELD_OUT:,} held-out images among all their captions; heads of both towers"
            progress = f"recall@10 held out {recall:.3f}"
            metrics.append(Metric("recall_at_10", recall, f"{recall:.3f}", note, progress, True, chart))
        return metrics

    @classmethod
    def shown(cls, recipe: Recipe) -> Shown:
        both = LOSSES[recipe.loss.kind].within_batch
        among = "those of the batch, and a caption its image" if both else "others"
        task = "Below each image is the caption drawn for it, in lower case. "
        return Shown({"first": "view"}, f"{task}An image has to find its caption among {among}.")

    def texts_shown(self, partner_data: Tensor) -> list[str] | None:
        assert self.tokenizer is not None
        return [self.tokenizer.decode(tokens) for tokens in partner_data]


def text_tower(recipe: Recipe, about: Mapping[str, Any]) -> tuple[nn.Module, nn.Module]:
    """Build the recipe's encoder of captions and its head."""
    encoder = build_encoder(recipe.text.name, recipe, about)
    return encoder, Across.build_head(recipe, encoder)
