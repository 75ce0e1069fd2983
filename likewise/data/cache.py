"""Cache decoded images and recordings on disk, so that they are decoded once and memory-mapped afterwards.

An entry consists of `<key>.npy`, the rows, and `<key>.json`, everything else. An image is one row; a recording has one
row per sample, and the JSON file then holds the offsets. The JSON file is renamed into place last, so an entry is
complete or absent; its modification time is the time of its last use. A process that writes files of a key holds
`<key>.lock`, so a temporary file without a held lock was left by a process that was killed. The key is a hash of the
source files' paths, sizes and times, so a changed file gets another key.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import platformdirs
from filelock import FileLock
from numpy.typing import NDArray

from likewise.data.folder import File
from likewise.data.images import DECODER, quiet
from likewise.data.items import Captions, DataError, Skipped, start_digest
from likewise.data.mapped import map_array
from likewise.data.work import in_order, with_progress_bar
from likewise.memory import amount

HEADER = 128  # bytes before the first row
OURS = re.compile(r"(?P<key>[0-9a-f]{40})\.(?P<kind>json|npy|note|lock|(.+\.)?tmp)")  # other files are never touched

Chunk = Callable[[], Iterable[NDArray[Any] | str]]


@dataclass(frozen=True)
class Plan:
    """What to decode: chunks of items in order, with the reason in place of an item that cannot be decoded."""

    row: tuple[int, ...]  # images: c, h, w; recordings: c
    count: int
    chunks: Iterable[Chunk]
    dtype: type[np.generic] = np.uint8
    what: str = "image"  # the word for an item in error messages
    ragged: bool = False  # an item has shape (t, *row), where t varies, instead of being one row
    paths: tuple[str, ...] | None = None
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    test: NDArray[np.bool_] | None = None
    groups: NDArray[np.int64] | None = None
    captions: Captions | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    # For each image decoded so far, whether it is not square; decoding appends to it.
    oblong: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Stored:
    """An entry as it is read from the cache; it holds only the items that could be decoded."""

    array: NDArray[Any]
    content: str
    offsets: NDArray[np.int64] | None  # (n + 1,), if the items are ragged
    paths: tuple[str, ...] | None
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    test: NDArray[np.bool_] | None
    groups: NDArray[np.int64] | None
    captions: Captions | None
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    oblong: int  # how many images were not square


def cache_folder(given: str | os.PathLike[str] | None) -> Path:
    """Return the cache folder: the given one, else the one in `LIKEWISE_CACHE`, else the user's cache folder."""
    return Path(given or os.environ.get("LIKEWISE_CACHE") or platformdirs.user_cache_dir("likewise")).expanduser()


def cache_key(kind: str, root: Path, files: Iterable[File], size: int | None = None) -> str:
    """Return a hash of the files' paths, sizes and times, the requested size and the decoder's version."""
    digest = hashlib.sha256(repr((kind, DECODER, PIL.__version__, size)).encode())
    digest.update(os.fsencode(root.resolve()))
    for file in files:
        digest.update(os.fsencode(file.path) + f"\0{file.size}\0{file.time}\0".encode())
    return digest.hexdigest()[:40]


def cached_number(place: Path, key: str, compute: Callable[[], int]) -> int:
    """Return the number cached under this key; if there is none, compute it and cache it."""
    path = place / f"{key}.note"
    with contextlib.suppress(OSError, ValueError):
        number = int(path.read_text())
        _update_last_use(path)
        return number
    number = compute()
    with _writing(place):
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_of(place, key)):
            _replace(path, str(number).encode())
    return number


def fetch(place: Path, key: str, plan: Callable[[], Plan], name: str, progress: bool) -> Stored:
    """Return the entry of this key, after decoding `plan()` into the cache if there is none.

    If another process is writing the same entry, wait for it.
    """
    remove_leftovers(place)
    if (stored := _read(place, key)) is not None:
        return stored
    with _writing(place):
        place.mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_of(place, key))
        lock.acquire()
    try:
        if (stored := _read(place, key)) is None:
            _write(place, key, plan(), name, progress)
            stored = _read(place, key)
    finally:
        lock.release()
    if stored is None:
        raise DataError(f"cannot read back the cache in {place}: remove it, or set LIKEWISE_CACHE to another folder")
    return stored


