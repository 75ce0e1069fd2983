"""Decode WAV, FLAC, Ogg, Opus and MP3 files to one channel of int16 samples at one sampling rate.

A file that cannot be decoded, or that holds nothing to learn from, yields the reason instead of samples.
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.builtin import needed
from likewise.data.cache import Plan, cache_key, cached_number, fetch
from likewise.data.clips import check_growth, check_rate, resampled, sixteen_bits, unusable
from likewise.data.folder import File
from likewise.data.images import PASSING, PEEKED, extension
from likewise.data.items import DataError, Skipped
from likewise.data.labels import from_paths
from likewise.data.sequences import CHANNEL, Sequences, make_sequences

DECODER = 2  # increase it when the same file decodes to other samples, so that old cache entries are not used
EXTENSIONS = ("wav", "flac", "ogg", "opus", "mp3")
RATE, LOW_RATE = 16_000, 8_000  # default samples per second; the lower one suits telephone speech
BLOCK = 1 << 20  # frames read at once
CHUNK = 16  # files decoded by one task
LARGE = 32 << 20  # bytes; larger files are decoded one at a time, so that a few long ones do not fill the memory
UNKNOWN_FRAMES = 1 << 62  # libsndfile reports at least so many frames for a FLAC file that was written to a pipe
UNKNOWN_BYTES = 0x7F00_0000  # a WAV file that was written to a pipe declares at least so many; it is read to its end
SLACK = 64  # some programs declare a WAV file up to so many bytes too long
MIN_SHARE_OF_MP3 = 0.9  # of an MP3 file's frames: their number is an estimate where the header lacks it
MAX_FRAMES_PER_BYTE = 10_000  # frames per byte, at most: silence in FLAC takes one byte for about 4,000 frames


class NoRoomError(DataError):
    """A recording does not fit into memory right now. The file is fine, so it must not be cached as damaged."""


def audio_of(files: Sequence[File]) -> tuple[File, ...]:
    """Return those of the files that are audio files by their extension."""
    return tuple(file for file in files if "." in file.path and extension(file.path) in EXTENSIONS)


def from_folder(
    root: Path,
    files: Sequence[File],
    skipped: tuple[Skipped, ...],
    name: str,
    rate: int | None,
    place: Path,
    progress: bool,
) -> Sequences:
    """Decode audio files through the cache, and return them as sequences labelled by their class folders."""
    soundfile = needed("soundfile", "audio", "audio")
    if rate is not None:
        check_rate(rate)
    unsupported = _unsupported(soundfile, files)
    left_out = {skip.path for skip in unsupported}
    files = [file for file in files if file.path not in left_out]
    if not files:
        raise DataError(f"no readable recording in {name}: {unsupported[0].path}: {unsupported[0].reason}")
    kind = f"audio {DECODER} {soundfile.__libsndfile_version__}"
    rate = rate or cached_number(place, cache_key(kind, root, files), lambda: usual_rate(soundfile, root, files))

    def plan() -> Plan:
        paths = tuple(file.path for file in files)
        labels, classes, test = from_paths(paths)
        chunks = _decoding(soundfile, root, files, rate)
        return Plan(
            row=(1,),
            count=len(files),
            chunks=chunks,
            dtype=np.int16,
            what="recording",
            ragged=True,
            paths=paths,
            labels=labels,
            classes=classes,
            test=test,
            skipped=skipped,
        )

    stored = fetch(place, cache_key(kind, root, files, rate), plan, name, progress)
    assert stored.offsets is not None  # the plan is ragged
    return make_sequences(
        stored.array,
        stored.offsets,
        name,
        rate=rate,
        channels=CHANNEL,
        content=stored.content,
        labels=stored.labels,
        classes=stored.classes,
        test=stored.test,
        paths=stored.paths,
        skipped=(*stored.skipped, *unsupported),
    )


def _unsupported(soundfile: ModuleType, files: Sequence[File]) -> tuple[Skipped, ...]:
    """Return the files that the installed libsndfile is too old to read, with what to do about it."""
    supported = {
        "mp3": "MP3" in soundfile.available_formats(),
        "opus": "OPUS" in soundfile.available_subtypes("OGG"),
    }
    version = soundfile.__libsndfile_version__
    reason = f"libsndfile {version} does not read it: pip install -U soundfile"
    return tuple(
        Skipped(file.path, reason, f".{kind}")
        for file in files
        if not supported.get(kind := extension(file.path), True)
    )


def usual_rate(soundfile: ModuleType, root: Path, files: Sequence[File]) -> int:
    """Return `RATE`, or `LOW_RATE` if the median rate in the headers of up to `PEEKED` files is below `RATE`."""
    rates = []
    for row in sorted({round(row) for row in np.linspace(0, len(files) - 1, min(len(files), PEEKED))}):
        with contextlib.suppress(Exception):  # a damaged file is reported later, by the decoder
            rates.append(soundfile.info(os.fsencode(root / files[row].path)).samplerate)
    return LOW_RATE if rates and np.median(rates) < RATE else RATE


def _decoding(
    soundfile: ModuleType, root: Path, files: Sequence[File], rate: int
) -> Iterator[Callable[[], Iterable[NDArray[np.int16] | str]]]:
    """Yield tasks that decode all files in order, a chunk each: samples (t, 1) of a file, or why it has none."""
    chunk: list[Path] = []
    for file in files:
        if file.size >= LARGE or len(chunk) == CHUNK:
            yield partial(_decode_now, soundfile, chunk, rate)
            chunk = []
        if file.size >= LARGE:
            yield partial(_decode_lazily, soundfile, [root / file.path], rate)
        else:
            chunk.append(root / file.path)
    yield partial(_decode_now, soundfile, chunk, rate)


def _decode_lazily(soundfile: ModuleType, paths: list[Path], rate: int) -> Iterator[NDArray[np.int16] | str]:
    """Return a generator, so that a file is decoded only when the writing thread reaches it."""
    return (_samples_or_reason(soundfile, path, rate) for path in paths)


def _decode_now(soundfile: ModuleType, paths: list[Path], rate: int) -> list[NDArray[np.int16] | str]:
    return list(_decode_lazily(soundfile, paths, rate))


def _samples_or_reason(soundfile: ModuleType, path: Path, rate: int) -> NDArray[np.int16] | str:
    try:
        return decode(soundfile, path, rate)[:, None]
    except Exception as error:  # decoders raise almost any exception on a damaged file
        if isinstance(error, NoRoomError) or (isinstance(error, OSError) and error.errno in PASSING):
            raise
        reason = error.strerror if isinstance(error, OSError) else getattr(error, "error_string", None)
        return " ".join(str(reason or error).split())[:200] or type(error).__name__


def decode(soundfile: ModuleType, path: Path, rate: int) -> NDArray[np.int16]:
    """Decode a file to samples (t,): the mean of its channels, at this rate."""
    _check_whole(path)
    with soundfile.SoundFile(os.fsencode(path)) as file:
        file_rate = file.samplerate
        if not 0 < file.frames < UNKNOWN_FRAMES:
            raise DataError("its header does not say how long it is" if file.frames else "empty")
        if file.frames > MAX_FRAMES_PER_BYTE * path.stat().st_size:
            raise DataError(f"its header declares {file.frames:,} frames, more than the file can hold")
        check_rate(file_rate)
        try:
            check_growth(file.frames, file_rate, rate, str(path))
        except DataError as error:
            raise NoRoomError(str(error)) from None
        mono = _mono(file)
    if not np.isfinite(mono.min()) or not np.isfinite(mono.max()):
        raise DataError("holds NaN" if np.isnan(mono).any() else "holds infinity")
    clip = sixteen_bits(resampled(mono, file_rate, rate))
    if reason := unusable(clip, rate):
        raise DataError(reason)
    return clip


def _mono(file: Any) -> NDArray[np.float32]:
    """Return the mean of the channels, (t,), read in blocks so that all channels are never in memory at once."""
    mono = np.empty(file.frames, dtype=np.float32)
    end = 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):  # t, c
        np.mean(block, axis=1, out=mono[end : end + len(block)])
        end += len(block)
    expected = MIN_SHARE_OF_MP3 * len(mono) if file.format == "MP3" else len(mono)
    if end < expected:
        raise DataError(f"cut off after {end} of {len(mono)} frames")
    return mono[:end]


def _check_whole(path: Path) -> None:
    """Raise an error if a WAV file is shorter than its header declares: libsndfile reads such a file silently."""
    with path.open("rb") as file:
        head = file.read(8)
        size = file.seek(0, os.SEEK_END)
    if not size:
        raise DataError("empty")
    if head[:4] == b"RIFF" and len(head) == 8:
        (declared,) = struct.unpack("<I", head[4:])
        if size + SLACK < declared + 8 and declared < UNKNOWN_BYTES:
            raise DataError(f"cut off after {size} of {declared + 8} bytes")
