"""Turn audio clips, stored one after the other in an array, into sequences at the requested sampling rate."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.items import ROWS, DataError
from likewise.data.memory import check_fits
from likewise.data.parts import SIXTEEN_BITS
from likewise.data.sequences import CHANNEL, Sequences, make_usable
from likewise.data.work import in_order

SHORTEST = 0.05  # seconds; as long as two windows of a spectrum
SILENT = 1e-4  # amplitude as a share of full scale; −80 dB
# Samples per second that can be resampled. A header that claims 1 would make a clip 16,000 times as long.
RATES = (1_000, 400_000)


def check_rate(rate: int, where: str = "") -> None:
    """Raise an error unless the rate is plausible for a recording."""
    if not RATES[0] <= rate <= RATES[1]:
        got = f"{rate:,}{where and f' in {where}'}"
        raise DataError(f"a recording must have {RATES[0]:,} to {RATES[1]:,} samples a second, got {got}")


def check_growth(samples: int, rate: int, wanted: int, name: str) -> None:
    """Raise an error unless so many samples fit into memory, with two copies at the wanted rate if that differs."""
    grown = 0 if rate == wanted else 2 * samples * wanted // rate
    check_fits(4 * (samples + grown), name)


def unusable(clip: NDArray[Any], rate: int) -> str:
    """Return why a clip (t,) cannot be used, or an empty string if it can."""
    if len(clip) < max(2, SHORTEST * rate):
        return f"shorter than {SHORTEST} s" if rate else "fewer than 2 samples"
    low, high = float(clip.min()), float(clip.max())
    if math.isnan(low):
        return "holds NaN"
    if math.isinf(low) or math.isinf(high):
        return "holds infinity"
    full = SIXTEEN_BITS if clip.dtype == np.int16 else 1.0
    return "silent" if high - low < 2 * SILENT * full else ""  # a constant offset is silence too


def resampled(clip: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Resample a clip (t,) from `rate` to `wanted` samples per second."""
    from scipy.signal import resample_poly  # slow to import

    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    if up == down:
        return clip
    converted: NDArray[np.float32] = resample_poly(clip, up, down, window=_low_pass(max(up, down)))
    return converted


@functools.lru_cache(16)
def _low_pass(factor: int) -> NDArray[np.float32]:
    """Return the filter of `resample_poly` in single precision, cached because that would compute it for every clip."""
    from scipy.signal import firwin

    taps: NDArray[np.float32] = firwin(20 * factor + 1, 1 / factor, window=("kaiser", 5.0)).astype(np.float32)
    return taps


def sixteen_bits(clip: NDArray[np.float32]) -> NDArray[np.int16]:
    """Convert samples in −1 to 1 to int16, clipping others; overwrites its argument."""
    clip *= SIXTEEN_BITS
    np.rint(clip, out=clip)
    return np.clip(clip, -SIXTEEN_BITS, SIXTEEN_BITS - 1, out=clip).astype(np.int16)


def from_clips(
    audio: NDArray[Any],
    offsets: NDArray[Any] | None,
    name: str,
    *,
    rate: int = 0,
    wanted: int | None = None,
    **columns: Any,
) -> Sequences:
    """Return the clips of `audio` (samples,), clip i from offsets[i] to offsets[i + 1], as sequences at `wanted`."""
    audio = audio[:, 0] if audio.ndim == 2 and audio.shape[1] == 1 else audio
    if audio.ndim != 1 or not (audio.dtype == np.int16 or audio.dtype.kind == "f"):
        raise DataError(
            f"audio must be int16 or floating, of shape (samples,), got {audio.shape} of {audio.dtype} in {name}"
        )
    bounds = _bounds(offsets, len(audio), name)
    if wanted and not rate:
        rate = wanted  # if the data do not state their rate, the requested one is taken to be it
    with np.errstate(over="ignore"):
        ready = audio if audio.dtype in (np.int16, np.float32) else audio.astype(np.float32)
    clips = [ready[start:stop] for start, stop in itertools.pairwise(bounds)]
    reasons = [unusable(clip, rate) for clip in clips]
    if wanted and wanted != rate:
        for checked_rate in (rate, wanted):
            check_rate(checked_rate, name)
        check_growth(len(ready), rate, wanted, name)
        clips = [clip for chunk in in_order(_resampling(clips, reasons, rate, wanted)) for clip in chunk]
        bounds = np.concatenate([[0], np.cumsum([len(clip) for clip in clips])]).astype(np.int64)
        ready = np.concatenate(clips)
        rate = wanted
    return make_usable(ready[:, None], bounds, name, reasons, "clip {}".format, rate=rate, channels=CHANNEL, **columns)


def _bounds(offsets: NDArray[Any] | None, samples: int, name: str) -> NDArray[np.int64]:
    if offsets is None:
        raise DataError(f"expected offsets beside audio in {name}, got none")
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise DataError(
            f"offsets must be whole numbers of shape (n + 1,), got {offsets.shape} of {offsets.dtype} in {name}"
        )
    bounds = offsets.astype(np.int64)
    steps = np.diff(bounds)
    if (steps < 0).any():
        row = int((steps < 0).argmax())
        raise DataError(f"offsets must increase, got {bounds[row]} before {bounds[row + 1]} in {name}")
    if len(bounds) and not 0 <= bounds[0] <= bounds[-1] <= samples:
        raise DataError(f"offsets must be within the audio, 0..{samples}, got {bounds[0]}..{bounds[-1]} in {name}")
    return bounds if len(bounds) else np.zeros(1, dtype=np.int64)


def _resampling(
    clips: list[NDArray[Any]], reasons: list[str], rate: int, wanted: int
) -> Iterator[Callable[[], list[NDArray[Any]]]]:
    """Yield tasks that resample `ROWS` clips each; a clip that is left out becomes empty."""
    pairs = list(zip(clips, reasons, strict=True))
    return (partial(_chunk, pairs[start : start + ROWS], rate, wanted) for start in range(0, len(pairs), ROWS))


def _chunk(pairs: list[tuple[NDArray[Any], str]], rate: int, wanted: int) -> list[NDArray[Any]]:
    return [clip[:0] if reason else _at_rate(clip, rate, wanted) for clip, reason in pairs]


def _at_rate(clip: NDArray[Any], rate: int, wanted: int) -> NDArray[Any]:
    if clip.dtype == np.int16:
        return sixteen_bits(resampled(clip.astype(np.float32) / np.float32(SIXTEEN_BITS), rate, wanted))
    return resampled(clip, rate, wanted)
