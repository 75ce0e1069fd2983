"""An index on disk, written atomically: `index.json`, the unit rows and the items' digests as .npy, the FAISS index.

The names of the large files contain their SHA-256. All files are written under temporary names, flushed and
renamed, the JSON file last; only then are the files of an earlier index removed. The JSON file holds the sizes and
digests of the others and of itself. They are verified before NumPy or FAISS read a file, and nothing is unpickled.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock

from likewise.data.parts import DIGEST, DIGESTED, Digests
from likewise.encoders.known import NOTHING, Known
from likewise.search import structures
from likewise.search.exact import Rows, SearchError

NAME, LOCK = "index.json", "index.lock"
OURS = re.compile(
    r"((vectors|digests)-[0-9a-f]{12}\.npy|structure-[0-9a-f]{12}\.faiss|(index|vectors|digests|structure)\.\d+\.tmp)"
)
AGAIN = "delete the folder or name another --index"


class OtherIndexError(SearchError):
    """An index belongs to another encoder or other data."""


def save(
    folder: Path, vectors: Rows, kind: str, belongs_to: str, structure: Any, digests: Digests | None, source: str
) -> None:
    """Write an index into `folder`, replacing any index that is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK):
            _save(folder, vectors, kind, belongs_to, structure, digests, source)
    except OSError as error:
        raised = OSError(f"the index could not be written to {folder}: {(error.strerror or str(error)).lower()}")
        raised.errno = error.errno
        raise raised from error


def _save(
    folder: Path, vectors: Rows, kind: str, belongs_to: str, structure: Any, digests: Digests | None, source: str
) -> None:
    temporary: list[Path] = []
    n, d = vectors.shape
    about = {"kind": kind, "n": n, "d": d, "belongs_to": belongs_to, "source": source}
    try:
        entries = {"vectors": _write(folder, "vectors", ".npy", lambda file: np.save(file, vectors), temporary)}
        if digests is not None:
            about["digests"] = DIGESTED
            entries["digests"] = _write(folder, "digests", ".npy", lambda file: np.save(file, digests), temporary)
        if structure is not None:
            entries["structure"] = _write(
                folder, "structure", ".faiss", lambda file: structures.write(structure, file), temporary
            )
        body = json.dumps({**about, "files": entries}).encode()
        for path, entry in zip(temporary, entries.values(), strict=True):
            path.replace(folder / entry["file"])
        _write(folder, "index", ".json", lambda file: file.write(_document(body)), temporary)
        temporary[-1].replace(folder / NAME)
    finally:
        for path in temporary:
            _remove(path)
    # Remove the files of an earlier index, and those of a process that was killed. We hold the lock.
    _remove_all_but(folder, {entry["file"] for entry in entries.values()})


def remove(folder: Path) -> None:
    """Remove the index in `folder`, and the folder if nothing else is in it."""
    with contextlib.suppress(OSError):  # the folder may be read-only
        with FileLock(folder / LOCK):
            (folder / NAME).unlink(missing_ok=True)
            _remove_all_but(folder, set())
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()


def load(folder: Path, belongs_to: str) -> tuple[Rows, str, str, Any, Digests | None, str]:
    """Return the fields of the index in `folder`, in the order of `Index`; raise SearchError if it cannot be used."""
    if not (folder / NAME).is_file():
        raise FileNotFoundError(f"index not found: {folder / NAME}")
    with _reading(folder):
        about = _about(folder)
        if about["belongs_to"] != belongs_to:
            expected, got = (_short(owner) for owner in (belongs_to, about["belongs_to"]))
            why = f"belongs to another encoder or other data, expected {expected}, got {got}"
            raise OtherIndexError(f"the index in {folder} {why}: {AGAIN}")
        shape, kind = (about["n"], about["d"]), about["kind"]
        vectors, digests = _vectors(folder, about), _digests(folder, about)
        structure = None
        if kind != "flat":
            with _verified(folder, about, "structure") as file:
                structure = structures.read(kind, file, *shape)
        if vectors.shape != shape or vectors.dtype != np.float32 or (structure is None and kind != "flat"):
            raise SearchError(f"the index in {folder} cannot be read by the installed FAISS and NumPy: {AGAIN}")
    return vectors, kind, belongs_to, structure, digests, about.get("source", "")


