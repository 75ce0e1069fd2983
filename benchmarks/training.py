"""How long a training run takes: whole runs of likewise and of lightly, in turns.

    python -m benchmarks.training            # speed
    python -m benchmarks.training memory     # resident size after 200 and after 2,000 steps

likewise's run is the command `likewise train` with its defaults; lightly's is benchmarks/lightly_methods.py, once
without and once with two loader workers. All use the same images, encoder, batch size, number of epochs and kinds of
augmentation. Every run is a separate process, with its default number of threads.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.measure import (
    MIB,
    TrainingRun,
    describe_machine,
    run_process,
    table,
    take_turns,
    train_by_command,
    verdict,
    write_section,
)
from likewise.training import plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

SIZE, BATCH, ITEMS, EPOCHS, ROUNDS = 32, 256, 4096, 6, 3
STRETCH = 4  # steps between two rows of the metrics; they divide an epoch
PEERS = {"lightly, no loader workers": 0, "lightly, 2 loader workers": 2}
FASTER = {"simclr": 1.8, "moco": 2.1}  # wanted, over the whole run, than the better of lightly's two
SUSTAINED = 95  # per cent of the first epoch's rate that are wanted in the last epoch


def images() -> np.ndarray:
    """Noise, smoothed a little: what the pixels show changes no time."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (ITEMS, SIZE // 4, SIZE // 4, 3), dtype=np.uint8)
    return small.repeat(4, axis=1).repeat(4, axis=2)


def rate_of_epoch(run: TrainingRun, epoch: int) -> float:
    """Return the images a second of one epoch, counted from 1: the median over the stretches that end in it."""
    steps = ITEMS // BATCH
    inside = [stretch for stretch in run.stretches if (epoch - 1) * steps < stretch.end <= epoch * steps]
    return median(BATCH * stretch.steps / stretch.seconds for stretch in inside)


def final_evaluation(run: TrainingRun) -> float:
    """Estimate the seconds of the evaluation at a run's end: what its last stretch took beyond its steps."""
    last = run.stretches[-1]
    return last.seconds - BATCH * last.steps / rate_of_epoch(run, EPOCHS)


def run_likewise(method: str, path: Path) -> TrainingRun:
    options = ["--method", method, "--encoder", "resnet_tiny", "--epochs", str(EPOCHS)]
    settings = ["--set", f"data.size={SIZE}", "--set", "data.test=0"]
    settings += ["--set", f"training.log_every={STRETCH}"]
    return train_by_command(path, *options, *settings, batch_size=BATCH)


def run_lightly(method: str, path: Path, workers: int) -> TrainingRun:
    arguments = [method, str(path), str(EPOCHS), str(BATCH), str(workers), str(STRETCH)]
    process = run_process("-m", "benchmarks.lightly_methods", *arguments)
    return TrainingRun.from_rows(process, json.loads(process.output.splitlines()[-1]), BATCH)


MEASURED: dict[str, Callable[[TrainingRun], float]] = {
    "rate": lambda run: run.rate,
    "first": lambda run: rate_of_epoch(run, 1),
    "last": lambda run: rate_of_epoch(run, EPOCHS),
    "seconds": lambda run: run.process.seconds,
    "final evaluation": final_evaluation,
}


def medians(runs: list[TrainingRun]) -> dict[str, float]:
    """Medians over the rounds."""
    return {name: median(map(value, runs)) for name, value in MEASURED.items()}


def main() -> None:
    rows, verdicts, evaluations = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        np.save(path, images())
        for method, faster in FASTER.items():
            contestants = {"likewise": partial(run_likewise, method, path)}
            contestants |= {name: partial(run_lightly, method, path, workers) for name, workers in PEERS.items()}
            measured = {name: medians(runs) for name, runs in take_turns(contestants, ROUNDS).items()}
            ours = measured["likewise"]
            for name, found in measured.items():
                rates = [f"{found[which]:,.0f}" for which in ("rate", "first", "last")]
                ratio = "" if found is ours else f"{ours['rate'] / found['rate']:.2f}×"
                rows.append([method, name, *rates, f"{found['seconds']:.0f} s", ratio])
            best = max(measured[name]["rate"] for name in PEERS)
            sustained = verdict(100 * ours["last"] / ours["first"], SUSTAINED, " %")
            verdicts.append([method, verdict(ours["rate"] / best, faster, "×"), sustained])
            evaluations.append(f"{ours['final evaluation']:.1f} s ({method})")
            print(rows[-len(measured) :], verdicts[-1], flush=True)
    header = ["method", "", "images/s, whole run", "first epoch", "last epoch", "whole process", "likewise is"]
    quoted = table(header, rows)
    text = "\n\n".join(
        [
            describe_machine(["lightly"]),
            f"Runs of {EPOCHS} epochs over {ITEMS:,} images, resnet_tiny at {SIZE} pixels, batch {BATCH}, each "
            "method's own augmentations on both sides; an image counts once, its two views together. Medians of "
            f"{ROUNDS} rounds in turns, every run a process of its own. The whole run is the training loop with all "
            "that happens between its steps. likewise's run ends with an evaluation, lightly's does not; it is counted "
            f"and took about {' and '.join(evaluations)}. An epoch's rate is the median over its stretches of "
            f"{STRETCH} steps, so that neither the start of the readers nor the evaluation decides it. The whole "
            "process is the wall clock of the command; likewise's also plans the run, keeps a checkpoint and writes a "
            "report.",
            quoted,
            "Reached and wanted: the rate of the whole run against the better of lightly's two, and the last epoch's "
            "rate as a share of the first epoch's:",
            table(["method", "faster than lightly", "last epoch / first"], verdicts),
        ]
    )
    write_section("Training", text)
    print(text)


def memory() -> None:
    """Does a run's resident size grow? One object a line of MoCo steps, read from the kernel."""
    torch.set_num_threads(2)
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "training.steps": 2000,
            "training.batch_size": 64,
            "encoder.name": "resnet_tiny",
            "data.size": 8,
            "training.evaluate_every": 100,
            "training.checkpoint_every": 100,
        }
        run = Trainer(plan.make_plan("digits", "moco", settings, progress=False), Path(folder) / "run", Observer())
        take = run.learner.step

        def step(batch, total):  # type: ignore[no-untyped-def]
            if batch.step in (200, 1000, 1999):
                found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
                assert found
                sizes[batch.step + (batch.step == 1999)] = int(found[1]) * 1024 / MIB
            return take(batch, total)

        run.learner.step = step  # type: ignore[method-assign]
        run.run()
    growth = sizes[2000] / sizes[200] - 1
    rows = [[f"{at:,}", f"{size:,.0f} MiB"] for at, size in sizes.items()]
    text = "\n\n".join(
        [
            describe_machine([]),
            "Resident size of a MoCo run on `digits`, with a checkpoint, k-NN and consistency every 100 steps:",
            table(["after steps", "resident"], rows),
            f"From step 200 to step 2,000 it grew by {growth:.1%}.",
        ]
    )
    write_section("Memory while training", text)
    print(text)


if __name__ == "__main__":
    memory() if sys.argv[1:] == ["memory"] else main()
