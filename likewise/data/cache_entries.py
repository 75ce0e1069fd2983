"""List and remove entries of the cache: where each comes from, how large it is and when it was last used."""

import contextlib
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from likewise.data.cache import OURS, lock_of, remove_leftovers
from likewise.data.mapped import is_in_use


@dataclass(frozen=True)
class Entry:
    """Decoded data that are kept for the next time when their source is opened."""

    key: str
    source: str  # empty if unknown: written by an earlier version, or by a process that was killed
    bytes: int
    used: float  # seconds since 1970


def entries(place: Path) -> list[Entry]:
    """Return the entries of the cache, the most recently used first."""
    matches = (OURS.fullmatch(path.name) for path in _files(place))
    keys = {name["key"] for name in matches if name and name["kind"] in ("npy", "json")}
    read_entries = [_entry(place, key) for key in keys]
    return sorted((entry for entry in read_entries if entry is not None), key=lambda entry: (-entry.used, entry.key))


def remove(place: Path, unused_for: float) -> tuple[list[Entry], list[Entry]]:
    """Remove the entries that were not used for so many seconds; return those removed, and those still in use.

    Entries that any process has mapped or is writing are kept. Files that the cache did not write are never touched.
    """
    remove_leftovers(place)
    # 0 seconds means all entries, also those that a machine with a faster clock has used.
    until = time.time() - unused_for if unused_for else math.inf
    due = [entry for entry in entries(place) if entry.used <= until]
    removed = [entry for entry in due if _remove(place, entry.key)]
    for path in _files(place):
        ours = OURS.fullmatch(path.name)
        if ours and ours["kind"] == "note":
            with contextlib.suppress(OSError):
                if path.stat().st_mtime <= until:
                    path.unlink()
    _remove_unused_locks(place)
    return removed, [entry for entry in due if entry not in removed]


def _files(place: Path) -> list[Path]:
    return sorted(place.iterdir()) if place.is_dir() else []


def _entry(place: Path, key: str) -> Entry | None:
    rows, record = place / f"{key}.npy", place / f"{key}.json"
    try:
        sizes = [path.stat() for path in (record, rows) if path.exists()]
        source = ""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            source = str(json.loads(record.read_bytes()).get("source", ""))
        return Entry(key, source, sum(status.st_size for status in sizes), sizes[0].st_mtime)
    except (OSError, IndexError):  # removed by another process in the meantime
        return None


def _remove(place: Path, key: str) -> bool:
    """Remove an entry unless it is in use, and return whether it was removed."""
    rows = place / f"{key}.npy"
    try:
        with FileLock(lock_of(place, key), timeout=0):
            if rows.exists() and is_in_use(rows):
                return False
            (place / f"{key}.json").unlink(missing_ok=True)  # first, because without it there is no entry
            rows.unlink(missing_ok=True)
    except Timeout:  # it is being written
        return False
    except PermissionError:
        if os.name != "nt":  # on Windows this means that it is mapped
            raise
        return False
    return True


def _remove_unused_locks(place: Path) -> None:
    """Remove lock files that no process holds and whose key has no other files."""
    kinds: dict[str, set[str]] = {}
    for path in _files(place):
        if ours := OURS.fullmatch(path.name):
            kinds.setdefault(ours["key"], set()).add(ours["kind"])
    for key, kinds_of_key in kinds.items():
        if kinds_of_key == {"lock"}:
            # No other process can lock it while this one holds it; the next one creates a new file.
            with contextlib.suppress(OSError), FileLock(lock_of(place, key), timeout=0):
                lock_of(place, key).unlink()
