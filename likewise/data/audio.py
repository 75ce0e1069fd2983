"""Audio files: from WAV, FLAC, Ogg, Opus and MP3 to int16 of one channel at one rate.

A file that cannot be decoded, or that holds nothing to learn from, gives a reason instead of samples.
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
from likewise.data.cache import Plan, cache_key, fetch, noted
from likewise.data.clips import check_growth, check_rate, resampled, sixteen_bits, unusable
from likewise.data.folder import File
from likewise.data.images import PASSING, PEEKED, extension
from likewise.data.items import DataError, Skipped
from likewise.data.labels import from_paths
from likewise.data.sequences import CHANNEL, Sequences, make_sequences

DECODER = 2  # raise it when the same file would give other samples: old caches are then left alone
EXTENSIONS = ("wav", "flac", "ogg", "opus", "mp3")
RATE, LOW_RATE = 16_000, 8_000  # samples a second where none is asked for, the latter for telephone speech
BLOCK = 1 << 20  # frames read at once
CHUNK = 16  # files decoded by one task
LARGE = 32 << 20  # bytes of a file that is decoded alone, so that a few long recordings do not fill the memory
UNKNOWN = 1 << 62  # frames: what libsndfile says of a FLAC that was written to a pipe; it cannot seek in it
UNTOLD = 0x7F00_0000  # bytes: what the header of such a WAV says, or more; it reads to its end
SLACK = 64  # bytes by which programs count a WAV too long
ESTIMATED = 0.9  # share of an MP3's frames that must be there: they are guessed where its header does not count them
DENSEST = 10_000  # frames that a byte can stand for, at most: silence in FLAC takes one for 4,000


class NoRoomError(DataError):
    """A recording does not fit into memory now. That is no fault of the file, so it is not remembered as one."""


def audio_of(files: Sequence[File]) -> tuple[File, ...]:
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
    """Audio files as sequences, labelled by their class folders, through the cache."""
    soundfile = needed("soundfile", "audio", "audio")
    if rate is not None:
        check_rate(rate)
    unread = _unread(soundfile, files)
    left_out = {skip.path for skip in unread}
    files = [file for file in files if file.path not in left_out]
    if not files:
        raise DataError(f"no readable recording in {name}: {unread[0].path}: {unread[0].reason}")
    kind = f"audio {DECODER} {soundfile.__libsndfile_version__}"
    rate = rate or noted(place, cache_key(kind, root, files), lambda: usual_rate(soundfile, root, files))

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
        skipped=(*stored.skipped, *unread),
    )


def _unread(soundfile: ModuleType, files: Sequence[File]) -> tuple[Skipped, ...]:
    """The files of kinds that this libsndfile is too old for, with what to do about it."""
    known = {
        "mp3": "MP3" in soundfile.available_formats(),
        "opus": "OPUS" in soundfile.available_subtypes("OGG"),
    }
    version = soundfile.__libsndfile_version__
    reason = f"libsndfile {version} does not read it: pip install -U soundfile"
    return tuple(
        Skipped(file.path, reason, f".{kind}") for file in files if not known.get(kind := extension(file.path), True)
    )


def usual_rate(soundfile: ModuleType, root: Path, files: Sequence[File]) -> int:
    """`RATE`, or `LOW_RATE` where the median of up to `PEEKED` files, by their headers, has less."""
    rates = []
    for row in sorted({round(row) for row in np.linspace(0, len(files) - 1, min(len(files), PEEKED))}):
        with contextlib.suppress(Exception):  # the decoder will say what is wrong with it
            rates.append(soundfile.info(os.fsencode(root / files[row].path)).samplerate)
    return LOW_RATE if rates and np.median(rates) < RATE else RATE


def _decoding(
    soundfile: ModuleType, root: Path, files: Sequence[File], rate: int
) -> Iterator[Callable[[], Iterable[NDArray[np.int16] | str]]]:
    """Tasks that decode all files in order, each one a chunk: (t, 1) samples, or the reason why there are none."""
    chunk: list[Path] = []
    for file in files:
        if file.size >= LARGE or len(chunk) == CHUNK:
            yield partial(_all, soundfile, chunk, rate)
            chunk = []
        if file.size >= LARGE:
            yield partial(_one_by_one, soundfile, [root / file.path], rate)
        else:
            chunk.append(root / file.path)
    yield partial(_all, soundfile, chunk, rate)


def _one_by_one(soundfile: ModuleType, paths: list[Path], rate: int) -> Iterator[NDArray[np.int16] | str]:
    """Decoded only when it is taken: in the thread that writes, after all that precede."""
    return (_samples_or_reason(soundfile, path, rate) for path in paths)


def _all(soundfile: ModuleType, paths: list[Path], rate: int) -> list[NDArray[np.int16] | str]:
    return list(_one_by_one(soundfile, paths, rate))


def _samples_or_reason(soundfile: ModuleType, path: Path, rate: int) -> NDArray[np.int16] | str:
    try:
        return decode(soundfile, path, rate)[:, None]
    except Exception as error:  # a damaged file may raise nearly anything
        if isinstance(error, NoRoomError) or (isinstance(error, OSError) and error.errno in PASSING):
            raise
        said = error.strerror if isinstance(error, OSError) else getattr(error, "error_string", None)
        return " ".join(str(said or error).split())[:200] or type(error).__name__


def decode(soundfile: ModuleType, path: Path, rate: int) -> NDArray[np.int16]:
    """(t,): the mean of the channels at this rate."""
    _whole(path)
    with soundfile.SoundFile(os.fsencode(path)) as file:
        found = file.samplerate
        if not 0 < file.frames < UNKNOWN:
            raise DataError("its header does not say how long it is" if file.frames else "empty")
        if file.frames > DENSEST * path.stat().st_size:
            raise DataError(f"its header promises {file.frames:,} frames, more than the file can hold")
        check_rate(found)
        try:
            check_growth(file.frames, found, rate, str(path))
        except DataError as error:
            raise NoRoomError(str(error)) from None
        mono = _mono(file)
    if not np.isfinite(mono.min()) or not np.isfinite(mono.max()):
        raise DataError("holds NaN" if np.isnan(mono).any() else "holds infinity")
    clip = sixteen_bits(resampled(mono, found, rate))
    if reason := unusable(clip, rate):
        raise DataError(reason)
    return clip


def _mono(file: Any) -> NDArray[np.float32]:
    """(t,), read block by block: all channels are never in memory at once."""
    mono = np.empty(file.frames, dtype=np.float32)
    end = 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):  # t, c
        np.mean(block, axis=1, out=mono[end : end + len(block)])
        end += len(block)
    least = ESTIMATED * len(mono) if file.format == "MP3" else len(mono)
    if end < least:
        raise DataError(f"cut off after {end} of {len(mono)} frames")
    return mono[:end]


def _whole(path: Path) -> None:
    """A WAV that is cut off reads without complaint, so its header is asked how long it was meant to be."""
    with path.open("rb") as file:
        head = file.read(8)
        size = file.seek(0, os.SEEK_END)
    if not size:
        raise DataError("empty")
    if head[:4] == b"RIFF" and len(head) == 8:
        (meant,) = struct.unpack("<I", head[4:])
        if size + SLACK < meant + 8 and meant < UNTOLD:
            raise DataError(f"cut off after {size} of {meant + 8} bytes")
