"""Check whether something fits in memory before it is allocated.

Linux promises more memory than it has, and kills the process once the memory is used. So a successful allocation says
nothing. Sizes that come from a user or a file are therefore compared with the memory of the machine first.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from likewise.recipe import RecipeError

NUMBER = 4  # bytes of a float32

# The files with the memory limit of a container: cgroups version 2, then version 1.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def shortage(needed: int) -> str | None:
    """Say how much memory is needed and how much there is, or return None if it fits."""
    available = total()
    if available is None or needed <= available:
        return None
    return f"{amount(needed)} of memory, and this machine has {amount(available)}"


def total() -> int | None:
    """Return the bytes of memory that this process can have at most, or None if the system does not say."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # the file does not exist, or says "max"
            size = min(size, int(Path(path).read_text()))
    return size


def amount(count: int) -> str:
    """Format a number of bytes, as in `3.6 TiB`."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.3g} {unit}" if size < 1e6 else f"{size:.1e} {unit}"


def check_size(values: Mapping[str, int], count: int) -> None:
    """Raise a RecipeError that names these recipe values if the `count` numbers that they need do not fit in memory."""
    if words := shortage(NUMBER * count):
        raise RecipeError(
            " and ".join(f"{name} = {value:,}" for name, value in values.items()) + f" would take {words}"
        )
