"""Encode audio by fixed log-mel energies, then small causal convolutions over frames.

The energies are those of `data.spectra.log_mel`, computed on the encoder's device: 40 bands, windows of 25 ms, one
every 10 ms. A window ends with the frame's last sample, so a frame sees the samples before (i + 1) · hop only.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from likewise.data.spectra import mel_bands
from likewise.encoders.frames import CausalConvolution, FrameEncoder

BANDS = 40
WINDOW, HOP = 0.025, 0.010  # seconds
FLOOR = 1e-3  # added to energies; samples are standardised, so it is 75 dB below a tone of their standard deviation
SCALE = 4.0  # divides the logarithms, which brings them to about unit size


class LogMel(nn.Module):
    """Map samples (n, t, c), t a multiple of the hop, to log energies (n, t // hop, c · bands), about −2 to 2."""

    basis: Tensor  # (2 · frequencies, 1, window)
    bands: Tensor  # (frequencies, bands)

    def __init__(self, rate: int) -> None:
        super().__init__()
        self.window, self.hop = round(WINDOW * rate), round(HOP * rate)
        points = 2 << (self.window - 1).bit_length()  # longer than the window, as in data.spectra
        times = np.arange(self.window)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * times / self.window)
        angles = 2 * np.pi / points * times[:, None] * np.arange(points // 2 + 1)
        basis = (np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * hann[:, None]).T[:, None]
        # Not part of the state: the same numbers for everybody.
        self.register_buffer("basis", torch.from_numpy(basis.astype(np.float32)), persistent=False)
        bands = mel_bands(rate, points, BANDS).T.copy()
        self.register_buffer("bands", torch.from_numpy(bands), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        with torch.autocast(rows.device.type, enabled=False):  # energies span more than half precision can hold
            rows = functional.pad(rows.to(self.basis.dtype), (0, 0, self.window - self.hop, 0))
            n, _, c = rows.shape
            # A convolution takes the windows and multiplies them by the basis; ONNX has no operator for windows alone.
            signals = rows.transpose(1, 2).reshape(n * c, 1, -1)
            real, imaginary = functional.conv1d(signals, self.basis, stride=self.hop).chunk(2, dim=1)
            energy = (real.square() + imaginary.square()).transpose(1, 2) @ self.bands  # (n · c, f, bands)
            energy = energy.reshape(n, c, -1, BANDS).transpose(1, 2)  # (n, f, c, bands)
            return (energy + FLOOR).log().flatten(2) / SCALE


class MelFrames(FrameEncoder):
    """Encode audio by log-mel energies, a linear layer and causal convolutions over frames."""

    def __init__(self, channels: int, rate: int, width: int, depth: int = 3) -> None:
        super().__init__(channels, round(HOP * rate), width)
        self.mel = LogMel(rate)
        self.inputs = nn.Linear(channels * BANDS, width)
        self.convolutions = nn.ModuleList(CausalConvolution(width, width, 1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def encode(self, rows: Tensor) -> Tensor:
        whole = rows.shape[1] // self.hop * self.hop
        frames = self.inputs(self.mel(rows[:, :whole]))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            frames = functional.relu(norm(convolution(frames)))
        return frames  # type: ignore[no-any-return]
