"""All methods in one table. Every method answers three questions, and the answers can be combined freely.

Which pairs should agree? Where do a query's candidates come from, and what encodes them? Which loss scores them? A
method is a row of `METHODS`. `refusal` says which combinations cannot work, and why.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.encoders import TEXT_ENCODERS
from likewise.losses.catalog import LOSSES
from likewise.pairs.catalog import PAIRS
from likewise.pairs.pairs import STEPS
from likewise.recipe import FORMAT, Recipe, RecipeError, check_choice, known_keys, read_format


@dataclass(frozen=True)
class Method:
    """A row of the table: the three answers, the paper, and the paper's settings for views, head and loss.

    Training length and optimizer are not part of a method, because the papers chose them for a million images.
    """

    paper: str
    pairs: str
    keys: str
    dictionary: str
    loss: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Return everything that the method sets, by recipe key."""
        answers = {
            "pairs.kind": self.pairs,
            "keys.by": self.keys,
            "dictionary.kind": self.dictionary,
            "loss.kind": self.loss,
        }
        return answers | self.settings


WRITTEN = ("method", "data.source", "data.columns", "data.cache")  # in every recipe that likewise wrote itself
# What likewise did before there were these keys, so that the data of older runs stay what they were.
BEFORE = {"data.gaps": "skip", "data.apart": "items", "data.early_size": 0}
READING = ("vocabulary", "tokenizer", "dropout")  # options of text, whatever reads it
MOCO = {"encoder.bn_splits": 8}  # the paper trained a batch of 256 on 8 devices, each with its own statistics
METHODS = {
    "pair": Method("Hadsell et al., 2006", "groups", "encoder", "batch", "pair_margin", {"loss.margin": 1.0}),
    "triplet": Method("Schroff et al., 2015", "groups", "encoder", "batch", "triplet", {"loss.margin": 0.2}),
    "instdisc": Method(
        "Wu et al., 2018",
        "views",
        "bank",
        "bank",
        "nce",
        {"loss.temperature": 0.07, "loss.proximal": 30.0, "encoder.head": "linear", "pairs.preset": "moco_v1"},
    ),
    "bank": Method(
        "He et al., 2020 (baseline)",
        "views",
        "bank",
        "bank",
        "info_nce",
        {"loss.temperature": 0.07, "encoder.head": "linear", "pairs.preset": "moco_v1"},
    ),
    "e2e": Method(
        "He et al., 2020 (baseline)",
        "views",
        "encoder",
        "batch",
        "info_nce",
        {"loss.temperature": 0.07, "encoder.head": "linear", "pairs.preset": "moco_v1"},
    ),
    "moco_v1": Method(
        "He et al., 2020",
        "views",
        "momentum",
        "queue",
        "info_nce",
        MOCO
        | {
            "loss.temperature": 0.07,
            "encoder.head": "linear",
            "pairs.preset": "moco_v1",
            "optimizer.schedule": "step",
            "optimizer.warmup": 0.0,
        },
    ),
    "moco": Method(
        "Chen et al., 2020 (MoCo v2)",
        "views",
        "momentum",
        "queue",
        "info_nce",
        MOCO | {"loss.temperature": 0.2, "encoder.head": "mlp", "pairs.preset": "moco_v2"},
    ),
    "simclr": Method(
        "Chen et al., 2020 (SimCLR)",
        "views",
        "encoder",
        "batch",
        "nt_xent",
        {"loss.temperature": 0.2, "encoder.head": "mlp_bn", "pairs.preset": "simclr"},
    ),
    "supcon": Method(
        "Khosla et al., 2020",
        "views",
        "encoder",
        "batch",
        "sup_con",
        {"loss.temperature": 0.1, "encoder.head": "mlp", "pairs.preset": "simclr"},
    ),
    "cpc": Method(
        "van den Oord et al., 2018",
        "future",
        "encoder",
        "batch",
        "info_nce",
        {"loss.temperature": 1.0, "loss.similarity": "dot", "encoder.head": "steps", "pairs.preset": "none"},
    ),
    "clip": Method(
        "Radford et al., 2021",
        "captions",
        "encoder",
        "batch",
        "symmetric_info_nce",
        {
            "loss.temperature": 0.07,
            "loss.learnable": True,
            "encoder.head": "linear",
            "pairs.preset": "captions",
        },
    ),
    "simcse": Method(
        "Gao et al., 2021",
        "views",
        "encoder",
        "batch",
        "info_nce",
        {"loss.temperature": 0.05, "pairs.preset": "dropout", "text.dropout": 0.1},
    ),
    "dcl": Method(
        "Yeh et al., 2021",
        "views",
        "encoder",
        "batch",
        "dcl",
        {"loss.temperature": 0.1, "encoder.head": "mlp_bn", "pairs.preset": "simclr"},
    ),
    "nnclr": Method(
        "Dwibedi et al., 2021",
        "views",
        "encoder",
        "nearest",
        "info_nce",
        {
            "loss.temperature": 0.1,
            "dictionary.size": 98_304,
            "encoder.head": "mlp_bn",
            "encoder.predictor": "mlp_bn",
            "pairs.preset": "simclr",
            "pairs.symmetric": True,
        },
    ),
    # The paper adds the losses of both directions and multiplies them by 2τ. Here they are averaged, so the weight is
    # 4τ. In the paper a query's candidates are the keys of the other view; here, as in every symmetric method, they
    # are the keys of both views.
    "moco_v3": Method(
        "Chen et al., 2021",
        "views",
        "momentum",
        "batch",
        "info_nce",
        {
            "loss.temperature": 0.2,
            "loss.weight": 0.8,
            "keys.momentum": 0.99,
            "keys.schedule": "cosine",
            "encoder.name": "vit_tiny",
            "encoder.fixed_patches": True,
            "encoder.head": "mlp_bn",
            "encoder.predictor": "mlp_bn",
            "pairs.preset": "moco_v2",
            "pairs.symmetric": True,
        },
    ),
}


