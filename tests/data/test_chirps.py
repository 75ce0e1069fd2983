"""`chirps`: made-up sounds, the same for everyone."""

import numpy as np

from likewise import data
from likewise.data.chirps import KINDS, RATE
from likewise.data.spectra import log_mel


def test_they_are_six_hundred_sounds_of_six_kinds():
    items = data.open("chirps")
    assert (items.kind, len(items), items.rate, items.classes) == ("sequence", 600, RATE, KINDS)
    assert np.bincount(items.labels).tolist() == [100] * 6
    assert 0.3 * RATE - 1 <= items.lengths.min() < items.lengths.max() <= 0.6 * RATE


def test_they_are_the_same_each_time():
    assert data.open("chirps").fingerprint == data.open("chirps").fingerprint


def test_rising_ones_rise_and_falling_ones_fall():
    items = data.open("chirps")

    def change_of_pitch(item):
        loudest = log_mel(items[np.array([item])][0, :, 0], RATE).argmax(axis=1)
        tenth = len(loudest) // 10
        return np.median(loudest[-3 * tenth : -tenth]) - np.median(loudest[tenth : 3 * tenth])

    by_kind = {kind: np.flatnonzero(items.labels == label)[:20] for label, kind in enumerate(KINDS)}
    changes = {kind: np.median([change_of_pitch(i) for i in ids]) for kind, ids in by_kind.items()}
    assert changes["rising"] > 2
    assert changes["falling"] < -2
    assert abs(changes["steady"]) <= 1
