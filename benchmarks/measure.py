"""How things are measured here: side by side, best of several, each peak memory in a process of its own."""

import datetime
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "RESULTS.md"
READMES = [Path(__file__).parents[1] / name for name in ("README.md", "README.zh.md")]
INTRO = "# Measured\n\nWritten by `make bench`; each section is one run.\n"
MIB = 2**20


def race(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Best time of each in seconds. They take turns, so that a noisy neighbour disturbs all alike."""
    best = dict.fromkeys(contestants, float("inf"))
    for run in contestants.values():
        run()
    for _ in range(repeats):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(module: str, *arguments: str) -> float:
    """Bytes that a process of its own needed above its inputs; it must call `report_peak_memory`."""
    command = [sys.executable, "-m", module, *arguments]
    # An allocator that gives back what is freed, so that chance does not decide what is still resident.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def report_peak_memory(run: Callable[[], object]) -> None:
    """Print how far the resident size rises above what it is now while `run` runs."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    run()
    print(resident("VmHWM") - before)


def resident(which: str) -> int:
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "peak memory is measured on Linux only"
    return int(found[1]) * 1024


def describe_machine(packages: Sequence[str]) -> str:
    """Machine, versions and date, in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*: (.+)", cpuinfo.read_text())):
        model = found[1]
    level = torch.backends.cpu.get_cpu_capability()
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", *packages))
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return f"{model} ({level}), {threads}; Python {platform.python_version()}, {versions}; {datetime.date.today()}."


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_section(title: str, text: str, page: Path = RESULTS, intro: str = INTRO) -> None:
    """Put a section into a page in the place of the one with the same title."""
    before = page.read_text() if page.exists() else intro
    sections = re.split(r"^(?=## )", before, flags=re.MULTILINE)
    kept = [section.rstrip() for section in sections if not section.startswith(f"## {title}\n")]
    page.write_text("\n\n".join([*kept, f"## {title}\n\n{text.strip()}"]) + "\n")


def quote_in_readme(name: str, text: str) -> None:
    """Put measured figures between the READMEs' `<!-- name -->` and `<!-- /name -->`."""
    for readme in READMES:
        before, rest = readme.read_text().split(f"<!-- {name} -->")
        after = rest.split(f"<!-- /{name} -->")[1]
        readme.write_text(f"{before}<!-- {name} -->\n\n{text}\n\n<!-- /{name} -->{after}")
