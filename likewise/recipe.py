"""A recipe: everything that decides a run, in one frozen dataclass that reads and writes TOML.

A key that is not known is refused with the nearest one that is; a value that cannot be, with what was expected.
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from likewise.bounded import read_bounded

FORMAT = 2  # of recipe files: since 2 they have only the options of the parts that were chosen
LARGEST = 1 << 20  # bytes of a recipe's file
LONGEST_LINE = 10_000  # letters
LARGEST_WHOLE = 2**63 - 1  # TOML's whole numbers have 64 bits
SHOWN = 100  # letters of a wrong value


class RecipeError(ValueError):
    """A recipe that cannot be: one sentence, expected and got."""


@dataclass(frozen=True)
class Data:
    source: str = ""
    size: int = 0  # pixels a side that the encoder sees; 0: chosen for the data
    stored: int = 0  # pixels a side that images are kept at; 0: as found (a folder's at 64 at most), or for the size
    fit: str = "crop"  # how images become squares: crop (the middle is kept) | pad (with white) | stretch
    test: float = 0.1  # share held out for evaluation, where the data has no test part of its own
    rate: int = 0  # samples a second that audio is brought to; 0: chosen for the data
    columns: str = ""  # which array or column is what, as in y=digit,group=speaker
    workers: int = 2  # threads that read batches ahead
    cache: str = ""  # folder for decoded images; empty: the user's cache folder


@dataclass(frozen=True)
class Pairs:
    kind: str = "views"  # views | groups | future | captions
    preset: str = ""  # augmentations; empty: chosen for the data
    symmetric: bool = False  # both views are queries, and both are keys
    window: int = 0  # samples of a sequence that a step sees; 0: chosen for the data
    horizon: int = 12  # of future: steps ahead, in frames
    candidates: int = 128  # of future: frames drawn for each step ahead
    negatives: str = "both"  # of future: drawn from all sequences (both), from others, from the same


@dataclass(frozen=True)
class Encoder:
    name: str = ""  # empty: chosen for the data and the machine
    stem: str = "auto"
    context: str = "gru"  # of sequences: gru | transformer
    head: str = "mlp"  # none | linear | mlp | mlp_bn | steps (of future: one matrix a step ahead)
    dim: int = 128
    bn_splits: int = 1  # groups of the batch with batch statistics of their own
    init: str = ""  # weights to start from: a file or a run
    frozen: bool = False  # they stay as they are, and only what comes behind the encoder is trained
    predictor: str = ""  # linear | mlp | mlp_bn: a head behind that of the queries; empty: none
    fixed_patches: bool = False  # the projection of a ViT's patches stays at its random start


@dataclass(frozen=True)
class Text:
    """Of pairs captions: the tower of the captions; its head is of the same kind as the encoder's."""

    name: str = ""  # text_tiny | text_small | text_base; empty: chosen for the machine
    vocabulary: int = 4096  # tokens that are learned on the captions, at most
    dropout: float = 0.0


@dataclass(frozen=True)
class Keys:
    by: str = "encoder"  # encoder | momentum | bank
    momentum: float = 0.999  # share of the copy that is kept at each step
    schedule: str = "constant"  # constant | cosine (rising to 1)


@dataclass(frozen=True)
class Dictionary:
    kind: str = "batch"  # batch | queue | bank | nearest
    size: int = 65536  # of the queue, and of the one in which nearest neighbours are looked for
    momentum: float = 0.5  # of the bank's slots
    negatives: int = 4096  # slots drawn a step from the bank


@dataclass(frozen=True)
class Loss:
    kind: str = "info_nce"
    temperature: float = 0.07
    similarity: str = "cosine"  # of info_nce: cosine | dot | euclidean
    learnable: bool = False
    policy: str = ""  # hardest:K | debiased:PRIOR | hard_weighted:BETA
    proximal: float = 0.0  # of nce
    margin: float = 1.0  # of pair_margin and triplet
    sigma: float = 0.0  # of dcl: weigh the positives by their similarity at this width; 0: all alike
    weight: float = 1.0  # the gradient of the loss is multiplied by it


@dataclass(frozen=True)
class Optimizer:
    name: str = "adamw"  # sgd | adam | adamw | lars
    lr: float = 0.002
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "cosine"  # cosine | constant | step
    warmup: float = 0.05  # share of the steps
    clip: float = 0.0  # largest norm of the gradient; 0: none


@dataclass(frozen=True)
class Training:
    epochs: int = 200
    steps: int = 0  # where given, instead of epochs
    batch_size: int = 256  # over all ranks
    precision: str = "32"  # Fabric's names: 32, bf16-mixed, 16-mixed, 64-true
    devices: int = 1
    chunk: int = 0  # items of a rank that are embedded at once, to save memory (gradient caching); 0: all
    compile: bool = False
    log_every: int = 10
    checkpoint_every: int = 500
    evaluate_every: int = 500


