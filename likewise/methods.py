"""The field on one screen: every method answers three questions, and the answers can be exchanged.

Which pairs should agree, which dictionary are they looked up in (and who makes its keys), which loss
scores the look-up? A method is a row of `METHODS`; `refusal` says which mixtures cannot work, and why.
"""

from dataclasses import dataclass, field
from typing import Any

from likewise.pairs.future import NEGATIVES
from likewise.recipe import Recipe, RecipeError, check_choice

PAIRS = ("views", "groups", "future", "captions")
KEYS = ("encoder", "momentum", "bank")
DICTIONARIES = ("batch", "queue", "bank")
LOSSES = ("info_nce", "nt_xent", "symmetric_info_nce", "sigmoid", "nce", "pair_margin", "triplet", "sup_con")


@dataclass(frozen=True)
class Method:
    """A row of the table: three answers, the paper, and its settings of views, head and loss.

    How long to train, and by which optimizer, is the recipe's: the papers' are for a million images.
    """

    paper: str
    pairs: str
    keys: str
    dictionary: str
    loss: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Everything that the method sets, by recipe key."""
        answers = {
            "pairs.kind": self.pairs,
            "keys.by": self.keys,
            "dictionary.kind": self.dictionary,
            "loss.kind": self.loss,
        }
        return answers | self.settings


MOCO = {"encoder.bn_splits": 8}  # the paper's batch of 256 lay on 8 devices
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
}

# Losses that score the rows of a batch against each other have no use for any other dictionary.
WITHIN_BATCH = ("nt_xent", "symmetric_info_nce", "sigmoid", "pair_margin", "sup_con")
ONE_KIND_OF_ROWS = ("nt_xent", "pair_margin", "sup_con")


def defaults(method: str) -> Recipe:
    """The recipe of a method, before anything is chosen for the data."""
    check_choice("method", method, METHODS)
    return Recipe(method=method).with_values(METHODS[method].values)


def refusal(recipe: Recipe) -> str | None:
    """Why this mixture cannot work, in one sentence; None where it can."""
    kind, by, dictionary, loss = recipe.pairs.kind, recipe.keys.by, recipe.dictionary.kind, recipe.loss.kind
    if (by == "bank") != (dictionary == "bank"):
        return (
            "keys by bank and dictionary bank go together: a slot is both an item's key and its entry, "
            f"got keys by {by} and dictionary {dictionary}"
        )
    if loss in WITHIN_BATCH and dictionary != "batch":
        return f"loss {loss} scores a batch against itself, so its dictionary must be batch, got {dictionary}"
    if loss in ONE_KIND_OF_ROWS and by != "encoder":
        return f"loss {loss} takes every row as query and as key, so keys must be by encoder, got {by}"
    if loss == "nce" and dictionary != "bank":
        return f"loss nce needs noise of known probability, which only dictionary bank draws, got {dictionary}"
    if dictionary == "bank" and kind != "views":
        return f"dictionary bank keeps one slot an item, so its pairs must be views, got {kind}"
    if kind == "future" and loss != "info_nce":
        return f"pairs future looks frames up among others, which only loss info_nce scores, got {loss}"
    if (kind == "future") != (recipe.encoder.head == "steps"):
        return (
            f"pairs future and head steps go together, one matrix a step ahead, got pairs {kind} "
            f"and head {recipe.encoder.head}"
        )
    if recipe.pairs.symmetric and kind in ("future", "captions"):
        what = "one window" if kind == "future" else "an image and a caption"
        return f"pairs.symmetric needs two views of an item, but pairs {kind} has {what}"
    if kind == "captions" and by == "momentum":
        return (
            "pairs captions has keys by the text tower, which learns by their gradient, so keys must be by encoder, "
            "got momentum"
        )
    if recipe.encoder.frozen and not recipe.encoder.init:
        return "encoder.frozen keeps the weights that encoder.init names, and it names none"
    if recipe.training.chunk and (by != "encoder" or kind == "future"):
        return (
            "training.chunk embeds pairs in parts and then scores them together, so keys must be by encoder and pairs "
            f"views, groups or captions, got keys by {by} and pairs {kind}"
        )
    if kind == "future" and recipe.pairs.negatives == "same" and dictionary != "batch":
        return (
            f"pairs.negatives same draws from the query's own window, so the dictionary must be batch, got {dictionary}"
        )
    if recipe.pairs.symmetric and dictionary == "bank":
        return "pairs.symmetric needs two views of an item, but with dictionary bank there is one"
    if recipe.pairs.symmetric and loss in ("sup_con", "pair_margin", "symmetric_info_nce", "sigmoid"):
        return f"pairs.symmetric has no meaning for loss {loss}, which is symmetric already"
    if recipe.loss.policy and loss not in ("info_nce", "nt_xent"):
        return f"loss.policy weighs the negatives of info_nce and nt_xent, got loss {loss}"
    if recipe.loss.learnable and loss in ("pair_margin", "triplet"):
        return f"loss.learnable needs a temperature, which loss {loss} has not"
    return None


def check(recipe: Recipe) -> None:
    """Refuse names that are not known and mixtures that cannot work."""
    check_choice("pairs", recipe.pairs.kind, PAIRS)
    check_choice("keys", recipe.keys.by, KEYS)
    check_choice("dictionary", recipe.dictionary.kind, DICTIONARIES)
    check_choice("loss", recipe.loss.kind, LOSSES)
    check_choice("pairs.negatives", recipe.pairs.negatives, NEGATIVES)
    reason = refusal(recipe)
    if reason:
        raise RecipeError(reason)


def table() -> list[list[str]]:
    """The methods as rows of words, the head first."""
    head = ["method", "pairs", "keys by", "dictionary", "loss", "defaults", "paper"]
    return [head, *([name, *_words(name, method)] for name, method in METHODS.items())]


def _words(name: str, method: Method) -> list[str]:
    recipe = defaults(name)
    keys = f"momentum copy, m {recipe.keys.momentum:g}" if method.keys == "momentum" else method.keys
    dictionary = {
        "batch": "batch",
        "queue": f"queue of {recipe.dictionary.size:,}",
        "bank": f"bank, {recipe.dictionary.negatives:,} drawn",
    }[method.dictionary]
    margin = method.loss in ("pair_margin", "triplet")
    scale = f"margin {recipe.loss.margin:g}" if margin else f"temperature {recipe.loss.temperature:g}"
    if method.pairs == "future":
        words = f"{scale}, {recipe.loss.similarity} product, {recipe.pairs.horizon} steps ahead, one matrix a step"
        return [method.pairs, keys, dictionary, method.loss, words, method.paper]
    if method.pairs == "captions":
        words = f"{scale}, learned, {recipe.encoder.head} heads to {recipe.encoder.dim}"
        return [method.pairs, "text tower", dictionary, method.loss, words, method.paper]
    preset = f", {recipe.pairs.preset} views" if recipe.pairs.preset else ""
    words = f"{scale}, {recipe.encoder.head} head to {recipe.encoder.dim}{preset}"
    return [method.pairs, keys, dictionary, method.loss, words, method.paper]