def best_known(folders: Iterable[Path], encoder: str, digests: Digests) -> Known:
    """Return the vectors of the index that holds most of these items, among indexes that an encoder has made.

    `encoder` is its fingerprint, with which `belongs_to` begins. An index that cannot be read is skipped.
    """
    best, most = NOTHING, 0
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):  # SearchError is a ValueError
            about = _about(folder)
            known = _digests(folder, about) if about["belongs_to"].split()[:1] == [encoder] else None
            shared = 0 if known is None else int(np.isin(digests, known).sum())
            if known is not None and shared > most:
                best, most = Known(known, _vectors(folder, about)), shared
    return best


def is_superseded(folder: Path, encoder: str, belongs_to: str, source: str) -> bool:
    """Return whether the index in `folder` is of the same encoder and source, and of other data than `belongs_to`."""
    try:
        about = _about(folder)
    except (OSError, ValueError):
        return False
    owner = about["belongs_to"]
    return bool(source and about.get("source") == source and owner.split()[:1] == [encoder] and owner != belongs_to)


def kind_in(folder: Path) -> str:
    """Return the kind of the index in `folder`."""
    with _reading(folder):
        return str(_about(folder)["kind"])


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn an OSError into a SearchError about the index in `folder`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SearchError(f"the index in {folder} cannot be read: {reason}: {AGAIN}") from error


def _vectors(folder: Path, about: dict[str, Any]) -> Rows:
    with _verified(folder, about, "vectors") as file:
        # Mapped copy-on-write, because PyTorch wants writable memory. Nothing is ever written back to the file.
        vectors: Rows = np.load(file.name, mmap_mode="c", allow_pickle=False)
    return vectors


def _digests(folder: Path, about: dict[str, Any]) -> Digests | None:
    """Return the digests of the items; None if the index has none that can be compared."""
    if about.get("digests") != DIGESTED:
        return None
    with _verified(folder, about, "digests") as file:
        digests: Digests = np.load(file, allow_pickle=False)
    return digests if digests.dtype == DIGEST and digests.shape == (about["n"],) else None


def _write(
    folder: Path, name: str, ending: str, fill: Callable[[BinaryIO], object], temporary: list[Path]
) -> dict[str, Any]:
    """Write a file under a temporary name, and return its final name, size and digest."""
    path = folder / f"{name}.{os.getpid()}.tmp"
    temporary.append(path)
    with path.open("w+b") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": f"{name}-{digest[:12]}{ending}", "bytes": size, "sha256": digest}


def _document(body: bytes) -> bytes:
    """Return the bytes of the JSON file with `body` and its digest; they are fixed, so that any change is detected."""
    return b'{"sha256": "%s", "index": %s}\n' % (hashlib.sha256(body).hexdigest().encode(), body)


def _about(folder: Path) -> dict[str, Any]:
    raw = (folder / NAME).read_bytes()
    body = raw[len(_document(b"")) - 2 : -2]
    if _document(body) != raw:
        raise SearchError(f"the index in {folder} is damaged, its JSON has another SHA-256: {AGAIN}")
    about: dict[str, Any] = json.loads(body)
    return about


def _short(owner: str) -> str:
    """Return the beginning of each fingerprint, for a message."""
    return " ".join(word[:12] for word in owner.split()) or "nothing"


def _verified(folder: Path, about: dict[str, Any], name: str) -> BinaryIO:
    """Open a file of the index after verifying its size and digest."""
    entry = about["files"][name]
    file = (folder / Path(entry["file"]).name).open("rb")
    try:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            wrong = f"incomplete, expected {entry['bytes']} bytes, got {size}"
        elif hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            wrong = "damaged, its SHA-256 is not the recorded one"
        else:
            file.seek(0)
            return file
        raise SearchError(f"{file.name} is {wrong}: {AGAIN}")
    except BaseException:
        file.close()
        raise


def _remove_all_but(folder: Path, current: set[str]) -> None:
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in current:
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot delete a mapped file; it is deleted with the next index
        path.unlink()
