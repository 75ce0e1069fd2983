"""Define encoders of sequences: a frame encoder, then a context network that sees only the past.

van den Oord et al., 2018 (CPC).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from likewise.encoders.frames import FrameEncoder, Frames
from likewise.encoders.inputs import check_known, check_whole
from likewise.encoders.mel import MelFrames
from likewise.encoders.vit import Block
from likewise.encoders.whitening import Whitening


class Recurrent(nn.GRU):
    """Map frames (n, f, width) to contexts (n, f, dim); context i depends on frames 0 to i."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__(width, dim, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(frames)[0]


class CausalTransformer(nn.Module):
    """Map frames (n, f, width) to contexts (n, f, dim) by attention; context i depends on frames 0 to i."""

    def __init__(self, width: int, dim: int, *, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, frames: Tensor) -> Tensor:
        rows = self.inputs(frames)
        return self.norm(self.blocks(rows + positions(rows)))  # type: ignore[no-any-return]


def positions(rows: Tensor) -> Tensor:
    """Return sinusoidal positions (f, d) for sequences of any length (Vaswani et al., 2017)."""
    f, d = rows.shape[1:]
    position = torch.arange(f, device=rows.device, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, d, 2, device=rows.device) * (-math.log(10_000) / d))
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :d].to(rows.dtype)


CONTEXTS: dict[str, Callable[[int, int], nn.Module]] = {"gru": Recurrent, "transformer": CausalTransformer}


class SequenceEncoder(nn.Module):
    """Map sequences (n, t, c), with NaN after the end of each, to features (n, dim): the mean of the contexts.

    After `whiten` the features are whitened. The weights of an encoder that was never whitened have no names for it.
    """

    def __init__(
        self, *, frames: Callable[[int], FrameEncoder], dim: int, channels: int = 1, context: str = "gru"
    ) -> None:
        super().__init__()
        check_whole("channels", channels)
        check_known("context", context, CONTEXTS)
        self.frames = frames(channels)
        self.context = CONTEXTS[context](self.frames.width, dim)
        self.whitening: nn.Module = nn.Identity()
        self.dim: int = dim

    @property
    def hop(self) -> int:
        """The samples from one frame to the next."""
        return self.frames.hop

    def contexts(self, sequences: Tensor) -> Tensor:
        """Return contexts (n, f, dim): the summary of each frame and those before it."""
        return self.context(self.frames(sequences))  # type: ignore[no-any-return]

    def forward(self, sequences: Tensor) -> Tensor:
        contexts = self.contexts(sequences)
        is_frame = self.frames.there(sequences)
        mean = contexts.where(is_frame[:, :, None], 0).sum(dim=1) / is_frame.sum(dim=1, keepdim=True)
        return self.whitening(mean)  # type: ignore[no-any-return]

    @property
    def is_whitened(self) -> bool:
        return isinstance(self.whitening, Whitening)

    def whiten(self, embed: Callable[[], Tensor]) -> None:
        """Whiten the features by those of some items (n, dim), which `embed` returns."""
        self.whitening = nn.Identity()
        features = embed()
        whitening = Whitening(self.dim)
        whitening.fit(features)
        self.whitening = whitening.to(next(self.parameters()))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        is_whitened = f"{prefix}whitening.matrix" in state_dict
        self.whitening = Whitening(self.dim).to(next(self.parameters())) if is_whitened else nn.Identity()
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _strided(*, strides: tuple[int, ...], width: int, dim: int) -> partial[SequenceEncoder]:
    return partial(SequenceEncoder, frames=partial(Frames, strides=strides, width=width), dim=dim)


def _mel(*, rate: int, width: int, dim: int) -> partial[SequenceEncoder]:
    return partial(SequenceEncoder, frames=partial(MelFrames, rate=rate, width=width), dim=dim)


SEQUENCE_ENCODERS: dict[str, partial[SequenceEncoder]] = {
    "mel_16k": _mel(rate=16_000, width=128, dim=256),
    "mel_8k": _mel(rate=8_000, width=128, dim=256),
    "audio_16k": _strided(strides=(5, 4, 2, 2, 2), width=512, dim=256),  # the paper's: a frame is 10 ms at 16 kHz
    "audio_16k_small": _strided(strides=(5, 4, 2, 2, 2), width=128, dim=256),
    "audio_8k": _strided(strides=(5, 4, 2, 2), width=128, dim=256),  # a frame is 10 ms at 8 kHz
    "sensors": _strided(strides=(2, 2), width=128, dim=128),
}


def hop_of(network: nn.Module) -> int:
    """Return the samples from one frame to the next, or 0 if the network is not a `SequenceEncoder`."""
    return network.hop if isinstance(network, SequenceEncoder) else 0
