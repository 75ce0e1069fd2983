"""What every modality answers: everything that depends on the kind of data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise.data import Items
from likewise.data.parts import Ids, Part, RaggedPart
from likewise.modalities.tiles import Tiles
from likewise.recipe import Recipe, RecipeError
from likewise.views.augmentation import Augmentation

BATCHES = (1, 3, 8)  # that every exported file is run with
About = Mapping[str, Any]  # what is saved beside the weights: kind, channels, size, mean, std, …


@dataclass(frozen=True)
class Choice:
    """A value that is chosen for the data where none was asked for, and why."""

    key: str  # of the recipe
    value: Any
    why: str  # empty: it goes without saying, and is not printed


@dataclass(frozen=True)
class Exported:
    """Rows that an exported network is run with, and what has to be known to use it."""

    given: list[Tensor]  # rows as the network's file takes them, in batches of `BATCHES`
    prepared: list[Tensor]  # the same, as the encoder takes them
    record: dict[str, Any]
    mean: Tensor | None = None  # what the file normalises by
    std: Tensor | None = None
    hop: int = 0  # samples of a frame, where there are frames


@dataclass(frozen=True)
class Frames:
    """Some frames of some sequences: m of them."""

    places: Ids  # (m,): the place of the sequence among those asked for
    starts: Ids  # (m,): the first sample of the frame

    @staticmethod
    def of(part: Part, ids: Ids, hop: int, most: int) -> "Frames":
        """Return at most so many frames, evenly from first to last."""
        assert isinstance(part, RaggedPart), "only sequences have frames"
        ends = np.cumsum(np.maximum(1, part.lengths[ids] // hop))
        total = int(ends[-1])
        chosen = np.linspace(0, total - 1, min(most, total)).astype(np.int64)
        places = np.searchsorted(ends, chosen, side="right")
        return Frames(places, (chosen - np.concatenate([[0], ends])[places]) * hop)


class Modality:
    """Everything that depends on what the rows of a part are.

    What a method does here by default is what most modalities do; the others have no default.
    """

    name: str
    noun: str  # what messages call a row
    presets: Mapping[str, Any]  # augmentations by name
    stands_alone = True  # whether items can be made of it alone
    axes_behind_channels = 0  # of a row as the encoder takes it, such as h and w
    channels_last = False  # whether accelerators are faster with the channels last in memory

    # Planning a run

    def method(self, items: Items) -> tuple[str, str]:
        """Return the method for data that nobody named one for, and the reason."""
        raise NotImplementedError

    def describe(self, part: Part) -> str:
        """Describe the rows in a few words, as in `28×28`."""
        return "×".join(map(str, part.array.shape[1:]))

    def describe_columns(self, part: Part) -> list[str]:
        """Return lines of the plan that say which columns of a table became what."""
        return []

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        """Describe what a step sees of a row: the augmentations, and how large a part of it."""
        raise NotImplementedError

    def describe_encoder(self, recipe: Recipe) -> str:
        """Return what the plan says between the encoder's name and its head."""
        return ""

    def check_data(self, part: Part, recipe: Recipe, name: str) -> None:
        """Refuse values that say how data are opened, where they are not for such rows; `name` is that of the data."""
        if recipe.data.fit != "crop":
            raise RecipeError(f"data.fit is for images, got {recipe.data.fit} for the {self.noun}s of {name}")

    def settled(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        """Return values of the recipe that follow from the data, whatever was asked for."""
        return {}

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        """Yield what is chosen where nothing was asked for."""
        raise NotImplementedError

    def default_preset(self, part: Part) -> str:
        """Return the augmentations for rows that nobody named any for."""
        raise NotImplementedError

    def window_choices(self, part: Part, train: Ids, recipe: Recipe, *, looks_ahead: bool) -> Iterator[Choice]:
        """Yield how much of a row a step sees, where rows are long; pairs that look ahead want more of it."""
        yield from ()

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        """Refuse a recipe that cannot work with such rows; `name` is that of the data."""
        if recipe.pairs.preset not in self.presets:
            raise RecipeError(f"pairs.preset {recipe.pairs.preset} does not go with items that are {self.noun}s")

    def numbers_per_step(self, part: Part, recipe: Recipe) -> dict[tuple[str, ...], int]:
        """Return how many numbers a step holds because of some values of the recipe, by the keys of these values."""
        return {}

    def hop(self, recipe: Recipe, part: Part) -> int:
        """Return the samples from one frame of the encoder to the next; 1 where there are no frames."""
        return 1

    # What is fitted on the data and saved beside the weights

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        """Return what has to be known to prepare rows as in training."""
        raise NotImplementedError

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        """Return the recipe's augmentations, which also prepare rows for evaluation."""
        raise NotImplementedError

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        """Return what prepares rows for an encoder that was not trained here."""
        raise NotImplementedError

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        """Return how many means and deviations are saved, and how many numbers a row has."""
        raise NotImplementedError

    def rows_in_words(self, channels: int, size: int) -> str:
        """Say what an encoder takes, as in `images of 3 channels`."""
        return f"{self.noun}s of {counted(channels, 'channel', 'channels')}"

    def check_reopened(self, about: About, part: Part, name: str) -> None:
        """Refuse rows of `part`, which are of this modality, if an encoder was trained on others."""

    def columns_of(self, about: About, part: Part) -> tuple[str, ...] | None:
        """Return the channels to read in place of those of `part`, so that the encoder sees what it was trained on."""
        return None

    # Encoders

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        """Build the recipe's backbone with random weights."""
        raise NotImplementedError

    def build_named(self, name: str, part: Part, size: int | None) -> nn.Module:
        """Build an encoder by name, which was not trained here."""
        raise NotImplementedError

    def describe_features(self, recipe: Recipe, about: About, layer: str) -> str:
        """Say what every figure about embeddings depends on: layer, encoder, stem or context."""
        return f"{layer} of {recipe.encoder.name}"

    # The baseline without learning

    def baseline_name(self, by_frame: bool) -> str:
        return "raw input"

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        """Return what one would compare without learning, (n, d)."""
        raise NotImplementedError

    def baseline_of_views(self, views: Tensor, augmentation: Augmentation) -> Tensor | None:
        """Return the same for drawn views, (n, d); None where views have no such baseline."""
        return views.flatten(1)

    def baseline_of_frames(self, part: Part, ids: Ids, frames: Frames, hop: int) -> Tensor:
        """Return the same for single frames, (m, d), where the encoder has frames."""
        raise NotImplementedError

    # Pictures

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        """Return a small picture of each row."""
        raise NotImplementedError

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        """Return a small picture of each view, as the encoder is given it but for the normalisation."""
        raise NotImplementedError

    # Exported networks

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> "Exported":
        """Return made-up rows to run an exported network with, and what has to be known to use it."""
        raise NotImplementedError

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        """Say what the input of an exported network is, behind its shape and dtype."""
        return ""

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        """Return Python code that makes the input of an exported network."""
        raise NotImplementedError

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        """Return Python code that builds the network of an exported file, with random weights."""
        raise NotImplementedError

    def note_on_format(self, file_format: str) -> str:
        """Say what is special about one format of the exported network."""
        return ""

    # Single files that items are asked for by, and what the explorer shows

    file_kind: str | None = None  # what such a file is called; None: items are asked for by id only
    extensions: tuple[str, ...] = ()
    can_be_heard = False

    def open_file(self, path: Path, part: Part, about: About) -> Items:
        """Open a file as the rows of `part` are: of their size, channels or rate."""
        raise NotImplementedError

    def measure_file(self, path: Path, name: str) -> list[tuple[int, int, str]]:
        """Read how much a file of unknown origin holds: amounts, the most that is taken, and what is counted."""
        raise NotImplementedError

    def sound(self, part: Part, row: int) -> bytes | None:
        """Return a row as a WAV file; None where it cannot be heard."""
        return None

    def lengths(self, part: Part) -> tuple[str, NDArray[np.float32]] | None:
        """Return how long the rows are, and in which unit; None where all are alike."""
        return None


def accelerated(large: str, small: str) -> tuple[str, str]:
    """Choose between two encoders by the machine, and say why."""
    if torch.accelerator.is_available():
        return large, "there is an accelerator"
    return small, f"there is no accelerator; {large} is larger and slower"


def counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
