"""Which frames of sequences are looked at, and what they are compared with without learning."""

import numpy as np
import torch

from likewise import data, modalities
from likewise.data.spectra import mfcc
from likewise.modalities.modality import Frames
from tests.waves import clips, series

LENGTHS = np.arange(60) % 12 + 24


def test_at_most_so_many_frames_are_looked_at_evenly_from_first_to_last():
    items = data.open(series(60, t=40, lengths=LENGTHS))
    ids = np.array([5, 3, 50])
    every = Frames.of(items.main, ids, hop=4, most=1000)
    assert np.bincount(every.places).tolist() == (LENGTHS[ids] // 4).tolist()
    assert every.starts.tolist() == [4 * i for length in LENGTHS[ids] for i in range(length // 4)]
    some = Frames.of(items.main, ids, hop=4, most=5)
    assert len(some.places) == 5
    assert (some.places[0], some.starts[0]) == (0, 0)
    assert (some.places[-1], some.starts[-1]) == (2, every.starts[-1])
    short = Frames.of(items.main, ids, hop=30, most=1000)
    assert np.bincount(short.places).tolist() == [1, 1, 1], "what is shorter than a frame has one all the same"


def test_what_frames_are_compared_with_is_what_lies_at_them():
    items = data.open(series(60, t=40, lengths=LENGTHS))
    ids = np.array([5, 3])
    frames = Frames.of(items.main, ids, hop=4, most=1000)
    found = modalities.of(items.main).baseline_of_frames(items.main, ids, frames, 4)
    row = 7 + 2  # the third frame of the second sequence, after the 29 samples of the first
    assert found[row].tolist() == items.array[items.offsets[3] + 8 : items.offsets[3] + 12].flatten().tolist()
    sounds = data.open(clips(6))
    frames = Frames.of(sounds.main, np.array([2]), hop=80, most=1000)
    cepstra = mfcc(sounds.main.whole(2)[:, 0], 8000)
    found = modalities.of(sounds.main).baseline_of_frames(sounds.main, np.array([2]), frames, 80)
    assert torch.equal(found[:3], torch.from_numpy(cepstra[:3])), "both go by 10 ms"
    assert torch.equal(found[-1], torch.from_numpy(cepstra[-1])), "the last window of a spectrum is the last"
