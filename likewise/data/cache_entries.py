"""The entries of the cache, for people: where they come from, how large they are, when they were used; and out."""

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
    """Decoded data that are kept for the next time their source is opened."""

    key: str
    source: str  # empty where it was not written down: by an earlier version, or by one that was killed
    bytes: int
    used: float  # seconds since 1970


def entries(place: Path) -> list[Entry]:
    """What the cache holds, the last used first."""
    names = (OURS.fullmatch(path.name) for path in _files(place))
    keys = {name["key"] for name in names if name and name["kind"] in ("npy", "json")}
    found = [_entry(place, key) for key in keys]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: (-entry.used, entry.key))


def remove(place: Path, unused_for: float) -> tuple[list[Entry], list[Entry]]:
    """Remove the entries that were not used for so many seconds; gives those that are gone, and those in use.

    What any process has mapped, or is writing now, stays. So do files that are not the cache's own.
    """
    remove_leftovers(place)
    until = time.time() - unused_for if unused_for else math.inf  # clocks of two machines may differ
    due = [entry for entry in entries(place) if entry.used <= until]
    gone = [entry for entry in due if _remove(place, entry.key)]
    for path in _files(place):
        ours = OURS.fullmatch(path.name)
        if ours and ours["kind"] == "note":
            with contextlib.suppress(OSError):
                if path.stat().st_mtime <= until:
                    path.unlink()
    _remove_lonely_locks(place)
    return gone, [entry for entry in due if entry not in gone]


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
    except (OSError, IndexError):  # removed just now
        return None


def _remove(place: Path, key: str) -> bool:
    """Remove an entry that nobody uses; whether it is gone."""
    rows = place / f"{key}.npy"
    try:
        with FileLock(lock_of(place, key), timeout=0):
            if rows.exists() and is_in_use(rows):
                return False
            (place / f"{key}.json").unlink(missing_ok=True)  # first: without it there is no entry
            rows.unlink(missing_ok=True)
    except Timeout:  # it is being written
        return False
    except PermissionError:
        if os.name != "nt":  # there it is mapped
            raise
        return False
    return True


def _remove_lonely_locks(place: Path) -> None:
    """Remove lock files that nobody holds and that no other file belongs to."""
    kinds: dict[str, set[str]] = {}
    for path in _files(place):
        if ours := OURS.fullmatch(path.name):
            kinds.setdefault(ours["key"], set()).add(ours["kind"])
    for key, found in kinds.items():
        if found == {"lock"}:
            # While it is held nobody else can lock it, and whoever comes later makes a new one.
            with contextlib.suppress(OSError), FileLock(lock_of(place, key), timeout=0):
                lock_of(place, key).unlink()
