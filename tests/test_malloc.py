"""glibc keeps freed memory for the next tensor, unless it is told to be left alone."""

import os
import platform
import subprocess
import sys

import pytest

from likewise.malloc import keep_freed_memory

# Ten buffers of 64 MiB, one after the other, every page written to: 16,384 pages of 4 KiB each.
FAULTS = """
import resource
from likewise.malloc import keep_freed_memory
told = keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * 2**26
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told_and_faults(**variables):
    """Whether malloc was told, and the page faults of the ten buffers, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name} | variables
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env=environment)
    told, faults = run.stdout.split()
    return told == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_the_pages_of_a_freed_buffer_are_used_again():
    left_alone, many = told_and_faults(LIKEWISE_MALLOC="system")
    told, few = told_and_faults()
    assert (left_alone, told) == (False, True)
    assert few < many / 5


@pytest.mark.parametrize(
    "variables", [{"MALLOC_TRIM_THRESHOLD_": "65536"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536"}]
)
def test_settings_of_glibc_itself_take_precedence(variables):
    assert told_and_faults(**variables)[0] is False


def test_an_unknown_setting_is_refused(monkeypatch):
    monkeypatch.setenv("LIKEWISE_MALLOC", "jemalloc")
    with pytest.raises(ValueError, match="LIKEWISE_MALLOC must be empty or system, got 'jemalloc'"):
        keep_freed_memory()