def remove_leftovers(place: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for temporary in place.glob("*.tmp"):
        if ours := OURS.fullmatch(temporary.name):
            # If another process holds the lock, FileLock raises Timeout, which is an OSError.
            with contextlib.suppress(OSError), FileLock(lock_of(place, ours["key"]), timeout=0):
                temporary.unlink(missing_ok=True)


def lock_of(place: Path, key: str) -> Path:
    """Return the lock file that a process holds while it writes files of this key."""
    return place / f"{key}.lock"


def _update_last_use(path: Path) -> None:
    with contextlib.suppress(OSError):  # the cache may be read-only, such as another user's
        os.utime(path)


def _read(place: Path, key: str) -> Stored | None:
    try:
        record = json.loads((place / f"{key}.json").read_bytes())
        rows = place / f"{key}.npy"
        if rows.stat().st_size != record["bytes"]:
            return None
        array = map_array(rows)
        _update_last_use(place / f"{key}.json")
        # entries written by older versions lack these
        captions, groups, notes = record.get("captions"), record.get("groups"), record.get("notes", ())
        return Stored(
            array=array,
            content=record["content"],
            offsets=None if record.get("offsets") is None else np.array(record["offsets"], dtype=np.int64),
            paths=None if record["paths"] is None else tuple(record["paths"]),
            labels=None if record["labels"] is None else np.array(record["labels"], dtype=np.int64),
            classes=tuple(record["classes"]),
            test=None if record["test"] is None else np.array(record["test"], dtype=np.bool_),
            groups=None if groups is None else np.array(groups, dtype=np.int64),
            captions=None if captions is None else tuple(map(tuple, captions)),
            skipped=tuple(Skipped(*pair) for pair in record["skipped"]),
            notes=tuple(notes),
            oblong=record["oblong"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(place: Path, key: str, plan: Plan, name: str, progress: bool) -> None:
    # This process holds the lock, so temporary files were left by one that was killed.
    for temporary in place.glob(f"{key}.*.tmp"):
        temporary.unlink(missing_ok=True)
    if not plan.ragged:
        _check_room(place, plan.count * math.prod(plan.row) * np.dtype(plan.dtype).itemsize, plan, name)
    writer = _Writer(place, key, plan.row, np.dtype(plan.dtype))
    decoded: list[int] = []
    offsets = [0]
    skipped = list(plan.skipped)
    paths = plan.paths
    try:
        with quiet(), contextlib.closing(in_order(plan.chunks)) as chunks:
            index = 0
            for chunk in with_progress_bar((list(chunk) for chunk in chunks), plan.count, f"reading {name}", progress):
                for item in chunk:
                    if isinstance(item, str):
                        skipped.append(Skipped(paths[index] if paths else str(index), item))
                    else:
                        writer.append(item if plan.ragged else item[None])
                        decoded.append(index)
                        offsets.append(writer.rows)
                    index += 1
        if not decoded:
            raise DataError(f"no readable {plan.what} in {name}: {skipped[0].path}: {skipped[0].reason}")
        record = {
            "source": os.path.abspath(os.path.expanduser(name)),
            "offsets": offsets if plan.ragged else None,
            "paths": None if paths is None else [paths[row] for row in decoded],
            "labels": None if plan.labels is None else plan.labels[decoded].tolist(),
            "classes": plan.classes,
            "test": None if plan.test is None else plan.test[decoded].tolist(),
            "groups": None if plan.groups is None else plan.groups[decoded].tolist(),
            "captions": None if plan.captions is None else [plan.captions[row] for row in decoded],
            "skipped": [(skip.path, skip.reason) for skip in skipped],
            "notes": plan.notes,
            "oblong": sum(plan.oblong),
        }
        writer.finish(record)
    finally:
        writer.discard()


def _check_room(place: Path, needed: int, plan: Plan, name: str) -> None:
    """Raise an error before decoding if the disk has too little room for the result."""
    free = shutil.disk_usage(place).free
    if needed > free:
        shape = " × ".join(f"{side:,}" for side in plan.row)
        raise DataError(
            f"the cache in {place} must have room for {plan.count:,} {plan.what}s of {shape} decoded from {name}, "
            f"{amount(needed)}, got {amount(free)} free; set a smaller data.size or another folder in LIKEWISE_CACHE"
        )


@dataclass
class _Writer:
    """Append rows to a temporary file, which `finish` completes with its JSON file and renames."""

    place: Path
    key: str
    row: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: int = 0

    file: Any = field(init=False)
    digest: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.place / f"{self.key}.{os.getpid()}.tmp"
        self.digest = start_digest(self.row)
        with _writing(self.place):
            self.file = self.path.open("wb")
            self.file.write(bytes(HEADER))

    def append(self, rows: NDArray[Any]) -> None:
        """Append rows (m, *row)."""
        if rows.shape[1:] != self.row or rows.dtype != self.dtype:
            raise AssertionError(f"rows must be {self.row} of {self.dtype}, got {rows.shape[1:]} of {rows.dtype}")
        data = np.ascontiguousarray(rows).data
        with _writing(self.place):
            self.file.write(data)
        self.digest.update(data)
        self.rows += len(rows)

    def finish(self, record: dict[str, Any]) -> None:
        with _writing(self.place):
            size = self.file.tell()
            self.file.seek(0)
            self.file.write(_header((self.rows, *self.row), self.dtype))
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.path.replace(self.place / f"{self.key}.npy")
            record = {"bytes": size, "content": self.digest.hexdigest(), **record}
            _replace(self.place / f"{self.key}.json", json.dumps(record).encode())

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # closing flushes the buffer, which fails on a full disk
            self.file.close()
        self.path.unlink(missing_ok=True)


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return an .npy header of fixed length, so that it can be written last, when the number of rows is known."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape}).ljust(HEADER - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _replace(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that it is never seen half written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Turn errors of the file system into one sentence, with the same errno."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        explained = OSError(f"cannot write the cache in {place}: {reason}; set LIKEWISE_CACHE to another folder")
        explained.errno = error.errno
        raise explained from error
