"""A run's folder: what stands in it, and how it is read and written. Nothing is built here.

`recipe.toml`, `metrics.jsonl`, `checkpoints/`, `encoder.safetensors`, `head.safetensors`, `skipped.txt`; of pairs
captions `text.safetensors`, `text_head.safetensors`, `tokenizer.json` and `words.txt` too.
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

FINE_TUNED = "finetuned.json"  # what fine-tuning measured, beside what it kept


class RunError(ValueError):
    """A folder that is not the run it should be: one sentence."""


class NotFiniteError(ValueError):
    """A loss or a weight that is NaN or infinite."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{sentence} {see('not finite')}")


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path

    @property
    def report(self) -> Path:
        """A page to look at in a browser."""
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
    """Write the parts, encoder and head, say, each as a file of its name with the pre-processing beside it."""
    for name, module in parts.items():
        save_module(folder / f"{name}.safetensors", module, {"preprocessing": json.dumps(preprocessing)})


def save_module(path: Path, module: nn.Module, about: dict[str, str]) -> None:
    """Write a module's weights, and what is to be known of them: whole or not at all, and only if they are finite."""
    if name := first_not_finite(module):
        raise NotFiniteError(f"{path} is not written: its weights are not finite, {name} for one; lower the lr")
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

    Buffers are not looked at: an attention mask may well hold minus infinity, and statistics of batch norm that are
    not finite come with a loss that is not.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        return ""
    # One answer for all of them: each read from an accelerator makes the host wait.
    finite = torch.stack([value.detach().isfinite().all() for value in parameters.values()])
    return next((name for name, is_finite in zip(parameters, finite.tolist(), strict=True) if not is_finite), "")


def read_text(path: Path) -> str:
    """Read a file that stands beside the weights."""
    return read_bounded(path, LARGEST_TEXT).decode()


def read_about(folder: Path, *, captioned: bool = False) -> dict[str, Any]:
    """Return what has to be known to use the weights of a run, which stands in the file of its encoder."""
    try:
        with safetensors.safe_open(folder / "encoder.safetensors", framework="np") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("preprocessing", "null"))
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise RunError(f"the weights of {folder} cannot be read: {error}") from None
    except RecursionError:
        raise RunError(f"the weights of {folder} cannot be read: their pre-processing is nested too deeply") from None
    about = migrated(about)
    if wrong := complaint(about, (*NEEDED, *(["vocabulary"] if captioned else []))):
        raise RunError(f"the weights of {folder} must have their pre-processing with them, {wrong}")
    return about
