"""Define the series modality: sensor readings, float32, of one or more channels, with or without a known rate."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from likewise.data import Items
from likewise.data.items import SERIES
from likewise.data.parts import Ids, Part, RaggedPart
from likewise.data.roles import list_reasons, shortened
from likewise.modalities.modality import About, Frames, counted
from likewise.modalities.sequence import SequenceModality, ragged
from likewise.modalities.tiles import SIDE, Tiles
from likewise.recipe import Recipe, RecipeError

POINTS = 8 * SIDE  # points that a line keeps, at least
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # safe for colour-blind readers


class SeriesModality(SequenceModality):
    name = SERIES

    def method(self, items: Items) -> tuple[str, str]:
        return "simclr", "two windows of one sequence are alike, whatever comes next"

    def encoder_for(self, part: RaggedPart) -> tuple[str, str]:
        return "sensors", f"{counted(part.array.shape[1], 'channel', 'channels')} of a series"

    def describe_columns(self, part: Part) -> list[str]:
        part = ragged(part)
        if part.table is None:
            return []
        times, left_out = part.table.times, part.table.left_out
        order = f"{shortened(times)} orders the rows" if times else "no column orders the rows: they keep their order"
        reasons = list_reasons(left_out)
        others = [f"left out\t{reasons}; --column channels=NAME+NAME takes other columns"] if left_out else []
        return [f"channels\t{shortened(part.channels)}", f"time\t{order}", *others]

    def check_data(self, part: Part, recipe: Recipe, name: str) -> None:
        super().check_data(part, recipe, name)
        rate = ragged(part).rate
        if recipe.data.rate not in (0, rate):
            got = f"{rate:,}" if rate else "an unknown one"
            raise RecipeError(f"data.rate resamples audio only, got {recipe.data.rate:,} for {name} of rate {got}")

    def columns_of(self, about: About, part: Part) -> tuple[str, ...] | None:
        part = ragged(part)
        if part.table is None:
            return None
        # Channels were selected by how they vary; a sensor that varied in the training data may be constant here.
        names = tuple(about.get("channel_names", part.channels))
        return None if part.channels == names else names

    def baseline_name(self, by_frame: bool) -> str:
        return "raw samples" if by_frame else "channel statistics"

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        rows = [_channel_statistics(ragged(part).whole(row)) for row in ids]
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    def baseline_of_frames(self, part: Part, ids: Ids, frames: Frames, hop: int) -> Tensor:
        rows = []
        for place in np.unique(frames.places):
            sequence, starts = ragged(part).whole(ids[place]), frames.starts[frames.places == place]
            samples = np.minimum(starts[:, None] + np.arange(hop), len(sequence) - 1)
            rows.append(sequence[samples].reshape(len(starts), -1))
        return torch.from_numpy(np.concatenate(rows).astype(np.float32))

    def draw(self, sequences: list[NDArray[np.float32]], part: RaggedPart) -> Tiles:
        """Draw a line for each channel, all sequences on the same scale."""
        # A picture cannot show more points.
        thinned = [sequence[:: max(1, len(sequence) // POINTS)] for sequence in sequences]
        values = np.concatenate(thinned)
        low, high = np.quantile(values, 0.005, axis=0), np.quantile(values, 0.995, axis=0)
        return np.stack([_traces((sequence - low) / np.maximum(high - low, 1e-12)) for sequence in thinned])


def _channel_statistics(sequence: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return mean, deviation, quartiles, extremes and mean step of every channel, (8 c,)."""
    first = sequence[:1]
    moved = sequence - first  # so that the deviation of a constant channel is 0, and not what rounding leaves
    steps = np.abs(np.diff(sequence, axis=0, prepend=first))
    quantiles = np.quantile(sequence, [0, 0.25, 0.5, 0.75, 1], axis=0)
    statistics: NDArray[np.float32] = np.concatenate(
        [first[0] + moved.mean(axis=0), moved.std(axis=0), *quantiles, steps.mean(axis=0)]
    )
    return statistics


def _traces(sequence: NDArray[Any]) -> Tiles:
    """Draw (t, c) in 0 to 1 as (side, side, 3): a line for each channel over time."""
    side = 2 * SIDE  # drawn at twice the size and shrunk, so that lines are smooth
    image = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(image)
    x = np.arange(len(sequence)) / max(1, len(sequence) - 1) * (side - 1)
    for channel, values in enumerate(np.clip(sequence, 0, 1).T):
        y = (1 - values) * (side - 5) + 2
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), fill=LINES[channel % len(LINES)], width=2)
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX))
