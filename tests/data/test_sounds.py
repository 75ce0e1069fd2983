"""`sounds`: made up, and the same for everyone."""

import numpy as np
import pytest

from likewise import data
from likewise.data.sounds import KINDS, RATE
from likewise.data.spectra import log_mel


@pytest.fixture(scope="module")
def items():
    return data.open("sounds")


def test_they_are_six_hundred_clips_of_six_kinds(items):
    assert (items.kind, len(items), items.rate, items.classes) == ("sequence", 600, RATE, tuple(KINDS))
    assert np.bincount(items.labels).tolist() == [100] * 6
    assert 0.3 * RATE - 1 <= items.lengths.min() < items.lengths.max() <= 0.6 * RATE
    assert not items.skipped


def test_they_are_the_same_each_time(items):
    assert data.open("sounds").fingerprint == items.fingerprint


def test_a_kind_sounds_as_it_is_called(items):
    """A buzz has more above its pitch than a whistle, a bell fades, and pulses come and go."""

    def spectra(kind):
        ids = np.flatnonzero(items.labels == items.classes.index(kind))[:20]
        return [log_mel(items[np.array([i])][0, :, 0], RATE) for i in ids]

    def high(kind):
        return np.mean([mel[:, 25:].mean() - mel.max() for mel in spectra(kind)])

    def fading(kind):
        return np.mean([mel[4:10].max() - mel[-10:-4].max() for mel in spectra(kind)])

    def unrest(kind):
        return np.mean([mel.max(axis=1)[4:-4].std() for mel in spectra(kind)])

    assert high("buzz") > high("whistle")
    assert fading("bell") > fading("whistle") + 1
    assert unrest("pulses") > 2 * unrest("whistle")
