"""The recipe: every setting of a run, as one frozen dataclass that reads and writes TOML.

The comments on the fields are the recipe reference of the documentation. An unknown key is refused with a suggestion,
and a wrong value with what was expected.
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

FORMAT = 2  # version of the file format; since 2, a file holds only the options of the parts that were chosen
LARGEST = 1 << 20  # largest recipe file, in bytes
LONGEST_LINE = 10_000  # characters
LARGEST_WHOLE = 2**63 - 1  # TOML integers have 64 bits
SHOWN = 100  # characters of a wrong value that an error message quotes


class RecipeError(ValueError):
    """An invalid recipe; the message is one sentence that says what was expected and what was given."""


@dataclass(frozen=True)
class Data:
    """Which data to read, and how."""

    source: str = ""  # path or built-in name of the data; `likewise train DATA` sets it
    # Side in pixels of the square images that the encoder is given. For vectors it is their number of features.
    # 0 takes the size of the images as they are stored (see data.stored).
    size: int = 0
    # Side in pixels of the views in the first half of the steps. Smaller ones make these steps faster; then the network
    # adapts to data.size. 0 uses data.size from the start.
    early_size: int = 0
    # Side in pixels at which decoded images are stored. 0 keeps the images' own size, at most 64 for a folder. If only
    # data.size is given, it is chosen from that: the same size up to 64 pixels, and 8/7 of it above, to leave room to
    # crop.
    stored: int = 0
    # How an image that is not square becomes square: crop keeps the middle, pad adds white borders, stretch distorts.
    fit: str = "crop"
    # Share of the items held out for evaluation, from 0 to below 1. Ignored if the data comes with its own test part.
    test: float = 0.1
    # What is held out together: groups (all items of a group, such as a person's recordings, if there are at least five
    # groups) or items (each by itself). Pairs captions always hold out whole groups.
    apart: str = "groups"
    rate: int = 0  # samples per second to which audio is resampled; 0 chooses a rate for the recordings
    # Missing values (NaN, an empty cell) in series: fill interpolates gaps of at most 10 samples between two measured
    # values linearly; skip does not. Sequences that have gaps then are left out.
    gaps: str = "fill"
    columns: str = ""  # which column or array has which role, such as y=digit,group=speaker; --column sets it
    workers: int = 2  # threads that read batches ahead of the training; 0 reads each batch when it is needed
    # Folder for decoded images and recordings. Empty means the folder in the environment variable LIKEWISE_CACHE, or
    # the user's cache folder.
    cache: str = ""


@dataclass(frozen=True)
class Pairs:
    """Which pairs should agree."""

    # views: two augmentations of one item; groups: two items with the same label or group; future: a sequence and what
    # comes next in it; captions: an image and its caption.
    kind: str = "views"
    # Augmentations: moco_v1, moco_v2, simclr, captions, greyscale or none for images; vector for vectors; sound,
    # sequence or none for audio; sequence or none for sensors; text or dropout for texts. Empty chooses one for the
    # data.
    preset: str = ""
    symmetric: bool = False  # use both views of an item as queries and both as keys, instead of one of each
    window: int = 0  # audio and series: length in samples of the excerpt that a training step sees; 0 chooses one
    horizon: int = 12  # pairs future: how many frames ahead to predict
    candidates: int = 128  # pairs future: how many other frames to draw as candidates for each step ahead
    # pairs future: which sequences the candidates are drawn from: both (all), others (all but the query's own) or same
    # (only the query's own).
    negatives: str = "both"


@dataclass(frozen=True)
class Encoder:
    """The network that is trained, with its projection head."""

    # A built-in encoder, such as resnet18, vit_tiny, mlp or mel_16k, or your own as module:callable. Empty chooses
    # one for the data and the machine.
    name: str = ""
    # First layers of a ResNet: small (3 × 3 convolution, no pooling), imagenet (7 × 7 convolution and pooling) or auto
    # (small up to 64 pixels).
    stem: str = "auto"
    context: str = "gru"  # what summarises the frames of a sequence: gru or transformer
    # Projection head between the encoder and the loss: none, linear, mlp, mlp_bn (with batch norm) or, for pairs
    # future only, steps (one matrix for each step ahead).
    head: str = "mlp"
    dim: int = 128  # number of dimensions of the embeddings that leave the head; heads none and steps ignore it
    bn_splits: int = 1  # number of groups into which batch norm splits a batch, each with its own statistics
    init: str = ""  # weights to start from: a .safetensors, .pt or .pth file or a run; empty: random weights
    frozen: bool = False  # keep the weights of encoder.init unchanged; train only the head, and any text encoder
    predictor: str = ""  # second head, for the queries only: linear, mlp or mlp_bn; empty means none
    fixed_patches: bool = False  # keep a ViT's patch projection at its random initial weights, as MoCo v3 does


@dataclass(frozen=True)
class Text:
    """How texts are read, and the text encoder for pairs captions, whose head is like the image encoder's.

    The encoder of data that are texts is encoder.name.
    """

    name: str = ""  # pairs captions: the text encoder, such as text_tiny; empty chooses one for the machine
    vocabulary: int = 4096  # largest number of tokens; the tokenizer is learned from the training texts
    # A tokenizer.json of the tokenizers library, for weights that were trained with it; empty: one is learned.
    tokenizer: str = ""
    dropout: float = 0.0  # dropout probability in the encoder of text


@dataclass(frozen=True)
class Keys:
    """What encodes the keys."""

    # encoder: the encoder itself, with gradient; momentum: a momentum copy of it; bank: keys are read from the memory
    # bank.
    by: str = "encoder"
    momentum: float = 0.999  # keys by momentum: share of the copy's weights that each step keeps, from 0 to 1
    schedule: str = "constant"  # keys by momentum: constant, or cosine, which raises keys.momentum to 1 over the run


@dataclass(frozen=True)
class Dictionary:
    """Where the candidates of a query come from."""

    # batch: the other items of the batch; queue: keys of earlier batches; bank: one stored embedding for each item;
    # nearest: the batch, with each key replaced by its nearest neighbour in a queue.
    kind: str = "batch"
    size: int = 65536  # dictionary queue and nearest: how many keys the queue holds
    momentum: float = 0.5  # dictionary bank: share of a stored embedding that is kept when it is updated
    negatives: int = 4096  # dictionary bank: how many stored embeddings each step draws as negatives


@dataclass(frozen=True)
class Loss:
    """How a query's candidates are scored."""

    # info_nce, nt_xent, symmetric_info_nce, sigmoid, nce, pair_margin, triplet, sup_con or dcl.
    kind: str = "info_nce"
    temperature: float = 0.07  # similarities are divided by it; a lower one puts more weight on the hardest negatives
    similarity: str = "cosine"  # loss info_nce: cosine, dot or euclidean
    learnable: bool = False  # learn the temperature, starting from loss.temperature
    # Losses info_nce and nt_xent: how negatives are selected or weighted. hardest:K keeps the K most similar,
    # debiased:PRIOR corrects for false negatives, hard_weighted:BETA gives similar ones more weight. Empty uses all
    # negatives alike.
    policy: str = ""
    proximal: float = 0.0  # loss nce: weight of the term that keeps an embedding close to its stored one; 0: none
    # Loss pair_margin: distance up to which negatives are pushed apart. Loss triplet: how much further away than the
    # positive a negative should be, in squared distance.
    margin: float = 1.0
    sigma: float = 0.0  # loss dcl: weight positives by their similarity, with this width; 0 weights them all equally
    weight: float = 1.0  # factor by which the gradient of the loss is multiplied


