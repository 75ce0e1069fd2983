"""The log-mel front end: its energies beside NumPy's, what a frame may see, and what is saved of it."""

import math

import numpy as np
import pytest
import torch

from likewise import encoders
from likewise.data import spectra
from likewise.encoders.mel import BANDS, FLOOR, SCALE, LogMel


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_energies_are_those_of_numpy_with_windows_that_end_with_their_frame(rate, monkeypatch):
    monkeypatch.setattr(spectra, "FLOOR", FLOOR)
    mel, audio = LogMel(rate), noise(1, rate, 1)
    before = np.zeros(mel.window - mel.hop, dtype=np.float32)
    expected = spectra.log_mel(np.concatenate([before, audio[0, :, 0].numpy()]), rate)
    assert (mel.window, mel.hop) == (rate // 40, rate // 100)
    np.testing.assert_allclose(mel(audio)[0].numpy() * SCALE, expected, atol=1e-4)


def test_a_louder_recording_has_the_same_energies_plus_a_constant():
    mel, audio = LogMel(8_000), noise(2, 4_000, 1)
    torch.testing.assert_close(mel(10 * audio), mel(audio) + 2 * math.log(10) / SCALE, atol=1e-3, rtol=0)


def test_a_tone_is_loudest_in_the_band_that_holds_its_frequency():
    times = torch.arange(8_000) / 8_000
    for hertz in (300, 1_000, 2_500):
        bands = LogMel(8_000)(torch.sin(2 * math.pi * hertz * times)[None, :, None])[0, 50]
        filters = spectra.mel_bands(8_000, 512, BANDS)
        assert bands.argmax() == filters[:, round(hertz * 512 / 8_000)].argmax()


def test_silence_is_finite():
    assert LogMel(8_000)(torch.zeros(1, 800, 1)).isfinite().all()


def test_energies_are_computed_in_float32_under_autocast():
    mel, audio = LogMel(8_000), 1_000 * noise(1, 800, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mel(audio), LogMel(8_000)(audio))


@pytest.mark.parametrize("name", ["mel_8k", "mel_16k"])
def test_no_frame_sees_what_comes_after_it(name):
    encoder = encoders.build(name, channels=1, samples=1).eval()
    before = noise(2, 6 * encoder.hop + 3, 1)
    for i in range(6):
        after = before.clone()
        after[:, (i + 1) * encoder.hop :] = noise(*after[:, (i + 1) * encoder.hop :].shape, seed=i + 1)
        old, new = encoder.frames(before), encoder.frames(after)
        torch.testing.assert_close(old[:, : i + 1], new[:, : i + 1])
        assert i == 5 or (old[:, i + 1 :] != new[:, i + 1 :]).any(dim=(0, 2)).all()


def test_two_channels_have_their_own_energies():
    encoder = encoders.build("mel_8k", channels=2, samples=1).eval()
    audio = noise(1, 800, 2)
    changed = audio.clone()
    changed[:, :, 1] = 0
    assert not torch.allclose(encoder(audio), encoder(changed))
    mel = LogMel(8_000)
    torch.testing.assert_close(mel(audio)[:, :, :BANDS], mel(audio[:, :, :1]))


def test_fixed_numbers_are_not_part_of_the_weights():
    names = encoders.build("mel_8k", channels=1, samples=1).state_dict()
    assert not any("mel" in name for name in names)
