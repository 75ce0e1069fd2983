"""Does it fit in memory? Asked before anything is allocated.

The kernel promises memory that it does not have, and ends the process once the memory is used. So whether an
allocation succeeds says nothing, and sizes that people or files name are compared with what the machine has.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from likewise.recipe import RecipeError

NUMBER = 4  # bytes of a float32

# Where Linux says how much a container may take; version 2 of cgroups, then version 1.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def shortage(needed: int) -> str | None:
    """Say how much memory so many bytes are and how much there is, or return None if they fit."""
    there = total()
    if there is None or needed <= there:
        return None
    return f"{amount(needed)} of memory, and this machine has {amount(there)}"


def total() -> int | None:
    """Return the bytes of memory that this process can have at most, or None where the system does not tell."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            found = min(found, int(Path(path).read_text()))
    return found


def amount(count: int) -> str:
    """Write a number of bytes for people, as in `3.6 TiB`."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.3g} {unit}" if size < 1e6 else f"{size:.1e} {unit}"


def check_size(values: Mapping[str, int], count: int) -> None:
    """Refuse values of the recipe, by key, for which `count` numbers are needed, if these do not fit."""
    if words := shortage(NUMBER * count):
        raise RecipeError(
            " and ".join(f"{name} = {value:,}" for name, value in values.items()) + f" would take {words}"
        )
