"""Small sequences that can be learned: waves of a few kinds, of random phase, labelled by their kind."""

import numpy as np


def series(n=48, t=32, *, kinds=3, channels=2, lengths=None, seed=0):
    """(n, t, channels) with a frequency for each kind; NaN behind the end where `lengths` are given."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % kinds
    cycles = np.array([0.03, 0.08, 0.13, 0.18])[kind]  # a sample
    turn = rng.uniform(0, 1, (n, 1, channels))
    x = np.sin(2 * np.pi * (cycles[:, None, None] * np.arange(t)[:, None] + turn)) + rng.normal(
        0, 0.05, (n, t, channels)
    )
    if lengths is not None:
        x[np.arange(t) >= np.asarray(lengths)[:, None]] = np.nan
    return {"x": x.astype(np.float32), "y": kind}


def clips(n=24, *, rate=8000, shortest=0.1, longest=0.2, seed=0):
    """Tones of three pitches by three players, who differ in loudness: audio, offsets, rate, y and player."""
    rng = np.random.default_rng(seed)
    pitch, player = np.arange(n) % 3, np.arange(n) // 3 % 3
    sounds = []
    for p, who in zip(pitch, player, strict=True):
        time = np.arange(rng.integers(int(shortest * rate), int(longest * rate))) / rate
        tone = np.sin(2 * np.pi * ((250, 600, 1300)[p] * time + rng.uniform()))
        sounds.append((0.2, 0.5, 0.9)[who] * tone + rng.normal(0, 0.01, len(time)))
    offsets = np.concatenate([[0], np.cumsum([len(sound) for sound in sounds])])
    audio = np.concatenate(sounds).astype(np.float32)
    return {"audio": audio, "offsets": offsets, "rate": rate, "y": pitch, "player": player}
