"""Compute log-mel energies and cepstra (MFCC) of audio, the baseline for encoders of sound.

Davis and Mermelstein, 1980. Shapes: audio (t,) in −1 to 1; results (frames, bands).
"""

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-6  # added to the energies, so that silence does not become −∞


def log_mel(
    audio: NDArray[np.float32], rate: int, *, window: float = 0.025, hop: float = 0.010, bands: int = 40
) -> NDArray[np.float32]:
    """Return (frames, bands): the natural logarithm of the energy in each mel band; window and hop are in seconds."""
    import scipy.fft

    if audio.ndim != 1 or rate < 1 or bands < 1 or hop * rate <= 0 or window * rate <= 1:
        raise ValueError(
            f"expected audio (t,), rate and bands >= 1, and a window and hop of at least one sample, "
            f"got {audio.shape}, {rate}, {bands}, {window} s every {hop} s"
        )
    length, step = max(2, round(window * rate)), max(1, round(hop * rate))
    audio = np.pad(np.asarray(audio, dtype=np.float32), (0, max(0, length - len(audio))))
    frames = np.lib.stride_tricks.sliding_window_view(audio, length)[::step]  # frames, length
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    points = 2 << (length - 1).bit_length()  # longer than the window, otherwise low bands would contain no frequency
    spectrum = scipy.fft.rfft(frames * hann.astype(np.float32), points, axis=1)
    energy = spectrum.real**2 + spectrum.imag**2  # frames, frequencies
    mel: NDArray[np.float32] = np.log(energy @ mel_bands(rate, points, bands).T + np.float32(FLOOR))
    return mel


def mfcc(audio: NDArray[np.float32], rate: int, coefficients: int = 20) -> NDArray[np.float32]:
    """Return (frames, coefficients): the first coefficients of the orthonormal cosine transform of `log_mel`."""
    import scipy.fft

    mel = log_mel(audio, rate)
    if not 1 <= coefficients <= mel.shape[1]:
        raise ValueError(f"coefficients must be 1 to {mel.shape[1]}, got {coefficients}")
    cepstra: NDArray[np.float32] = scipy.fft.dct(mel, type=2, norm="ortho", axis=1)[:, :coefficients]
    return cepstra


def mel_bands(rate: int, points: int, bands: int) -> NDArray[np.float32]:
    """Return (bands, points // 2 + 1): triangular filters of height 1 with corners equally spaced in mel."""
    corners = _hertz(np.linspace(0, _mel(rate / 2), bands + 2))
    frequencies = np.arange(points // 2 + 1) * rate / points
    low, middle, high = (corners[start : start + bands, None] for start in range(3))
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    hertz: NDArray[np.float64] = 700 * (10 ** (mel / 2595) - 1)
    return hertz