def defaults(method: str) -> Recipe:
    """Return the recipe of a method, before anything is adapted to the data."""
    check_choice("method", method, METHODS)
    return Recipe(method=method).with_values(METHODS[method].values)


def refusal(recipe: Recipe) -> str | None:
    """Return one sentence that says why this combination cannot work, or None if it can.

    The decision depends on properties that the parts declare, not on their names.
    """
    pairs, keys = PAIRS[recipe.pairs.kind], KEYS[recipe.keys.by]
    dictionary, loss = DICTIONARIES[recipe.dictionary.kind], LOSSES[recipe.loss.kind]
    if keys.from_slots != dictionary.one_slot_an_item:
        return (
            "keys by bank and dictionary bank need each other, because the bank stores the keys, "
            f"got keys by {keys.name} and dictionary {dictionary.name}"
        )
    if loss.within_batch and dictionary.stores:
        return f"loss {loss.name} scores a batch against itself, so its dictionary must be batch, got {dictionary.name}"
    if loss.one_tower and not keys.with_gradient:
        return f"loss {loss.name} uses every row as query and as key, so keys must be by encoder, got {keys.name}"
    if loss.needs_known_noise and not dictionary.knows_noise:
        needed = "negatives drawn with a known probability, which only dictionary bank provides"
        return f"loss {loss.name} needs {needed}, got {dictionary.name}"
    if dictionary.one_slot_an_item and not pairs.one_slot_an_item:
        return f"dictionary {dictionary.name} stores one key for each item, so pairs must be views, got {pairs.name}"
    if pairs.needs_frames and not loss.takes_frames:
        return f"pairs {pairs.name} compares frames of sequences, which only loss info_nce can do, got {loss.name}"
    if pairs.needs_frames != (recipe.encoder.head == STEPS):
        return (
            f"pairs future and head {STEPS}, one matrix for each step ahead, need each other, got pairs {pairs.name} "
            f"and head {recipe.encoder.head}"
        )
    if recipe.pairs.symmetric and not pairs.two_views:
        return f"pairs.symmetric needs two views of an item, but pairs {pairs.name} has {pairs.sides_in_words}"
    if recipe.encoder.predictor and not pairs.two_views:
        return f"encoder.predictor needs two views of an item, but pairs {pairs.name} has {pairs.sides_in_words}"
    if recipe.encoder.predictor and loss.one_tower:
        return f"encoder.predictor is for queries only, but loss {loss.name} uses every row as query and as key"
    if pairs.keys_learn and keys.by_copy:
        return (
            f"pairs {pairs.name} encodes keys with the text encoder, which is trained too, so keys must be by encoder, "
            f"got {keys.name}"
        )
    if recipe.encoder.frozen and not recipe.encoder.init:
        return "encoder.frozen keeps the weights of encoder.init unchanged, but encoder.init is empty"
    if recipe.training.chunk and not (keys.with_gradient and pairs.in_chunks):
        return (
            "training.chunk embeds a batch in parts and then scores it as a whole, so keys must be by encoder and "
            f"pairs must be views, groups or captions, got keys by {keys.name} and pairs {pairs.name}"
        )
    if reason := pairs.refusal(recipe, dictionary):
        return reason
    if recipe.pairs.symmetric and dictionary.one_slot_an_item:
        return f"pairs.symmetric needs two views of an item, but dictionary {dictionary.name} uses only one"
    if recipe.pairs.symmetric and loss.is_symmetric:
        return f"pairs.symmetric cannot be used with loss {loss.name}, which is already symmetric"
    if recipe.loss.policy and not loss.takes_policy:
        return f"loss.policy works only with losses info_nce and nt_xent, got {loss.name}"
    if recipe.loss.learnable and loss.by_margin:
        return f"loss.learnable needs a loss with a temperature, got {loss.name}"
    return None


