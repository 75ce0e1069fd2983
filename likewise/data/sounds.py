"""Generate `sounds`: clips of six kinds of sound, to try sequences without data of your own.

The label is the kind, which differs in texture; pitch, loudness, length and noise vary at random.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import Items
from likewise.data.sequences import CHANNEL, make_sequences

RATE, COUNT = 8000, 600

Wave = NDArray[np.float64]  # (t,)


def _whistle(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    return np.sin(phase)


def _buzz(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    return np.asarray(sum(np.sin(overtone * phase) / overtone for overtone in range(1, 6)))


def _hiss(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    return np.sin(phase) * rng.standard_normal(len(t))


def _warble(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    wobble: Wave = 4 * np.sin(2 * np.pi * rng.uniform(15, 25) * t)
    return np.asarray(np.sin(phase + wobble))


def _pulses(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    return np.where(np.sin(2 * np.pi * rng.uniform(15, 25) * t) > 0, np.sin(phase), 0)


def _bell(phase: Wave, t: Wave, rng: np.random.Generator) -> Wave:
    return np.asarray(sum(np.sin(ratio * phase) for ratio in (1, 2.76, 5.4))) * np.exp(-6 * t)


KINDS: dict[str, Callable[[Wave, Wave, np.random.Generator], Wave]] = {
    "whistle": _whistle,
    "buzz": _buzz,
    "hiss": _hiss,
    "warble": _warble,
    "pulses": _pulses,
    "bell": _bell,
}


def sounds() -> Items:
    """Return 600 clips of 0.3 to 0.6 s at 8 kHz, int16; they are always the same."""
    clips, labels = _generate()
    offsets = np.cumsum([0, *map(len, clips)])
    audio = np.concatenate(clips)[:, None]
    return make_sequences(audio, offsets, "sounds", rate=RATE, channels=CHANNEL, labels=labels, classes=tuple(KINDS))


@functools.cache
def _generate() -> tuple[tuple[NDArray[np.int16], ...], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(COUNT) % len(KINDS)).astype(np.int64)
    return tuple(_sound(list(KINDS)[label], rng) for label in labels), labels


def _sound(kind: str, rng: np.random.Generator) -> NDArray[np.int16]:
    t = np.arange(int(RATE * rng.uniform(0.3, 0.6))) / RATE
    pitch = rng.uniform(250, 600) * 2 ** (rng.uniform(-0.3, 0.3) * t / t[-1])  # hertz, gliding a little
    phase = 2 * np.pi * np.cumsum(pitch) / RATE + rng.uniform(0, 2 * np.pi)
    wave = KINDS[kind](phase, t, rng)
    ends = np.minimum(1, np.minimum(t, t[::-1]) / 0.02)  # fade in and out, to avoid clicks
    noisy = wave / wave.std() * ends + rng.uniform(0.02, 0.1) * rng.standard_normal(len(t))
    sound: NDArray[np.int16] = np.clip(noisy * rng.uniform(1500, 6000), -32767, 32767).astype(np.int16)
    return sound
