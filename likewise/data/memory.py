"""Check that data fit into memory before they are read."""

import contextlib
import os

from likewise.data.items import DataError

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def check_fits(needed: int, name: str) -> None:
    """Raise a DataError if reading `name` needs more bytes than are free; nothing is checked if that is unknown."""
    free = free_memory()
    if free is not None and needed > free:
        raise DataError(f"{name} would take about {_size(needed)} of memory, and {_size(free)} are free")


def free_memory() -> int | None:
    """Return the bytes of memory that programs can still take without swapping, or None if the system does not say."""
    with contextlib.suppress(OSError), open("/proc/meminfo") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name == "MemAvailable":  # includes the page cache, which the system can free
                return int(value.split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not every system has sysconf, or knows these names
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _size(count: int) -> str:
    """Write a number of bytes with two digits or more: `512 bytes`, `1.5 MiB`, `38 GiB`."""
    power = min(max(0, count.bit_length() - 1) // 10, len(UNITS) - 1)
    value = count / 1024**power
    return f"{value:.1f} {UNITS[power]}" if power and value < 10 else f"{value:,.0f} {UNITS[power]}"