def check_kinds(recipe: Recipe) -> None:
    """Refuse unknown names of pairs, keys, dictionary and loss."""
    check_choice("pairs", recipe.pairs.kind, PAIRS)
    check_choice("keys", recipe.keys.by, KEYS)
    check_choice("dictionary", recipe.dictionary.kind, DICTIONARIES)
    check_choice("loss", recipe.loss.kind, LOSSES)


def check(recipe: Recipe) -> None:
    """Refuse unknown names, and combinations that cannot work."""
    check_kinds(recipe)
    reason = refusal(recipe)
    if reason:
        raise RecipeError(reason)


def options(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the option names that the recipe's pairs, keys, dictionary and loss use, by section.

    Sections that are not in the result are the same for every recipe.
    """
    pairs, dictionary = PAIRS[recipe.pairs.kind], DICTIONARIES[recipe.dictionary.kind]
    reads_text = pairs.has_text_tower or recipe.encoder.name in TEXT_ENCODERS
    return {
        "pairs": ("kind", *pairs.options),
        "keys": ("by", *KEYS[recipe.keys.by].options),
        "dictionary": ("kind", *dictionary.options),
        "loss": ("kind", *LOSSES[recipe.loss.kind].options, "weight"),
        "text": (*(["name"] if pairs.has_text_tower else []), *READING) if reads_text else (),
    }


def used_keys(recipe: Recipe) -> set[str]:
    """Return the keys that have an effect in this recipe."""
    used = options(recipe)

    def is_used(key: str) -> bool:
        section, _, name = key.rpartition(".")
        return section not in used or name in used[section]

    return {key for key in known_keys() if is_used(key)}


def to_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML, with only the keys that have an effect."""
    return recipe.toml(used_keys(recipe))


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Return the values of a recipe file, by dotted key.

    Files of format 1 contain every key; the keys that have no effect are dropped.
    """
    number, values = read_format(path)
    if all(key in values for key in WRITTEN):
        values = BEFORE | values
    chosen = ("pairs.kind", "keys.by", "dictionary.kind", "loss.kind")
    if number == FORMAT or any(key not in values for key in chosen):
        return values
    recipe = Recipe().with_values({key: values[key] for key in chosen})
    check_kinds(recipe)
    used = used_keys(recipe)
    return {key: value for key, value in values.items() if key in used}


def unused(recipe: Recipe, asked: Iterable[str]) -> list[str]:
    """Return a sentence for each requested value that has no effect in this recipe."""
    used, sentences = used_keys(recipe), []
    chosen = {
        "pairs": f"pairs {recipe.pairs.kind}",
        "keys": f"keys by {recipe.keys.by}",
        "dictionary": f"dictionary {recipe.dictionary.kind}",
        "loss": f"loss {recipe.loss.kind}",
        "text": f"pairs {recipe.pairs.kind}",
    }
    for key in asked:
        if key not in used and recipe.value(key) != Recipe().value(key):
            part = chosen[key.partition(".")[0]]
            sentences.append(f"note that {key} = {recipe.value(key)} has no effect: {part} does not use it")
    return sentences


def table() -> list[list[str]]:
    """Return the table that `likewise methods` prints, the header first."""
    head = ["method", "pairs", "keys by", "dictionary", "loss", "defaults", "paper"]
    return [head, *([name, *_words(name, method)] for name, method in METHODS.items())]


def _words(name: str, method: Method) -> list[str]:
    recipe, pairs = defaults(name), PAIRS[method.pairs]
    keys = pairs.describe_keys(recipe)
    if KEYS[method.keys].by_copy:
        keys = f"momentum copy, m {recipe.keys.momentum:g}"
    dictionary = DICTIONARIES[method.dictionary].describe_defaults(recipe.dictionary)
    words = pairs.describe_defaults(recipe, LOSSES[method.loss].scale_in_words(recipe.loss))
    return [method.pairs, keys, dictionary, method.loss, words, method.paper]
