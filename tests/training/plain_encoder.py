"""Small encoders for tests of training, by name: `--encoder tests.training.plain_encoder:plain`."""

import os
import signal
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.encoders import SequenceEncoder
from likewise.encoders.frames import Frames

DIM = 24
at_call: dict[int, Callable[[], object]] = {}  # what happens at the so many-th forward pass, counted down to 0


class Small(nn.Module):
    """Images or vectors to DIM features, through the layers that are given."""

    dim = DIM

    def __init__(self, inputs: int, *between: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 32), *between, nn.Tanh(), nn.Linear(32, DIM))

    def forward(self, items: Tensor) -> Tensor:
        for count in sorted(at_call):
            act = at_call.pop(count)
            if count:
                at_call[count - 1] = act
            else:
                act()
        return self.layers(items)


class FrozenBatchNorm(nn.BatchNorm1d):
    """A batch norm by name, so that keys are shuffled for it, by whose statistics rows do not see each other."""

    def forward(self, rows: Tensor) -> Tensor:
        return functional.batch_norm(rows, self.running_mean, self.running_var, self.weight, self.bias)


class Fragile(Small):
    """NaN for a batch that has an item far from all others in it."""

    def forward(self, items: Tensor) -> Tensor:
        return super().forward(items) * torch.where(items.abs().max() > 6, torch.nan, 1.0)


class Idle(Small):
    """Has a classifier that nothing asks, as many published encoders do."""

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs)
        self.fc = nn.Linear(DIM, 10)


class Mortal(Small):
    """Kills the process of the rank that MORTAL_RANK names, at its sixth forward pass."""

    passes = 0

    def forward(self, items: Tensor) -> Tensor:
        self.passes += 1
        if self.passes == 6 and os.environ.get("MORTAL_RANK") == os.environ.get("LOCAL_RANK", "0"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(items)


def mortal(channels: int, size: int, features: int | None) -> nn.Module:
    return Mortal(features or channels * size * size)


def idle(channels: int, size: int, features: int | None) -> nn.Module:
    return Idle(features or channels * size * size)


def plain(channels: int, size: int, features: int | None) -> nn.Module:
    """Rows do not see each other: what r ranks do with it is what one process does."""
    return Small(features or channels * size * size)


def normed(channels: int, size: int, features: int | None) -> nn.Module:
    """Batch norm and dropout: statistics and draws that a resumed run has to find again."""
    return Small(features or channels * size * size, nn.BatchNorm1d(32), nn.Dropout(0.3))


def batch_normed(channels: int, size: int, features: int | None) -> nn.Module:
    """Batch norm alone."""
    return Small(features or channels * size * size, nn.BatchNorm1d(32))


def frozen_norm(channels: int, size: int, features: int | None) -> nn.Module:
    return Small(features or channels * size * size, FrozenBatchNorm(32))


def fragile(channels: int, size: int, features: int | None) -> nn.Module:
    return Fragile(features or channels * size * size)


class MeanOfSamples(nn.Module):
    """Sequences of any length to the features of their mean sample; it has neither frames nor contexts."""

    dim = DIM

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.features = nn.Linear(channels, DIM)

    def forward(self, sequences: Tensor) -> Tensor:
        return self.features(sequences.nanmean(dim=1))


def of_sequences(channels: int) -> nn.Module:
    return MeanOfSamples(channels)


def of_long_frames(channels: int, context: str) -> nn.Module:
    """One of ours with another hop, which only the encoder itself knows."""
    return SequenceEncoder(frames=partial(Frames, strides=(3, 2), width=8), dim=8, channels=channels, context=context)
