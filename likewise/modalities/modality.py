"""Define the interface of a modality: everything that depends on the kind of data."""

from collections.abc import Callable, Iterator, Mapping
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

BATCHES = (1, 3, 8)  # batch sizes that every exported file is tested with
ROUNDING = 1e-6  # a deviation below this share of the largest value is rounding of float32
About = Mapping[str, Any]  # what is saved beside the weights: kind, channels, size, mean, std, …


@dataclass(frozen=True)
class Choice:
    """A value of the recipe that is chosen to suit the data because the user set none, and the reason."""

    key: str  # of the recipe, as in `encoder.name`
    value: Any
    why: str  # the reason; empty: it is obvious, and the choice is not printed


@dataclass(frozen=True)
class Exported:
    """Rows to test an exported network with, and the information that is needed to use it."""

    given: list[Tensor]  # rows as the network's file takes them, in batches of `BATCHES`
    prepared: list[Tensor]  # the same rows, as the encoder takes them
    record: dict[str, Any]
    mean: Tensor | None = None  # the exported file normalises by mean and std
    std: Tensor | None = None
    hop: int = 0  # samples from one frame to the next; 0 if there are no frames


@dataclass(frozen=True)
class Frames:
    """A selection of m frames of some sequences."""

    places: Ids  # (m,): the index of each frame's sequence among the requested ones
    starts: Ids  # (m,): the first sample of each frame

    @staticmethod
    def of(part: Part, ids: Ids, hop: int, most: int) -> "Frames":
        """Return at most `most` frames, evenly spaced from first to last."""
        assert isinstance(part, RaggedPart), "only sequences have frames"
        ends = np.cumsum(np.maximum(1, part.lengths[ids] // hop))
        total = int(ends[-1])
        chosen = np.linspace(0, total - 1, min(most, total)).astype(np.int64)
        places = np.searchsorted(ends, chosen, side="right")
        return Frames(places, (chosen - np.concatenate([[0], ends])[places]) * hop)


class Modality:
    """Everything that depends on the kind of a part's rows.

    A method here does what is right for most modalities, or raises NotImplementedError if there is no such default.
    """

    name: str
    noun: str  # the word for a row in messages
    presets: Mapping[str, Any]  # augmentations by name
    stands_alone = True  # whether items can consist of this part alone
    axes_behind_channels = 0  # of a row as the encoder takes it: 2, h and w, for images
    channels_last = False  # whether accelerators are faster with the channels last in memory

    # Planning a run

    def method(self, items: Items) -> tuple[str, str]:
        """Return the default method for data of this modality, and the reason."""
        raise NotImplementedError

    def describe(self, part: Part) -> str:
        """Describe the rows in a few words, as in `28×28`."""
        return "×".join(map(str, part.array.shape[1:]))

    def describe_columns(self, part: Part) -> list[str]:
        """Return lines of the plan that say how the columns of a table are used."""
        return []

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        """Describe what a training step sees of a row: the augmentations, and how much of it."""
        raise NotImplementedError

    def describe_encoder(self, recipe: Recipe) -> str:
        """Return what the plan prints between the encoder's name and its head."""
        return ""

    def check_data(self, part: Part, recipe: Recipe, name: str) -> None:
        """Raise an error if a value of `data.…` does not apply to this modality; `name` is the name of the data."""
        if recipe.data.fit != "crop":
            raise RecipeError(f"data.fit is for images, got {recipe.data.fit} for the {self.noun}s of {name}")

    def settled(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        """Return values of the recipe that the data determine; they override what the user set."""
        return {}

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        """Yield choices for values that the user did not set."""
        raise NotImplementedError

    def default_preset(self, part: Part) -> str:
        """Return the name of the default augmentations for data of this modality."""
        raise NotImplementedError

    def window_choices(self, part: Part, train: Ids, recipe: Recipe, *, looks_ahead: bool) -> Iterator[Choice]:
        """Yield how much of a long row a training step sees; pairs that look ahead need more of it."""
        yield from ()

    def view_choices(self, part: Part, recipe: Recipe, *, keys_learn: bool) -> Iterator[Choice]:
        """Yield choices for methods that compare two views; `keys_learn` if both views teach the encoder."""
        yield from ()

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        """Raise an error if a recipe cannot work with data of this modality; `name` is the name of the data."""
        if recipe.pairs.preset not in self.presets:
            raise RecipeError(f"pairs.preset {recipe.pairs.preset} does not go with items that are {self.noun}s")

    def numbers_per_step(self, part: Part, recipe: Recipe) -> dict[tuple[str, ...], int]:
        """Return how many numbers a training step holds in memory, by the keys of the recipe that determine it."""
        return {}

    def hop(self, recipe: Recipe, part: Part) -> int:
        """Return the samples from one frame of the encoder to the next; 1 if it has no frames."""
        return 1

    # What is fitted on the data and saved beside the weights

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        """Return all that is needed to prepare rows as in training, to be saved beside the weights."""
        raise NotImplementedError

    def kept_in(self, folder: Path) -> dict[str, Any]:
        """Return values of the recipe with which `fit` takes what an earlier run fitted from the run's folder."""
        return {}

    def digest(self, about: About) -> str:
        """Return a digest of what was fitted, so that a resumed run can compare it; empty if it need not."""
        return ""

    def files_of(self, about: About) -> dict[str, str]:
        """Return the content of files that a run keeps of what `fit` fitted, by name; other programs read them too."""
        return {}

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        """Return the recipe's augmentations, which also prepare rows for evaluation."""
        raise NotImplementedError

    def early_augmentation(self, recipe: Recipe, about: About) -> Augmentation | None:
        """Return the augmentations of the first half of the steps, or None if they are the same throughout."""
        return None

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        """Return the augmentation that prepares rows for an encoder that was not trained with likewise."""
        raise NotImplementedError

    def complaint(self, about: About) -> str | None:
        """Return what is wrong with what `fit` returned, as it is read from a file, or None."""
        return None

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        """Return how many means and standard deviations are saved, and how many numbers a row has."""
        raise NotImplementedError

    def rows_in_words(self, channels: int, size: int) -> str:
        """Describe the input of an encoder, as in `images of 3 channels`."""
        return f"{self.noun}s of {counted(channels, 'channel', 'channels')}"

    def input_of(self, part: Part) -> str:
        """Describe the rows of a part as `rows_in_words` does."""
        return self.rows_in_words(part.array.shape[1], part.array.shape[1])

    def check_reopened(self, about: About, part: Part, name: str) -> None:
        """Raise an error if the rows of `part` do not match those that an encoder was trained on."""

    def columns_of(self, about: About, part: Part) -> tuple[str, ...] | None:
        """Return the channels that the encoder was trained on, if they differ from those of `part`; else None."""
        return None

    # Encoders

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        """Build the recipe's backbone with random weights."""
        raise NotImplementedError

    def build_named(self, name: str, part: Part, size: int | None) -> nn.Module:
        """Build an encoder by name, to be given weights from elsewhere."""
        raise NotImplementedError

    def describe_features(self, recipe: Recipe, about: About, layer: str) -> str:
        """Describe what every figure about embeddings depends on: layer, encoder, stem or context."""
        return f"{layer} of {recipe.encoder.name}"

    # The baseline without learning

    def baseline_name(self, by_frame: bool) -> str:
        """Return the name of the baseline for tables."""
        return "raw input"

    def baseline_in_words(self, by_frame: bool) -> str:
        """Return what the baseline is called in a sentence, as in `better than MFCC statistics`."""
        return self.baseline_name(by_frame)

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        """Return features without learning, (n, d), that embeddings are compared with."""
        raise NotImplementedError

    def fitted_baseline(self, part: Part, train: Ids) -> Callable[[Part, Ids], Tensor]:
        """Return `baseline`, with what it needs to know of the data, such as which words are rare."""
        return self.baseline

    def scaled_baseline(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """Return baseline features of training and test items on the scale on which they are compared.

        Features with different units are standardised by the training items, as anybody who used them would do.
        """
        return train, test

    def baseline_of_views(self, views: Tensor, augmentation: Augmentation) -> Tensor | None:
        """Return baseline features (n, d) of augmented views; None if there are none."""
        return views.flatten(1)

    def baseline_of_frames(self, part: Part, ids: Ids, frames: Frames, hop: int) -> Tensor:
        """Return baseline features (m, d) of single frames, for encoders that have frames."""
        raise NotImplementedError

    # Pictures

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        """Return a small picture of each row."""
        raise NotImplementedError

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        """Return a small picture of each view as the encoder sees it, without the normalisation."""
        raise NotImplementedError

    # Exported networks

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> "Exported":
        """Return random rows to test an exported network with, and the information that is needed to use it."""
        raise NotImplementedError

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        """Describe the input of an exported network, to be appended to its shape and dtype."""
        return ""

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        """Return Python code that makes the input of an exported network."""
        raise NotImplementedError

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        """Return Python code that builds the network of an exported file, with random weights."""
        raise NotImplementedError

    def note_on_format(self, file_format: str) -> str:
        """Return a remark about one format of the exported network, or an empty string."""
        return ""

    # Files as search queries, and what the explorer shows

    file_kind: str | None = None  # the word for a file of this modality; None: only ids can be queries
    extensions: tuple[str, ...] = ()
    can_be_heard = False

    def open_file(self, path: Path, part: Part, about: About) -> Items:
        """Open a file with the size, channels or rate of the rows of `part`."""
        raise NotImplementedError

    def measure_file(self, path: Path, name: str) -> list[tuple[int, int, str]]:
        """Return how much an uploaded file holds, without decoding it: (amount, limit, unit) for each limit."""
        raise NotImplementedError

    def sound(self, part: Part, row: int, longest: float | None = None) -> bytes | None:
        """Return a row as a WAV file of at most `longest` seconds; None if it is not audio."""
        return None

    def lengths(self, part: Part) -> tuple[str, NDArray[np.float32]] | None:
        """Return the unit and the lengths of the rows; None if all rows have the same length."""
        return None


def standardised(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Return features (n, d) of training and (m, d) of test items, with mean 0 and deviation 1 over the training items.

    Features that do not vary in the training items, up to rounding, become 0.
    """
    centre, deviation = train.mean(dim=0), train.std(dim=0, correction=0)
    varies = deviation > ROUNDING * train.abs().amax(dim=0)
    divisor = deviation.where(varies, torch.inf)
    return (train - centre) / divisor, (test - centre) / divisor


def accelerated(large: str, small: str) -> tuple[str, str]:
    """Return the large encoder if the machine has an accelerator, else the small one, and the reason."""
    if torch.accelerator.is_available():
        return large, "there is an accelerator"
    return small, f"there is no accelerator; {large} is larger and slower"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{count:,} {one if count == 1 else many}"
