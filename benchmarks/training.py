"""Images a second in training: likewise beside lightly, and beside the same passes over fixed tensors.

    python -m benchmarks.training            # speed
    python -m benchmarks.training memory     # resident size after 200 and after 2,000 steps

Same encoder, batch and augmentations for all, 32 pixels, two threads; contestants take turns.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import MIB, describe_machine, quote_in_readme, table, write_section
from likewise.training import plan
from likewise.training.learner import Learner
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

SIZE, BATCH, ITEMS, STEPS, ROUNDS = 32, 256, 8192, 6, 12


def images() -> np.ndarray:
    """Noise, smoothed a little: what the pixels show changes no time."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (ITEMS, SIZE // 4, SIZE // 4, 3), dtype=np.uint8)
    return small.repeat(4, axis=1).repeat(4, axis=2)


def trainer(method: str, folder: str) -> Trainer:
    """likewise's own trainer with its defaults for the method."""
    settings = {"training.batch_size": BATCH, "encoder.name": "resnet_tiny", "data.size": SIZE}
    return Trainer(plan.make_plan(images(), method, settings, progress=False), Path(folder), Observer())


def ours(learner: Learner) -> Iterator[object]:
    total = 10**6
    for batch in learner.batches.ahead(0, total):
        yield learner.step(batch, total)


def fixed(learner: Learner) -> Callable[[], None]:
    """The passes alone, over views that are never changed: forward and backward, and MoCo's key pass."""
    batch = learner.batches.at(0)
    first, second = learner.views(batch, "first"), learner.views(batch, "second")
    both = torch.cat([first, second])

    def passes() -> None:
        if learner.copy is None:
            learner.embed(both).square().sum().backward()
        else:
            learner.embed(first).square().sum().backward()
            learner.copy(second)
        learner.optimizer.zero_grad()

    return passes


def rates(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Images a second of each, the best of several rounds in turns of a few steps."""
    best = dict.fromkeys(contestants, 0.0)
    for run in contestants.values():
        run()
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                run()
            best[name] = max(best[name], STEPS * BATCH / (time.perf_counter() - start))
    return best


def sustained(steps: Iterator[object], first: int = 8, count: int = 40) -> float:
    """Images a second over one long stretch: in a short one, batches that loaders made before it would count."""
    for _ in range(first):
        next(steps)
    start = time.perf_counter()
    for _ in range(count):
        next(steps)
    return count * BATCH / (time.perf_counter() - start)


def main() -> None:
    from benchmarks.lightly_methods import LightlyMoCo, LightlySimCLR

    torch.set_num_threads(2)
    rows = []
    for method, peer in (("simclr", LightlySimCLR), ("moco", LightlyMoCo)):
        with tempfile.TemporaryDirectory() as folder:
            learner = trainer(method, folder).learner
            our_steps = ours(learner)
            # Loader processes would work on while it is another's turn, and be paid for by that one.
            their_steps = peer(images(), SIZE, BATCH, workers=0).steps()
            found = rates(
                {
                    "likewise": lambda steps=our_steps: next(steps),
                    "fixed tensors": fixed(learner),
                    "lightly, in the same process": lambda steps=their_steps: next(steps),
                }
            )
            with_workers = peer(images(), SIZE, BATCH, workers=2).steps()
            found["lightly, 2 loader workers"] = sustained(with_workers)
        best = max(found["lightly, in the same process"], found["lightly, 2 loader workers"])
        for name, rate in found.items():
            rows.append([method, name, f"{rate:,.0f}", f"{found['likewise'] / rate:.2f}×"])
        print(table(["method", "", "images/s", "likewise is"], rows[-len(found) :]), flush=True)
        rows.append([method, "best of lightly's two", f"{best:,.0f}", f"{found['likewise'] / best:.2f}×"])
    found_table = table(["method", "", "images/s", "likewise is"], rows)
    text = "\n\n".join(
        [
            describe_machine(["lightly"]),
            f"resnet_tiny at {SIZE} pixels, batch {BATCH}, each method's own augmentations on both sides; an image "
            "counts once, its two views together. Fixed tensors: forward and backward of encoder and head (and the "
            "key pass) alone, without reading, augmentations, loss, optimizer or dictionary.",
            found_table,
        ]
    )
    write_section("Training", text)
    quote_in_readme("training", found_table)
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
