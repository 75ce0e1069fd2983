"""Spectra, against slow loops written from their formulas."""

import math

import numpy as np
import pytest

from likewise.data.spectra import log_mel, mfcc

AUDIO = (0.1 * np.random.default_rng(0).normal(size=900)).astype(np.float32)


def slow_log_mel(audio, rate, window, hop, bands):
    length, step = round(window * rate), round(hop * rate)
    audio = [*map(float, audio)] + [0.0] * max(0, length - len(audio))
    points = 2
    while points < 2 * length:
        points *= 2
    mel = lambda hertz: 2595 * math.log10(1 + hertz / 700)  # noqa: E731
    corners = [700 * (10 ** (mel(rate / 2) * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    rows = []
    for start in range(0, len(audio) - length + 1, step):
        frame = [audio[start + s] * (0.5 - 0.5 * math.cos(2 * math.pi * s / length)) for s in range(length)]
        energy = []
        for k in range(points // 2 + 1):
            re = sum(value * math.cos(2 * math.pi * k * s / points) for s, value in enumerate(frame))
            im = sum(value * math.sin(2 * math.pi * k * s / points) for s, value in enumerate(frame))
            energy.append(re * re + im * im)
        row = []
        for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
            total = 0.0
            for k, power in enumerate(energy):
                hertz = k * rate / points
                if low < hertz <= middle:
                    total += power * (hertz - low) / (middle - low)
                elif middle < hertz < high:
                    total += power * (high - hertz) / (high - middle)
            row.append(math.log(total + 1e-6))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(
    ("samples", "rate", "options", "frames"),
    [
        (500, 8000, {}, 4),
        (200, 8000, {}, 1),
        (31, 4000, {}, 1),  # shorter than a window
        (100, 1000, {"window": 0.016, "hop": 0.007, "bands": 5}, 13),
    ],
)
def test_log_mel(samples, rate, options, frames):
    found = log_mel(AUDIO[:samples], rate, **options)
    expected = slow_log_mel(AUDIO[:samples], rate, **{"window": 0.025, "hop": 0.010, "bands": 40, **options})
    assert found.dtype == np.float32
    assert found.shape == (frames, options.get("bands", 40))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_mfcc():
    mel = log_mel(AUDIO, 8000).astype(np.float64)
    found = mfcc(AUDIO, 8000, coefficients=6)
    assert found.shape == (len(mel), 6)
    for row, cepstrum in zip(mel, found, strict=True):
        for k in range(6):
            total = sum(value * math.cos(math.pi * k * (2 * b + 1) / 80) for b, value in enumerate(row))
            assert cepstrum[k] == pytest.approx(total * math.sqrt((1 if k == 0 else 2) / 40), abs=1e-3)
    assert mfcc(AUDIO, 8000).shape == (len(mel), 20)


def test_a_tone_is_in_its_band():
    rate = 16_000
    audio = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)
    middles = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42)[1:-1] / 2595) - 1)
    found = log_mel(audio, rate)
    assert found.shape == (98, 40)
    assert (found.argmax(axis=1) == np.abs(middles - 1000).argmin()).all()


def test_silence_is_the_floor():
    np.testing.assert_allclose(log_mel(np.zeros(4000, np.float32), 8000), math.log(1e-6), rtol=1e-6)


def test_every_band_hears_something():
    for rate in (8000, 16_000):
        assert (log_mel(AUDIO, rate).mean(axis=0) > -10).all()


@pytest.mark.parametrize("given", [(AUDIO[None], 8000), (AUDIO, 0), (AUDIO, 8000, 0), (AUDIO, 8000, 41)])
def test_what_is_wrong(given):
    with pytest.raises(ValueError, match=r"^(expected audio \(t,\)|coefficients must be 1 to 40)"):
        mfcc(*given)
