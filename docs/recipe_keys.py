"""What the recipe page adds to the dataclasses: which values a key takes, and which data or encoders it is for.

Names of parts come from the tables in the code. Ranges of numbers are written here, and a test tries a value outside of
each.
"""

from collections.abc import Iterable

from likewise import methods
from likewise.data.clips import RATES
from likewise.data.gaps import WAYS
from likewise.data.held_out import APART
from likewise.data.images import FITS
from likewise.data.tokens import SMALLEST
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.encoders import HEADS, TEXT_ENCODERS
from likewise.encoders.resnet import STEMS
from likewise.encoders.sequence import CONTEXTS
from likewise.losses.catalog import LOSSES
from likewise.losses.similarity import SIMILARITIES
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import PAIRS
from likewise.pairs.future import NEGATIVES
from likewise.pairs.pairs import STEPS
from likewise.training.optimizers import NAMES
from likewise.training.plan import MOST_WORKERS, PRECISIONS
from likewise.training.schedule import MOMENTUM_SCHEDULES, SCHEDULES


def named(names: Iterable[str], *more: str) -> str:
    """Return names as code, separated by commas."""
    return ", ".join([*(f"`{name}`" for name in names), *more])


EMPTY = '`""`'
PRESETS = {name: None for modality in MODALITIES.values() for name in modality.presets}  # each once, in order
# Keys whose values are names.
CHOICES = {
    "method": named(methods.METHODS, EMPTY),
    "data.fit": named(FITS),
    "data.apart": named(APART),
    "data.gaps": named(WAYS),
    "pairs.kind": named(PAIRS),
    "pairs.preset": named(PRESETS, EMPTY),
    "pairs.negatives": named(NEGATIVES),
    "encoder.name": "[encoders](encoders.md), `module:callable`, " + EMPTY,
    "encoder.stem": named(["auto", *STEMS]),
    "encoder.context": named(CONTEXTS),
    "encoder.head": named([*HEADS, STEPS]),
    "encoder.predictor": named([name for name in HEADS if name != "none"], EMPTY),
    "text.name": named(TEXT_ENCODERS, EMPTY),
    "keys.by": named(KEYS),
    "keys.schedule": named(MOMENTUM_SCHEDULES),
    "dictionary.kind": named(DICTIONARIES),
    "loss.kind": named(LOSSES),
    "loss.similarity": named(SIMILARITIES),
    "loss.policy": named(["hardest:K", "debiased:PRIOR", "hard_weighted:BETA"], EMPTY),
    "optimizer.name": named(NAMES),
    "optimizer.schedule": named(SCHEDULES),
    "training.precision": named(PRECISIONS),
}
# Keys whose values are numbers.
RANGES = {
    "seed": "≥ 0",
    "data.size": "≥ 0",
    "data.early_size": "0, or 2 to `data.size`",
    "data.stored": "≥ 0",
    "data.test": "0 ≤ x < 1",
    "data.rate": f"0, or {RATES[0]:,} to {RATES[1]:,}",
    "data.workers": f"0 to {MOST_WORKERS}",
    "pairs.window": "≥ 0",
    "pairs.horizon": "≥ 1",
    "pairs.candidates": "≥ 1",
    "encoder.dim": "≥ 1",
    "encoder.bn_splits": "≥ 1",
    "text.vocabulary": f"≥ {SMALLEST}",
    "text.dropout": "0 ≤ x < 1",
    "keys.momentum": "0 ≤ x ≤ 1",
    "dictionary.size": "≥ 1",
    "dictionary.momentum": "0 ≤ x ≤ 1",
    "dictionary.negatives": "≥ 1",
    "loss.temperature": "> 0",
    "loss.proximal": "≥ 0",
    "loss.margin": "≥ 0",
    "loss.sigma": "≥ 0",
    "loss.weight": "> 0",
    "optimizer.lr": "> 0",
    "optimizer.momentum": "0 ≤ x < 1",
    "optimizer.weight_decay": "≥ 0",
    "optimizer.warmup": "0 ≤ x ≤ 1",
    "optimizer.clip": "≥ 0",
    "training.epochs": "≥ 1",
    "training.steps": "≥ 0",
    "training.batch_size": "≥ 2",
    "training.devices": "≥ 1",
    "training.chunk": "≥ 0",
    "training.log_every": "≥ 1",
    "training.checkpoint_every": "≥ 1",
    "training.evaluate_every": "≥ 1",
}
TEXTS = {
    "data.source": "a path, or a built-in name",
    "data.columns": "`ROLE=NAME,…`",
    "data.cache": "a folder, " + EMPTY,
    "encoder.init": "a file, a run, " + EMPTY,
    "text.tokenizer": "a file, " + EMPTY,
}
# What has to be so for a key to have an effect, besides the choices of pairs, keys, dictionary and loss.
NEEDS = {
    "data.size": "images, vectors",
    "data.early_size": "ResNets, `module:callable`",
    "data.stored": "images",
    "data.fit": "images",
    "data.apart": "groups",
    "data.gaps": "series",
    "data.rate": "audio",
    "data.columns": "arrays and tables",
    "data.cache": "images and audio in files",
    "text.vocabulary": "encoders of text, no `text.tokenizer`",
    "text.tokenizer": "encoders of text",
    "text.dropout": "encoders of text",
    "pairs.window": "audio and series only",
    "encoder.stem": "ResNets",
    "encoder.context": "encoders of audio and series",
    "encoder.dim": f"heads {named(name for name in HEADS if name != 'none')}",
    "encoder.bn_splits": "networks with [batch norm](encoders.md)",
    "encoder.frozen": "`encoder.init`",
    "encoder.predictor": f"pairs {named(name for name, pairs in PAIRS.items() if pairs.two_views)}",
    "encoder.fixed_patches": "ViTs",
    "training.chunk": f"keys by {named(name for name, keys in KEYS.items() if keys.with_gradient)}; "
    f"pairs {named(name for name, pairs in PAIRS.items() if pairs.in_chunks)}; "
    "networks without [batch norm](encoders.md)",
}


def values_of(key: str, kind: type) -> str:
    """Say which values a key takes."""
    if kind is bool:
        return named(["true", "false"])
    return (CHOICES | RANGES | TEXTS)[key]
