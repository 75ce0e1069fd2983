"""Define what audio and series have in common: rows (t, c) of any length, of which a training step sees a window.

A frame is what the encoder computes for every `hop` samples.
"""

import functools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import encoders
from likewise.data import DataError, Items
from likewise.data.parts import PIECE, Ids, Part, RaggedPart
from likewise.encoders import SEQUENCE_ENCODERS, hop_of
from likewise.modalities.modality import BATCHES, About, Choice, Exported, Modality, counted, standardised
from likewise.modalities.tiles import Tiles
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError, check_choice
from likewise.views import windows
from likewise.views.augmentation import PLAIN, Augmentation
from likewise.views.windows import PlainWindows

FRAMES = 128  # of a window, at most, unless the user sets one: 1.28 s of audio, as in the CPC paper
LONGEST_DRAWN = 2**18  # samples of a sequence that its picture shows, at most


def ragged(part: Part) -> RaggedPart:
    """Return the part, typed as the ragged part that a sequence must be."""
    assert isinstance(part, RaggedPart), f"sequences must be a ragged part, got {part.modality}"
    return part


class SequenceModality(Modality):
    noun = "sequence"
    presets = windows.PRESETS

    def encoder_for(self, part: RaggedPart) -> tuple[str, str]:
        """Return the name of the encoder that suits the sequences, and why."""
        raise NotImplementedError

    def draw(self, sequences: list[NDArray[np.float32]], part: RaggedPart) -> Tiles:
        """Draw sequences (t, c), without padding, as small pictures."""
        raise NotImplementedError

    def method(self, items: Items) -> tuple[str, str]:
        return "cpc", "CPC learns from sequences by predicting what comes next"

    def describe(self, part: Part) -> str:
        part = ragged(part)
        rate = f", {part.rate:,} samples a second" if part.rate else ""
        length = f"{part.native / part.rate:.2g} s" if part.rate else f"{part.native:,} samples"
        return f"{counted(part.array.shape[1], 'channel', 'channels')}{rate}, {length} long (median)"

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        options, rate = recipe.pairs, ragged(part).rate
        augmentations = "" if options.preset == PLAIN else f", {options.preset} augmentations"
        seconds = f", {options.window / rate:.2g} s" if rate else ""
        return f"{augmentations}, windows of {options.window:,} samples{seconds}"

    def describe_encoder(self, recipe: Recipe) -> str:
        return f"{recipe.encoder.context} context, "

    def settled(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        return {"data.rate": ragged(part).rate}

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        # The encoder that a method names may be an image encoder.
        if recipe.encoder.name not in SEQUENCE_ENCODERS and ":" not in recipe.encoder.name:
            yield Choice("encoder.name", *self.encoder_for(ragged(part)))
        if recipe.pairs.preset not in self.presets:
            # The presets that a method names are image presets; sequences need their own.
            yield Choice("pairs.preset", self.default_preset(part), "the items are sequences")
        if recipe.encoder.head != "mlp_bn":
            yield Choice("encoder.bn_splits", 1, "")  # sequence encoders have no batch norm to split

    def default_preset(self, part: Part) -> str:
        return "sequence"

    def window_choices(self, part: Part, train: Ids, recipe: Recipe, *, looks_ahead: bool) -> Iterator[Choice]:
        """Yield a window of whole frames: long enough for most sequences, or three quarters of the median length."""
        if recipe.pairs.window:
            return
        lengths, hop, rate = ragged(part).lengths[train], self.hop(recipe, part), ragged(part).rate
        typical = int(np.quantile(lengths, 0.75)) if looks_ahead else int(np.median(lengths) * 3 / 4)
        length = f"{typical:,} samples" + (f" ({typical / rate:.2g} s)" if rate else "")
        if typical // hop > FRAMES:
            why = f"at most {FRAMES} frames of {hop} samples are chosen by default"
        elif looks_ahead:
            why = f"three quarters of the training sequences are at most {length} long, in whole frames of {hop}"
        else:
            why = f"{length} is three quarters of the training sequences' median length, in whole frames of {hop}"
        yield Choice("pairs.window", max(1, min(FRAMES, typical // hop)) * hop, why)

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        super().check(part, recipe, name)
        if recipe.pairs.window < 1:
            raise RecipeError(f"pairs.window must be at least 1, got {recipe.pairs.window}")

    def numbers_per_step(self, part: Part, recipe: Recipe) -> dict[tuple[str, ...], int]:
        samples = part.array.shape[1] * recipe.pairs.window
        return {("pairs.window", "training.batch_size"): recipe.training.batch_size * samples}

    def hop(self, recipe: Recipe, part: Part) -> int:
        name = recipe.encoder.name
        if name not in SEQUENCE_ENCODERS and ":" not in name:
            return 1
        return _hop_of_built(name, part.array.shape[1], part.native, recipe.encoder.context)

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        part = ragged(part)
        mean, std = channel_statistics(part, train)
        about: dict[str, Any] = {"channels": part.array.shape[1], "size": recipe.pairs.window}
        about |= {"stored": recipe.data.stored, "rate": part.rate, "mean": mean, "std": std}
        return about if part.table is None else about | {"channel_names": list(part.channels)}

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        check_choice("pairs.preset of sequences", recipe.pairs.preset, self.presets)
        views = self.presets[recipe.pairs.preset]
        return views(mean=tuple(about["mean"]), std=tuple(about["std"]))

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        mean, std = channel_statistics(ragged(part), train)
        return PlainWindows(tuple(mean), tuple(std))

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        return channels, channels * size

    def check_reopened(self, about: About, part: Part, name: str) -> None:
        wanted, rate = about.get("rate", 0), ragged(part).rate
        if wanted and rate not in (0, wanted):
            raise DataError(f"the encoder takes {wanted:,} samples a second, got {rate:,} in {name}")

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        options = recipe.encoder
        return encoders.build(options.name, channels=about["channels"], samples=about["size"], context=options.context)

    def build_named(self, name: str, part: Part, size: int | None) -> nn.Module:
        return encoders.build(name, channels=part.array.shape[1], samples=part.native)

    def describe_features(self, recipe: Recipe, about: About, layer: str) -> str:
        return f"{layer} of {recipe.encoder.name} with {recipe.encoder.context} context"

    def scaled_baseline(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        return standardised(train, test)

    def baseline_of_views(self, views: Tensor, augmentation: Augmentation) -> Tensor | None:
        return None

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> Exported:
        size, channels, rng = about["size"], about["channels"], generator(0, "export")
        mean, std = torch.tensor(plain.mean), torch.tensor(plain.std)
        lengths = _lengths(network, size, channels)
        given = [torch.randn(n, t, channels, generator=rng) * std + mean for n, t in zip(BATCHES, lengths, strict=True)]
        record: dict[str, Any] = {"input": "samples", "shape": ["n", "t" if len(set(lengths)) > 1 else size, channels]}
        record |= {"context": recipe.encoder.context, "rate": about["rate"]}
        hop = hop_of(network[0])
        if hop:
            given[-1][0, size // 2 :] = math.nan  # one sequence that ends before the others
            record["piece"] = max(1, PIECE // hop) * hop  # longer sequences: the mean of pieces, weighted by length
        return Exported(given, [plain.plain(part) for part in given], record, mean, std, hop)

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        return f", {record['rate']:,} a second" if record["rate"] else ""

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        shape = f"(1, {record['size']}, {record['channels']})"
        return f"\nsamples = np.zeros({shape}, dtype=np.float32)  # your data; NaN after the end of a shorter sequence"

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        shape = f"channels={record['channels']}, samples={record['size']}"
        return f'encoders.build({json.dumps(record["encoder"])}, {shape}, context="{record["context"]}")'

    def note_on_format(self, file_format: str) -> str:
        return " It runs on a CPU only." if file_format == "torchscript" else ""

    def lengths(self, part: Part) -> tuple[str, NDArray[np.float32]] | None:
        part = ragged(part)
        return "seconds" if part.rate else "samples", (part.lengths / (part.rate or 1)).astype(np.float32)

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        part = ragged(part)
        lengths, beginning = np.minimum(LONGEST_DRAWN, part.lengths[ids]), np.zeros(1, dtype=np.int64)
        return self.draw([part.windows(ids[i : i + 1], beginning, t)[0] for i, t in enumerate(lengths)], part)

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        mean, std = (np.array(x, dtype=np.float32) for x in (augmentation.mean, augmentation.std))
        rows = views.cpu().numpy().astype(np.float32) * std + mean
        return self.draw([row[~np.isnan(row).any(axis=1)] for row in rows], ragged(part))


@functools.cache
def _hop_of_built(name: str, channels: int, samples: int, context: str) -> int:
    """Return the hop of an encoder, which has to be built to find out."""
    return int(getattr(encoders.build(name, channels=channels, samples=samples, context=context), "hop", 1))


def channel_statistics(part: RaggedPart, train: Ids) -> tuple[list[float], list[float]]:
    """Return each channel's mean and standard deviation over some sequences; 1 for a constant channel's deviation."""
    total, squares, count = 0.0, 0.0, 0
    for piece in part.pieces(train):
        rows = piece.data[~np.isnan(piece.data).any(axis=2)].astype(np.float64)
        total, squares, count = total + rows.sum(axis=0), squares + (rows**2).sum(axis=0), count + len(rows)
    mean = np.asarray(total) / count
    std = np.sqrt(np.maximum(0, np.asarray(squares) / count - mean**2))
    return mean.tolist(), np.where(std > 0, std, 1).tolist()


def _lengths(network: nn.Module, size: int, channels: int) -> tuple[int, ...]:
    """Return a sequence length for each test batch, the longest last; all the same if the network takes only one."""
    lengths = (size, max(1, size // 3), size + 7)
    try:
        with torch.no_grad():
            for t in lengths:
                network(torch.zeros(1, t, channels))
    except Exception:  # an imported encoder may take only one length, and raise any exception
        return (size,) * len(lengths)
    return lengths