@dataclass(frozen=True)
class Optimizer:
    """How the weights are updated."""

    name: str = "adamw"  # sgd, adam, adamw or lars
    lr: float = 0.002  # peak learning rate
    momentum: float = 0.9  # momentum of sgd and lars, β₁ of adam and adamw
    weight_decay: float = 1e-4  # weight decay; biases, norms and temperatures are exempt
    schedule: str = "cosine"  # learning rate over the run: cosine, constant or step (× 0.1 at 60 % and at 80 %)
    warmup: float = 0.05  # share of the steps in which the learning rate rises to optimizer.lr, from 0 to 1
    clip: float = 0.0  # largest norm of the gradient, to which larger ones are scaled down; 0 does not clip


@dataclass(frozen=True)
class Training:
    """How long to train, and on what."""

    # Passes over the training items. If neither this nor training.steps is given, about ten minutes of training are
    # chosen, at most 200 epochs or 1,000 steps, whichever is more, and written as training.steps.
    epochs: int = 200
    steps: int = 0  # number of training steps; 0 means that training.epochs decides
    batch_size: int = 256  # items per step, over all ranks together
    precision: str = "32"  # 32, bf16-mixed, 16-mixed (not on a CPU) or 64-true, as Lightning Fabric names them
    devices: int = 1  # processes to start on this machine, one for each device
    # Gradient caching: how many items of a rank are embedded at a time, so that a large batch fits in memory. 0 embeds
    # the whole batch at once.
    chunk: int = 0
    compile: bool = False  # compile the encoder with torch.compile
    log_every: int = 10  # steps between two rows of metrics.jsonl
    checkpoint_every: int = 500  # steps between two checkpoints
    evaluate_every: int = 500  # steps between two evaluations on held-out items


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run."""

    method: str = ""  # the method's name, one of `likewise methods`; empty chooses one for the data
    seed: int = 0  # random seed, 0 or more; every random draw of the run follows from it
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
        """Return this recipe with some values changed, by dotted key such as `dictionary.size`."""
        recipe = self
        for name, value in values.items():
            recipe = _with_value(recipe, name, value)
        return recipe

    def value(self, name: str) -> Any:
        """Return the value of a dotted key such as `dictionary.size`."""
        section, _, key = name.rpartition(".")
        return getattr(getattr(self, section) if section else self, key)

    def toml(self, keys: Container[str] | None = None) -> str:
        """Return the recipe as TOML, with every value or only those of `keys`."""
        values = dataclasses.asdict(self)
        lines = [f"format = {FORMAT}"]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if not isinstance(value, dict)]
        for section, pairs in values.items():
            if isinstance(pairs, dict):
                names = [name for name in pairs if keys is None or f"{section}.{name}" in keys]
                lines += ["", f"[{section}]", *(f"{name} = {_toml(pairs[name])}" for name in names)] if names else []
        return "\n".join(lines) + "\n"


def known_keys() -> list[str]:
    """Return every key of a recipe, dotted as in `dictionary.size`."""
    keys = []
    for item in dataclasses.fields(Recipe):
        if dataclasses.is_dataclass(kind := _kind(Recipe, item.name)):
            keys += [f"{item.name}.{key.name}" for key in dataclasses.fields(kind)]
        else:
            keys.append(item.name)
    return keys


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the values in a recipe file, by dotted key."""
    return read_format(path)[1]


