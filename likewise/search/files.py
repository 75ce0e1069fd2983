"""An index on disk, written atomically: `index.json`, the unit rows as .npy, and the FAISS index.

The names of the two large files contain their SHA-256. All files are written under temporary names, flushed and
renamed, the JSON file last; only then are the files of an earlier index removed. The JSON file holds the sizes and
digests of the others and of itself. They are verified before NumPy or FAISS read a file, and nothing is unpickled.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock

from likewise.search import structures
from likewise.search.exact import Rows, SearchError

NAME = "index.json"
OURS = re.compile(r"(vectors-[0-9a-f]{12}\.npy|structure-[0-9a-f]{12}\.faiss|(index|vectors|structure)\.\d+\.tmp)")
AGAIN = "delete the folder or name another --index"


def save(folder: Path, vectors: Rows, kind: str, belongs_to: str, structure: Any) -> None:
    """Write an index into `folder`, replacing any index that is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "index.lock"):
            _save(folder, vectors, kind, belongs_to, structure)
    except OSError as error:
        raised = OSError(f"the index could not be written to {folder}: {(error.strerror or str(error)).lower()}")
        raised.errno = error.errno
        raise raised from error


def _save(folder: Path, vectors: Rows, kind: str, belongs_to: str, structure: Any) -> None:
    temporary: list[Path] = []
    try:
        entries = {"vectors": _write(folder, "vectors", ".npy", lambda file: np.save(file, vectors), temporary)}
        if structure is not None:
            entries["structure"] = _write(
                folder, "structure", ".faiss", lambda file: structures.write(structure, file), temporary
            )
        n, d = vectors.shape
        body = json.dumps({"kind": kind, "n": n, "d": d, "belongs_to": belongs_to, "files": entries}).encode()
        for path, entry in zip(temporary, entries.values(), strict=True):
            path.replace(folder / entry["file"])
        _write(folder, "index", ".json", lambda file: file.write(_document(body)), temporary)
        temporary[-1].replace(folder / NAME)
    finally:
        for path in temporary:
            _remove(path)
    current = {entry["file"] for entry in entries.values()}
    # Remove the files of an earlier index, and those of a process that was killed. We hold the lock.
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in current:
            _remove(path)


def load(folder: Path, belongs_to: str) -> tuple[Rows, str, str, Any]:
    """Return vectors, kind, owner and FAISS index of the index in `folder`; raise SearchError if it cannot be used."""
    if not (folder / NAME).is_file():
        raise FileNotFoundError(f"index not found: {folder / NAME}")
    try:
        about = _about(folder)
        if about["belongs_to"] != belongs_to:
            expected, got = (_short(owner) for owner in (belongs_to, about["belongs_to"]))
            why = f"belongs to another encoder or other data, expected {expected}, got {got}"
            raise SearchError(f"the index in {folder} {why}: {AGAIN}")
        shape, kind = (about["n"], about["d"]), about["kind"]
        with _verified(folder, about, "vectors") as file:
            # Mapped copy-on-write, because PyTorch wants writable memory. Nothing is ever written back to the file.
            vectors: Rows = np.load(file.name, mmap_mode="c", allow_pickle=False)
        structure = None
        if kind != "flat":
            with _verified(folder, about, "structure") as file:
                structure = structures.read(kind, file, *shape)
        if vectors.shape != shape or vectors.dtype != np.float32 or (structure is None and kind != "flat"):
            raise SearchError(f"the index in {folder} cannot be read by the installed FAISS and NumPy: {AGAIN}")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SearchError(f"the index in {folder} cannot be read: {reason}: {AGAIN}") from error
    return vectors, kind, belongs_to, structure


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


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot delete a mapped file; it is deleted with the next index
        path.unlink()
