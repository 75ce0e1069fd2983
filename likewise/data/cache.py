"""Decoded images and recordings on disk: decoded once, mapped into memory ever after.

An entry is `<key>.npy`, the rows, and `<key>.json`, all the rest. An image is one row; a recording is as
many as it has samples, and the JSON then holds the offsets. The JSON comes last, by a rename, so an
entry is there whole or not at all; its time is that of its last use. Whoever writes files of a key holds
`<key>.lock`, so temporary files whose lock is free are those of a writer that was killed. The key is made of
the files' paths, sizes and times: a changed file is another key.
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
from likewise.data.work import counted, in_order
from likewise.memory import amount

HEADER = 128  # bytes before the first row
OURS = re.compile(r"(?P<key>[0-9a-f]{40})\.(?P<kind>json|npy|note|lock|(.+\.)?tmp)")  # nobody else's file is touched

Chunk = Callable[[], Iterable[NDArray[Any] | str]]


@dataclass(frozen=True)
class Plan:
    """What is to be decoded: chunks of items in order, a reason in place of an item that cannot be."""

    row: tuple[int, ...]  # images: c, h, w; recordings: c
    count: int
    chunks: Iterable[Chunk]
    dtype: type[np.generic] = np.uint8
    what: str = "image"  # in the error where not one can be read
    ragged: bool = False  # an item is (t, *row), t of its own, instead of one row
    paths: tuple[str, ...] | None = None
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    test: NDArray[np.bool_] | None = None
    captions: Captions | None = None
    skipped: tuple[Skipped, ...] = ()
    oblong: list[bool] = field(default_factory=list)  # of each decoded image, whether it is not square; grows with them


@dataclass(frozen=True)
class Stored:
    """An entry as it is read back: readable items only."""

    array: NDArray[Any]
    content: str
    offsets: NDArray[np.int64] | None  # (n + 1,) of ragged items
    paths: tuple[str, ...] | None
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    test: NDArray[np.bool_] | None
    captions: Captions | None
    skipped: tuple[Skipped, ...]
    oblong: int  # images that were not square


def cache_folder(given: str | os.PathLike[str] | None) -> Path:
    """Where the cache is: as given, as `LIKEWISE_CACHE` says, or where the system keeps caches."""
    return Path(given or os.environ.get("LIKEWISE_CACHE") or platformdirs.user_cache_dir("likewise")).expanduser()


def cache_key(kind: str, root: Path, files: Iterable[File], size: int | None = None) -> str:
    """One name for these files as they are now at this size, by this decoder."""
    found = hashlib.sha256(repr((kind, DECODER, PIL.__version__, size)).encode())
    found.update(os.fsencode(root.resolve()))
    for file in files:
        found.update(os.fsencode(file.path) + f"\0{file.size}\0{file.time}\0".encode())
    return found.hexdigest()[:40]


def noted(place: Path, key: str, find: Callable[[], int]) -> int:
    """Cache an expensive number on disk."""
    path = place / f"{key}.note"
    with contextlib.suppress(OSError, ValueError):
        number = int(path.read_text())
        _note_use(path)
        return number
    number = find()
    with _writing(place):
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_of(place, key)):
            _replace(path, str(number).encode())
    return number


def fetch(place: Path, key: str, plan: Callable[[], Plan], name: str, progress: bool) -> Stored:
    """The entry of this key, made by `plan` where there is none; a second opener waits for the first."""
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
        raise DataError(f"the cache in {place} cannot be read back: remove it, or set LIKEWISE_CACHE to another folder")
    return stored


def remove_leftovers(place: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for left in place.glob("*.tmp"):
        if ours := OURS.fullmatch(left.name):
            # If somebody holds the lock, that is a Timeout, which is an OSError too.
            with contextlib.suppress(OSError), FileLock(lock_of(place, ours["key"]), timeout=0):
                left.unlink(missing_ok=True)


def lock_of(place: Path, key: str) -> Path:
    """The lock file that the writer of an entry or note holds."""
    return place / f"{key}.lock"


def _note_use(path: Path) -> None:
    with contextlib.suppress(OSError):  # the cache may be somebody else's, and only to be read
        os.utime(path)


def _read(place: Path, key: str) -> Stored | None:
    try:
        record = json.loads((place / f"{key}.json").read_bytes())
        rows = place / f"{key}.npy"
        if rows.stat().st_size != record["bytes"]:
            return None
        array = map_array(rows)
        _note_use(place / f"{key}.json")
        captions = record.get("captions")  # not in entries from before there were any
        return Stored(
            array=array,
            content=record["content"],
            offsets=None if record.get("offsets") is None else np.array(record["offsets"], dtype=np.int64),
            paths=None if record["paths"] is None else tuple(record["paths"]),
            labels=None if record["labels"] is None else np.array(record["labels"], dtype=np.int64),
            classes=tuple(record["classes"]),
            test=None if record["test"] is None else np.array(record["test"], dtype=np.bool_),
            captions=None if captions is None else tuple(map(tuple, captions)),
            skipped=tuple(Skipped(*pair) for pair in record["skipped"]),
            oblong=record["oblong"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(place: Path, key: str, plan: Plan, name: str, progress: bool) -> None:
    for left in place.glob(f"{key}.*.tmp"):  # by a writer that was killed: the lock is ours
        left.unlink(missing_ok=True)
    if not plan.ragged:
        _check_room(place, plan.count * math.prod(plan.row) * np.dtype(plan.dtype).itemsize, plan, name)
    writer = _Writer(place, key, plan.row, np.dtype(plan.dtype))
    kept: list[int] = []
    offsets = [0]
    skipped = list(plan.skipped)
    paths = plan.paths
    try:
        with quiet(), contextlib.closing(in_order(plan.chunks)) as chunks:
            index = 0
            for chunk in counted((list(chunk) for chunk in chunks), plan.count, f"reading {name}", progress):
                for item in chunk:
                    if isinstance(item, str):
                        skipped.append(Skipped(paths[index] if paths else str(index), item))
                    else:
                        writer.append(item if plan.ragged else item[None])
                        kept.append(index)
                        offsets.append(writer.rows)
                    index += 1
        if not kept:
            raise DataError(f"no readable {plan.what} in {name}: {skipped[0].path}: {skipped[0].reason}")
        record = {
            "source": os.path.abspath(os.path.expanduser(name)),
            "offsets": offsets if plan.ragged else None,
            "paths": None if paths is None else [paths[row] for row in kept],
            "labels": None if plan.labels is None else plan.labels[kept].tolist(),
            "classes": plan.classes,
            "test": None if plan.test is None else plan.test[kept].tolist(),
            "captions": None if plan.captions is None else [plan.captions[row] for row in kept],
            "skipped": [(skip.path, skip.reason) for skip in skipped],
            "oblong": sum(plan.oblong),
        }
        writer.finish(record)
    finally:
        writer.discard()


def _check_room(place: Path, needed: int, plan: Plan, name: str) -> None:
    """Refuse to decode what the disk has no room for, before it is full."""
    free = shutil.disk_usage(place).free
    if needed > free:
        each = " × ".join(f"{side:,}" for side in plan.row)
        got = f"{amount(needed)} for {plan.count:,} {plan.what}s of {each} in {name}, and {amount(free)} free"
        raise DataError(
            f"the cache in {place} must have room for what is decoded, got {got}; data.size makes it smaller"
        )


@dataclass
class _Writer:
    """Rows appended to a file of a temporary name; named and described at the end."""

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
        """Rows (m, *row)."""
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
        with contextlib.suppress(OSError):  # closing writes what is left, on a full disk in vain
            self.file.close()
        self.path.unlink(missing_ok=True)


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """An .npy header of a fixed length, so that the number of rows can be written last."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape}).ljust(HEADER - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _replace(path: Path, content: bytes) -> None:
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
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        said = OSError(f"cannot write the cache in {place}: {reason}; LIKEWISE_CACHE names another folder")
        said.errno = error.errno
        raise said from error
