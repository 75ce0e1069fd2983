"""How settings of OpenMP's threads and of glibc's malloc affect a run: the evidence for likewise's defaults.

    python -m benchmarks.runtime threads
    python -m benchmarks.runtime malloc

Threads: GOMP_SPINCOUNT says for how long a thread of libgomp, which torch computes with, spins while it waits for the
others before it sleeps. likewise does not change it. Other values are tried on an idle machine, beside a process that
keeps one core busy, and beside another training.

malloc: likewise tunes glibc's malloc, unless the environment has LIKEWISE_MALLOC=system. Every run is the command
`likewise train`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median

from benchmarks.measure import (
    MIB,
    TrainingRun,
    describe_machine,
    table,
    take_turns,
    train_by_command,
    write_section,
)

SOURCE, METHOD, BATCH, STEPS, ROUNDS = "mnist5k", "moco", 128, 40, 3  # an epoch has 31 steps
SPIN_COUNTS = {"unset, as likewise leaves it": None, "20000": "20000", "0, sleep at once": "0"}
MALLOC = {"tuned by likewise": None, "LIKEWISE_MALLOC=system": "system"}


def environment_with(name: str, value: str | None) -> dict[str, str]:
    """Return this process's environment with one variable set, or without it."""
    others = {key: kept for key, kept in os.environ.items() if key != name}
    return others if value is None else others | {name: value}


def train(environment: Mapping[str, str]) -> TrainingRun:
    return train_by_command(
        SOURCE, "--method", METHOD, "--steps", str(STEPS), batch_size=BATCH, environment=environment
    )


def alone(environment: Mapping[str, str]) -> list[TrainingRun]:
    return [train(environment)]


def beside_a_busy_process(environment: Mapping[str, str]) -> list[TrainingRun]:
    with busy_process():
        return [train(environment)]


def beside_another(environment: Mapping[str, str]) -> list[TrainingRun]:
    """Train twice at the same time, with the same setting."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(train, [environment] * 2))


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy with a process that never waits."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


LOADS: dict[str, Callable[[Mapping[str, str]], list[TrainingRun]]] = {
    "alone": alone,
    "beside a busy process": beside_a_busy_process,
    "beside another training": beside_another,
}


def threads() -> None:
    contestants = {
        (setting, load): partial(measure, environment_with("GOMP_SPINCOUNT", value))
        for load, measure in LOADS.items()
        for setting, value in SPIN_COUNTS.items()
    }
    rounds = take_turns(contestants, ROUNDS)
    rates: dict[str, list[str]] = {setting: [] for setting in SPIN_COUNTS}
    switches: dict[str, list[str]] = {setting: [] for setting in SPIN_COUNTS}
    for (setting, _), results in rounds.items():
        runs = [run for result in results for run in result]
        rates[setting].append(f"{median(run.rate for run in runs):,.0f}")
        switches[setting].append(f"{median(run.process.usage.ru_nvcsw for run in runs):,.0f}")
    text = "\n\n".join(
        [
            describe_machine([]),
            f"{STEPS} steps of {METHOD} on {SOURCE}, batch {BATCH}, with GOMP_SPINCOUNT as in the first column; "
            f"medians of {ROUNDS} rounds in turns, every run a process of its own. Images a second over the whole "
            "training loop; beside another training those of one of the two:",
            table(["GOMP_SPINCOUNT", *LOADS], [[setting, *cells] for setting, cells in rates.items()]),
            "How often the process gave up its core of itself (voluntary context switches), from its start to its end:",
            table(["GOMP_SPINCOUNT", *LOADS], [[setting, *cells] for setting, cells in switches.items()]),
        ]
    )
    write_section("Waiting threads", text)
    print(text)


def malloc() -> None:
    contestants = {
        setting: partial(train, environment_with("LIKEWISE_MALLOC", value)) for setting, value in MALLOC.items()
    }
    rows = []
    for setting, runs in take_turns(contestants, ROUNDS).items():
        faults = median(run.process.usage.ru_minflt for run in runs)
        # The kernel starts a child's peak at its parent's size. This parent has only imported torch, as every run does.
        peak = median(run.process.usage.ru_maxrss for run in runs) * 1024
        rows.append([setting, f"{median(run.rate for run in runs):,.0f}", f"{faults:,.0f}", f"{peak / MIB:,.0f} MiB"])
    text = "\n\n".join(
        [
            describe_machine([]),
            f"`likewise train`, {STEPS} steps of {METHOD} on {SOURCE}, batch {BATCH}; medians of {ROUNDS} rounds in "
            "turns. Images a second over the whole training loop; page faults that needed no disk, and the peak "
            "resident size, of the whole process:",
            table(["malloc", "images/s", "minor page faults", "peak resident"], rows),
        ]
    )
    write_section("malloc", text)
    print(text)


if __name__ == "__main__":
    {"threads": threads, "malloc": malloc}[sys.argv[1]]()
