"""`chirps`: made-up sounds of six kinds, to try sequences on with no data at hand.

The kind is in how a sound changes; pitch, loudness, length, timbre and noise say nothing of it.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from likewise.data.clips import CHANNEL
from likewise.data.items import Items
from likewise.data.sequences import make_sequences

KINDS = ("rising", "falling", "wobbling", "pulsed", "stepped", "steady")
RATE, COUNT = 8000, 600


def chirps() -> Items:
    """600 clips of 0.3 to 0.6 s at 8 kHz, int16."""
    clips, labels = _made()
    offsets = np.cumsum([0, *map(len, clips)])
    audio = np.concatenate(clips)[:, None]
    return make_sequences(audio, offsets, "chirps", rate=RATE, channels=CHANNEL, labels=labels, classes=KINDS)


@functools.cache
def _made() -> tuple[tuple[NDArray[np.int16], ...], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(COUNT) % len(KINDS)).astype(np.int64)
    return tuple(_sound(KINDS[label], rng) for label in labels), labels


def _sound(kind: str, rng: np.random.Generator) -> NDArray[np.int16]:
    """(t,): a tone and its overtones, its pitch in octaves and its loudness moved as the kind says."""
    t = np.arange(int(RATE * rng.uniform(0.3, 0.6))) / RATE
    place = t / t[-1]
    octaves = {
        "rising": place,
        "falling": 1 - place,
        "wobbling": 0.3 * np.sin(2 * np.pi * rng.uniform(8, 14) * t),
        "stepped": np.floor(place * 4) % 2 * 0.6,
    }.get(kind, np.zeros_like(t))
    loudness = 0.5 + 0.5 * np.sign(np.sin(2 * np.pi * rng.uniform(12, 20) * t)) if kind == "pulsed" else np.ones_like(t)
    pitch = rng.uniform(200, 700) * 2**octaves  # hertz
    phase = 2 * np.pi * np.cumsum(pitch) / RATE + rng.uniform(0, 2 * np.pi)
    tone = sum(rng.uniform(0.2, 1) / overtone * np.sin(overtone * phase) for overtone in (1, 2, 3))
    ends = np.minimum(1, np.minimum(t, t[::-1]) / 0.02)  # no clicks
    sound = tone * loudness * ends + rng.uniform(0.01, 0.05) * rng.standard_normal(len(t))
    return np.clip(sound * rng.uniform(2000, 9000), -32767, 32767).astype(np.int16)