@dataclass(frozen=True)
class Recipe:
    method: str = ""
    seed: int = 0
    data: Data = field(default_factory=Data)
    pairs: Pairs = field(default_factory=Pairs)
    encoder: Encoder = field(default_factory=Encoder)
    text: Text = field(default_factory=Text)
    keys: Keys = field(default_factory=Keys)
    dictionary: Dictionary = field(default_factory=Dictionary)
    loss: Loss = field(default_factory=Loss)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)

    def with_values(self, values: Mapping[str, Any]) -> "Recipe":
        """This recipe with some values changed, named as in `dictionary.size`."""
        recipe = self
        for name, value in values.items():
            recipe = _with_value(recipe, name, value)
        return recipe

    def value(self, name: str) -> Any:
        section, _, key = name.rpartition(".")
        return getattr(getattr(self, section) if section else self, key)

    def toml(self, keys: Container[str] | None = None) -> str:
        """Return the recipe as TOML, every value written out, or those of some keys."""
        values = dataclasses.asdict(self)
        lines = [f"format = {FORMAT}"]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if not isinstance(value, dict)]
        for section, pairs in values.items():
            if isinstance(pairs, dict):
                kept = [name for name in pairs if keys is None or f"{section}.{name}" in keys]
                lines += ["", f"[{section}]", *(f"{name} = {_toml(pairs[name])}" for name in kept)] if kept else []
        return "\n".join(lines) + "\n"


def known_keys() -> list[str]:
    """Every key of a recipe, as in `dictionary.size`."""
    keys = []
    for item in dataclasses.fields(Recipe):
        if dataclasses.is_dataclass(kind := _kind(Recipe, item.name)):
            keys += [f"{item.name}.{key.name}" for key in dataclasses.fields(kind)]
        else:
            keys.append(item.name)
    return keys


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the values that a recipe file names, by dotted key."""
    return read_format(path)[1]


def read_format(path: str | Path) -> tuple[int, dict[str, Any]]:
    """Return the format that a recipe file is written in, and the values that it names.

    A file that does not say its format is of the first, which people may write by hand in any version.
    """
    try:
        text = read_bounded(path, LARGEST).decode()
    except OSError as error:
        raise RecipeError(f"recipe not readable: {path} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RecipeError(f"recipe {path} is not TOML: expected text, got other bytes") from None
    longest = max(map(len, text.splitlines()), default=0)
    if longest > LONGEST_LINE:  # the parser takes forever over a key of many parts
        raise RecipeError(f"recipe {path} must have lines of at most {LONGEST_LINE:,} letters, got one of {longest:,}")
    import tomllib  # here, so that the losses, which import this module, cost no more than torch

    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise RecipeError(f"recipe {path} is not TOML: {error}") from None
    except RecursionError:
        raise RecipeError(
            f"recipe {path} must be sections of plain values, got some that are nested too deeply"
        ) from None
    number = tree.pop("format", 1)
    if type(number) is not int or not 1 <= number <= FORMAT:
        raise RecipeError(
            f"recipe {path} must be of format 1 to {FORMAT}, got {_shown(number)}: a newer likewise reads it"
        )
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            values |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            values[name] = value
    for name in values:
        _check_key(name)
    return number, values


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`["dictionary.size=4096"]` as values by dotted key; a value is TOML, or else a string."""
    import tomllib

    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise RecipeError(f"--set must be key=value, got {setting!r}")
        _check_key(name := name.strip())
        try:
            values[name] = tomllib.loads(f"value = {text.strip()}")["value"]
        except (ValueError, RecursionError):
            values[name] = text.strip()
    return values


def parse_columns(text: str) -> dict[str, str]:
    """`y=digit,group=speaker` as {"y": "digit", "group": "speaker"}."""
    columns = {}
    for part in filter(None, text.split(",")):
        name, equals, key = (word.strip() for word in part.partition("="))
        if not (name and equals and key):
            raise RecipeError(f"columns must be like y=digit, got {part.strip()!r}")
        columns[name] = key
    return columns


def check_choice(what: str, name: str, known: Iterable[str]) -> None:
    """Expect one of the known names; the nearest is offered."""
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f", expected one of {', '.join(known)}"
        raise RecipeError(f"unknown {what} {_shown(name)}{hint}")


def _check_key(name: str) -> None:
    keys = known_keys()
    if name not in keys:
        # `sise` is near the last part of `data.size`.
        meant = {key.rpartition(".")[2]: key for key in reversed(keys)} | {key: key for key in keys}
        near = difflib.get_close_matches(name, meant, n=1, cutoff=0.5)
        raise RecipeError(f"unknown recipe key {_shown(name)}" + (f"; did you mean {meant[near[0]]}?" if near else ""))


def _with_value(recipe: Recipe, name: str, value: Any) -> Recipe:
    _check_key(name)
    section, _, key = name.rpartition(".")
    if not section:
        return dataclasses.replace(recipe, **{key: _typed(name, value, _kind(Recipe, key))})
    inner = getattr(recipe, section)
    typed = _typed(name, value, _kind(type(inner), key))
    return dataclasses.replace(recipe, **{section: dataclasses.replace(inner, **{key: typed})})


def _typed(name: str, value: Any, kind: type) -> Any:
    """The value as its key wants it: a whole number serves as a float, anything plain as a string."""
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise RecipeError(f"{name} must be a number of at most 64 bits, got one of {value.bit_length():,}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is str and isinstance(value, int | float | Path) and not isinstance(value, bool):
        value = str(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        raise RecipeError(f"{name} must be {words[kind]}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Write a value as Python does; of one that is very long or deeply nested, the beginning or the kind."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _kind(owner: type, name: str) -> Any:
    return next(item.type for item in dataclasses.fields(owner) if item.name == name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON lets stand, and TOML does not
