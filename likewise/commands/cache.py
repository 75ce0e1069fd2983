"""`likewise cache`: the decoded data that are kept for the next start, and how to be rid of them."""

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
    """What the cache holds, and what was just removed from it."""

    folder: Path
    entries: list[Entry]  # the last used first
    removed: list[Entry] | None = None  # None where nothing was to be removed
    in_use: tuple[Entry, ...] = ()  # to be removed, but kept

    def as_dict(self) -> dict[str, Any]:
        found = {"folder": str(self.folder), "entries": _as_dicts(self.entries)}
        if self.removed is not None:
            found |= {"removed": _as_dicts(self.removed), "in_use": _as_dicts(self.in_use)}
        return found

    def table(self) -> list[list[str]]:
        """What is printed: sources, sizes and times of the last use."""
        rows = ([entry.source or "not known", _size(entry.bytes), _when(entry.used)] for entry in self.entries)
        return [["source", "size", "last used"], *rows]

    def note(self) -> str:
        held = f"{_counted(self.entries)} in {self.folder}"
        if self.removed is None:
            return held
        kept = f"; in use, and therefore kept: {_counted(self.in_use)}" if self.in_use else ""
        return f"removed {_counted(self.removed)}{kept}; now {held}"


def cache(older_than: str | None = None) -> Cache:
    """List the decoded data that are kept; before that, remove what was not used for an age such as `30d`.

    An age is a number of hours, days or weeks; `0h` removes everything. What a process is using is never removed.
    """
    folder = cache_folder(None)
    if older_than is None:
        return Cache(folder, entries(folder))
    found = re.fullmatch(r"(\d+)([hdw])", older_than.strip())
    if not found:
        raise ValueError(f"--older-than must be like 12h, 30d or 2w, got {older_than!r}")
    removed, in_use = remove(folder, int(found[1]) * UNITS[found[2]])
    return Cache(folder, entries(folder), removed, tuple(in_use))


def _as_dicts(found: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {"source": entry.source or None, "bytes": entry.bytes, "used": _when(entry.used), "key": entry.key}
        for entry in found
    ]


def _counted(found: Sequence[Entry]) -> str:
    count = "1 entry" if len(found) == 1 else f"{len(found):,} entries"
    return f"{count}, {_size(sum(entry.bytes for entry in found))}"


def _size(count: float) -> str:
    """`512 bytes`, `1.2 MB`, `3.4 GB`."""
    if count < 1000:
        return f"{count} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} TB"


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