def read_format(path: str | Path) -> tuple[int, dict[str, Any]]:
    """Return the format version of a recipe file, and its values by dotted key.

    A file without a `format` key, as people write by hand, has version 1.
    """
    try:
        text = read_bounded(path, LARGEST).decode()
    except OSError as error:
        raise RecipeError(f"recipe {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecipeError(f"recipe {path} is not TOML: expected UTF-8 text, got other bytes") from None
    longest = max(map(len, text.splitlines()), default=0)
    if longest > LONGEST_LINE:  # tomllib takes quadratic time to parse a key with many dots
        raise RecipeError(
            f"recipe {path} must have lines of at most {LONGEST_LINE:,} characters, got one of {longest:,}"
        )
    import tomllib  # imported here to keep `import likewise.losses`, which imports this module, fast

    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise RecipeError(f"recipe {path} is not TOML: {error}") from None
    except RecursionError:
        raise RecipeError(f"recipe {path} must have sections of plain values, got deeply nested ones") from None
    number = tree.pop("format", 1)
    if type(number) is not int or not 1 <= number <= FORMAT:
        raise RecipeError(
            f"recipe {path} must have format 1 to {FORMAT}, got {_shown(number)}: it needs a newer likewise"
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
    """Parse settings such as `dictionary.size=4096` into values by dotted key.

    A value is parsed as TOML, and taken as a string if it is not valid TOML.
    """
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
    """Parse `y=digit,group=speaker` into {"y": "digit", "group": "speaker"}."""
    columns = {}
    for part in filter(None, text.split(",")):
        name, equals, key = (word.strip() for word in part.partition("="))
        if not (name and equals and key):
            raise RecipeError(f"columns must be given as ROLE=NAME, such as y=digit, got {part.strip()!r}")
        columns[name] = key
    return columns


def check_choice(what: str, name: str, known: Iterable[str]) -> None:
    """Raise an error that suggests the nearest known name, unless `name` is known."""
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f", expected one of {', '.join(known)}"
        raise RecipeError(f"unknown {what} {_shown(name)}{hint}")


def _check_key(name: str) -> None:
    keys = known_keys()
    if name not in keys:
        # Compare with last parts too, so that `sise` suggests `data.size`.
        suggestions = {key.rpartition(".")[2]: key for key in reversed(keys)} | {key: key for key in keys}
        near = difflib.get_close_matches(name, suggestions, n=1, cutoff=0.5)
        hint = f"; did you mean {suggestions[near[0]]}?" if near else ""
        raise RecipeError(f"unknown recipe key {_shown(name)}{hint}")


def _with_value(recipe: Recipe, name: str, value: Any) -> Recipe:
    _check_key(name)
    section, _, key = name.rpartition(".")
    if not section:
        return dataclasses.replace(recipe, **{key: _typed(name, value, _kind(Recipe, key))})
    inner = getattr(recipe, section)
    typed = _typed(name, value, _kind(type(inner), key))
    return dataclasses.replace(recipe, **{section: dataclasses.replace(inner, **{key: typed})})


def _typed(name: str, value: Any, kind: type) -> Any:
    """Convert a value to its key's type: an int to a float, a number or path to a string; refuse other types."""
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise RecipeError(f"{name} must be a number of at most 64 bits, got one of {value.bit_length():,} bits")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is str and isinstance(value, int | float | Path) and not isinstance(value, bool):
        value = str(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        raise RecipeError(f"{name} must be {words[kind]}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Return the value's repr, shortened if it is very long, or its type if it is deeply nested."""
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
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML, unlike JSON, must escape it
