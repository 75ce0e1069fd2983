"""The clock by which a command keeps to the time that it was given.

Tests replace `now`, so other modules call it as `clock.now()`.
"""

import os
import time
from pathlib import Path

# Seconds that a command may need to start. A process may be older: a shell that became it by `exec` keeps its age.
LONGEST_START = 30.0
command_began: float | None = None  # when the process of a command began; None in a program that imports likewise


def now() -> float:
    """Return the time in seconds, from an arbitrary beginning."""
    return time.monotonic()


def begin_command() -> None:
    """Note that this process runs one command, so that its whole life counts, importing torch included."""
    global command_began
    command_began = now() - _age_of_process()


def began() -> float:
    """Return when the running command began, or now if a program calls a function of the library."""
    return now() if command_began is None else command_began


def _age_of_process() -> float:
    """Return for how many seconds this process has been running; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of the file, in ticks
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
        return min(max(0.0, age), LONGEST_START)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
