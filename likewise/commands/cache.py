"""`likewise cache`: list or remove the decoded data that likewise keeps to start faster."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.data.cache import cache_folder
from likewise.data.cache_entries import Entry, entries, remove

UNITS = {"h": 3600, "d": 86_400, "w": 604_800}  # seconds


@dataclass(frozen=True)
class Cache:
    """The entries of the cache, and those that were just removed."""

    folder: Path
    entries: list[Entry]  # most recently used first
    removed: list[Entry] | None = None  # None if nothing was to be removed
    in_use: tuple[Entry, ...] = ()  # old enough to be removed, but kept because a process uses them

    def as_dict(self) -> dict[str, Any]:
        result = {"folder": str(self.folder), "entries": _as_dicts(self.entries)}
        if self.removed is not None:
            result |= {"removed": _as_dicts(self.removed), "in_use": _as_dicts(self.in_use)}
        return result

    def table(self) -> list[list[str]]:
        """Return the table that is printed, the header first."""
        rows = ([entry.source or "unknown", _size(entry.bytes), _when(entry.used)] for entry in self.entries)
        return [["source", "size", "last used"], *rows]

    def note(self) -> str:
        contents = f"{_counted(self.entries)} in {self.folder}"
        if self.removed is None:
            return contents
        in_use = f"; kept because they are in use: {_counted(self.in_use)}" if self.in_use else ""
        return f"removed {_counted(self.removed)}{in_use}; now {contents}"


def cache(older_than: str | None = None) -> Cache:
    """Return the contents of the cache, after removing what was not used for `older_than`, such as `30d`.

    `older_than` is a number of hours (h), days (d) or weeks (w); `0h` removes everything. Entries that a process is
    using are never removed.
    """
    folder = cache_folder(None)
    if older_than is None:
        return Cache(folder, entries(folder))
    age = re.fullmatch(r"(\d+)([hdw])", older_than.strip())
    if not age:
        raise ValueError(f"--older-than must be an age such as 12h, 30d or 2w, got {older_than!r}")
    removed, in_use = remove(folder, int(age[1]) * UNITS[age[2]])
    return Cache(folder, entries(folder), removed, tuple(in_use))


def _as_dicts(cached: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {"source": entry.source or None, "bytes": entry.bytes, "used": _when(entry.used), "key": entry.key}
        for entry in cached
    ]


def _counted(cached: Sequence[Entry]) -> str:
    count = "1 entry" if len(cached) == 1 else f"{len(cached):,} entries"
    return f"{count}, {_size(sum(entry.bytes for entry in cached))}"


def _size(count: float) -> str:
    """Format a number of bytes, as in `512 bytes`, `1.2 MB` or `3.4 GB`."""
    if count < 1000:
        return f"{count} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} TB"


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
