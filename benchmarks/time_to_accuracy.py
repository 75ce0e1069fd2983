"""How good is an encoder after five minutes of training?

    python -m benchmarks.time_to_accuracy cifar10_10k.npz [seconds]

The same small encoder is trained on the same images: by likewise's simclr and moco with their defaults, and by
lightly's with the settings of its own examples. Encoders are measured by weighted k-NN on the test images after the
last step, not after the best one.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import likewise
from benchmarks.measure import describe_machine, table, write_section
from likewise import data, views
from likewise.encoders.features import features
from likewise.evaluation.knn import KNN, knn
from likewise.training import plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

TRIAL_STEPS = 8


def judge(encoder: torch.nn.Module, items: data.Items) -> KNN:
    assert items.test is not None
    assert items.labels is not None
    augmentation, labels = views.preset("simclr", size=32, channels=3), torch.from_numpy(items.labels)
    train, test = np.flatnonzero(~items.test), np.flatnonzero(items.test)
    rows = [features(encoder, augmentation, items, ids) for ids in (train, test)]
    return knn(rows[0], labels[train], rows[1], labels[test])


def run_ours(method: str, source: str, seconds: float) -> tuple[int, float, torch.nn.Module]:
    """Steps, seconds and the encoder of a run whose steps were counted out to last so long."""
    with tempfile.TemporaryDirectory() as folder:
        asked = {"encoder.name": "resnet_tiny"}
        trial = Trainer(plan.make_plan(source, method, asked, progress=False), Path(folder) / "trial", Observer())
        batches = trial.batches.ahead(0, TRIAL_STEPS)
        trial.learner.step(next(batches), TRIAL_STEPS)
        began = time.perf_counter()
        for batch in batches:
            trial.learner.step(batch, TRIAL_STEPS)
        steps = int(seconds / ((time.perf_counter() - began) / (TRIAL_STEPS - 1)))
        began = time.perf_counter()
        run = likewise.train(
            source, method=method, out=Path(folder) / "run", steps=steps, settings=asked, progress=False
        )
        return steps, time.perf_counter() - began, run.encoder.backbone


def run_lightly(method: str, images: np.ndarray, seconds: float) -> tuple[int, float, torch.nn.Module]:
    from benchmarks.lightly_methods import METHODS

    run = METHODS[method](images, 32)
    began, steps = time.perf_counter(), 0
    for _ in run.steps():
        steps += 1
        if time.perf_counter() - began > seconds:
            break
    return steps, time.perf_counter() - began, run.encoder


def main(source: str, seconds: float = 300.0) -> None:
    torch.set_num_threads(2)
    items = data.open(source)
    assert items.test is not None
    images = items[np.flatnonzero(~items.test)].transpose(0, 2, 3, 1)
    rows, found = [], {}
    for method in ("simclr", "moco"):
        for name, (steps, took, encoder) in {
            "likewise": run_ours(method, source, seconds),
            "lightly": run_lightly(method, images, seconds),
        }.items():
            accuracy = judge(encoder, items)
            found[name] = accuracy.accuracy
            rows.append([method, name, f"{steps:,}", f"{took:.0f} s", f"{accuracy.accuracy:.3f}"])
            print(rows[-1], flush=True)
        rows.append([method, "difference", "", "", f"{100 * (found['likewise'] - found['lightly']):+.1f} points"])
    found_table = table(["method", "", "steps", "time", "k-NN"], rows)
    text = "\n\n".join(
        [
            describe_machine(["lightly"]),
            f"{seconds:.0f} seconds each on {len(images):,} CIFAR-10 images, resnet_tiny, batch 256. Accuracy: "
            f"{str(accuracy)[6:]} of the backbone's features after the last step.",
            found_table,
        ]
    )
    write_section("Time to accuracy", text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:3]))
