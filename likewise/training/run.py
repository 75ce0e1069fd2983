"""The folder of a run: reading and writing its files.

It holds `recipe.toml`, `metrics.jsonl`, `checkpoints/`, `encoder.safetensors`, `head.safetensors` and `skipped.txt`;
for pairs captions also `text.safetensors`, `text_head.safetensors`, `tokenizer.json` and `words.txt`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from likewise import methods
from likewise.bounded import read_bounded
from likewise.guide import see
from likewise.modalities.migration import migrated
from likewise.pairs.across import LARGEST_TEXT
from likewise.recipe import Recipe
from likewise.training import metrics
from likewise.training.about import NEEDED, complaint

if TYPE_CHECKING:
    from likewise.training.encoder import Encoder

TRIAL = ".trial"  # a folder in which a checkpoint is written on trial
FINE_TUNED = "finetuned.json"  # the figures of fine-tuning, beside the fine-tuned weights


class RunError(ValueError):
    """A run's folder cannot be used; the message is one sentence that says why."""


class NotFiniteError(ValueError):
    """A loss or a weight is NaN or infinite."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{sentence} {see('not finite')}")


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path

    @property
    def report(self) -> Path:
        """Return the path of the report, an HTML page."""
        return self.folder / "report.html"

    @property
    def recipe(self) -> Recipe:
        return Recipe().with_values(methods.read_recipe(self.folder / "recipe.toml"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return metrics.read(self.folder / "metrics.jsonl")

    @property
    def encoder(self) -> "Encoder":
        from likewise.training.encoder import load  # it imports this module

        return load(self.folder)


def save_weights(folder: Path, parts: Mapping[str, nn.Module], preprocessing: Mapping[str, Any]) -> None:
    """Write each part, such as encoder and head, to a file of that name, with the pre-processing as metadata."""
    for name, module in parts.items():
        save_module(folder / f"{name}.safetensors", module, {"preprocessing": json.dumps(preprocessing)})


def save_module(path: Path, module: nn.Module, about: dict[str, str]) -> None:
    """Write a module's weights with the metadata `about`, atomically, and only if they are finite."""
    if name := first_not_finite(module):
        raise NotFiniteError(f"{path} is not written because its weights are not finite, such as {name}; lower the lr")
    state = {key: value.detach().cpu().contiguous().clone() for key, value in module.state_dict().items()}
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(safetensors.torch.save(state, metadata=about))
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def first_not_finite(module: nn.Module) -> str:
    """Return the name of the first parameter that holds NaN or infinity; empty if all are finite.

    Buffers are not checked: an attention mask may hold minus infinity, and batch statistics that are not finite come
    with a loss that is not finite.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        return ""
    # Read one tensor for all parameters: each read from an accelerator makes the host wait.
    finite = torch.stack([value.detach().isfinite().all() for value in parameters.values()])
    return next((name for name, is_finite in zip(parameters, finite.tolist(), strict=True) if not is_finite), "")


def read_text(path: Path) -> str:
    """Read a text file of a run, up to a maximum size."""
    return read_bounded(path, LARGEST_TEXT).decode()


def read_about(folder: Path, *, captioned: bool = False) -> dict[str, Any]:
    """Return the description that is stored with a run's encoder, after checking it."""
    try:
        with safetensors.safe_open(folder / "encoder.safetensors", framework="np") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("preprocessing", "null"))
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    except RecursionError:
        raise RunError(f"the weights of {folder} cannot be read: their pre-processing is nested too deeply") from None
    about = migrated(about)
    if wrong := complaint(about, (*NEEDED, *(["vocabulary"] if captioned else []))):
        raise RunError(f"the weights of {folder} must come with their pre-processing, {wrong}")
    return about
