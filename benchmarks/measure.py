"""Shared measuring code: candidates take turns, and each peak memory is measured in a separate process.

The time of a kernel is the best of several repeats (`race`). What users wait for is a whole command: it runs as a
separate process (`run_process`), is timed by the wall clock, and its time is the median over rounds in which all
candidates take turns (`take_turns`).
"""

import datetime
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from benchmarks.quote import RESULTS, quote_in_pages
from likewise.training import metrics

INTRO = "# Measured\n\nWritten by `make bench`; each section is one run.\n"
MIB = 2**20
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


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


def take_turns(contestants: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """Return what each contestant returned in each round. Every round begins with another one of them."""
    results: dict[K, list[T]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(contestants[name]())
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
    return results


@dataclass(frozen=True)
class Finished:
    """A process that ended well."""

    seconds: float  # by the wall clock, from its start to its end
    output: str  # what it wrote to standard output
    usage: resource.struct_rusage  # of the process and of the children that it waited for


def run_process(*arguments: str, environment: Mapping[str, str] | None = None) -> Finished:
    """Run this Python with some arguments, to the end, in the same environment if no other is given."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)  # subprocess itself does not tell what one child used
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}: {errors.read()}")
        return Finished(seconds, output.read(), usage)


class Stretch(NamedTuple):
    """The steps of a run between two rows of its metrics."""

    end: int  # the last of these steps, counted from 1
    steps: int
    seconds: float


@dataclass(frozen=True)
class TrainingRun:
    """A whole training run, from the start of its process to its end."""

    process: Finished
    stretches: list[Stretch]
    batch_size: int

    @classmethod
    def from_rows(cls, process: Finished, rows: Iterable[Mapping[str, Any]], batch_size: int) -> "TrainingRun":
        """Read the stretches from rows of metrics, each with its step and the items a second since the row before."""
        stretches, before = [], 0
        for row in rows:
            steps = row["step"] - before
            stretches.append(Stretch(row["step"], steps, steps * batch_size / row["items_per_second"]))
            before = row["step"]
        return cls(process, stretches, batch_size)

    @property
    def rate(self) -> float:
        """Items a second over all steps, with all that happens between them."""
        return self.batch_size * self.stretches[-1].end / sum(stretch.seconds for stretch in self.stretches)


def train_by_command(
    source: str | Path, *options: str, batch_size: int, environment: Mapping[str, str] | None = None
) -> TrainingRun:
    """Run `likewise train` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(source), *options, "--batch-size", str(batch_size), "--out", folder]
        process = run_process("-m", "likewise", "train", *arguments, environment=environment)
        return TrainingRun.from_rows(process, metrics.read(Path(folder) / "metrics.jsonl"), batch_size)


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


def verdict(reached: float, wanted: float, unit: str) -> str:
    """Say what was reached of what was wanted, at least."""
    return f"{reached:.3g}{unit} of {wanted:g}{unit}" + ("" if reached >= wanted else ", **short**")


def write_section(title: str, text: str, page: Path = RESULTS, intro: str = INTRO) -> None:
    """Put a section into a page in the place of the one with the same title; other pages quote the results."""
    before = page.read_text() if page.exists() else intro
    sections = re.split(r"^(?=## )", before, flags=re.MULTILINE)
    kept = [section.rstrip() for section in sections if not section.startswith(f"## {title}\n")]
    page.write_text("\n\n".join([*kept, f"## {title}\n\n{text.strip()}"]) + "\n")
    if page == RESULTS:
        quote_in_pages()
