"""Which settings suit a run of five minutes on two cores? What was tried before the defaults were chosen.

    python -m studies.settings cifar10_10k.npz fsdd.npz har_windows.npz

Every trial is trained and measured on parts of the training data: the test parts are not looked at. Trials of one data
set take about equally long on one thread, except where the table says otherwise, and have one seed.
"""

import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import likewise
from benchmarks.measure import describe_machine, table
from likewise import data
from likewise.recipe import Recipe
from likewise.training.plan import split
from studies.page import measured_once, print_row, write_section

STUDY = "settings"
SEEDS = (0, 1, 2)  # of the table of five minutes, whose test items are left out here
OFTEN = {"training.checkpoint_every": 100_000, "training.evaluate_every": 100_000}
FIGURES = {"k-NN": "knn", "linear": "linear", "1 label": "1", "5 labels": "5", "10 labels": "10"}
EARLY, WHOLE = {"data.early_size": 20}, {"data.early_size": 0}
BATCH = {"training.batch_size": 128}
OLD = {"training.batch_size": 256, **WHOLE}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Trial:
    """A run on one part of the data; `what` are its words in the table."""

    what: str
    method: str
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)


TRIALS = {
    "cifar10": [
        Trial("batches of 256", "simclr", 600, OLD),
        Trial("batches of 128", "simclr", 1200, BATCH | WHOLE),
        Trial("batches of 64", "simclr", 2400, {"training.batch_size": 64} | WHOLE),
        Trial("128, temperature 0.5", "simclr", 1200, BATCH | WHOLE | {"loss.temperature": 0.5}),
        Trial("128, learning rate 0.004", "simclr", 1200, BATCH | WHOLE | {"optimizer.lr": 0.004}),
        Trial("256, larger crops and blur (moco_v2)", "simclr", 600, OLD | {"pairs.preset": "moco_v2"}),
        Trial("128, views of 20 pixels in the first half", "simclr", 1700, BATCH | EARLY),
        Trial("the same, head without batch norm", "simclr", 1700, BATCH | EARLY | {"encoder.head": "mlp"}),
        Trial("batches of 128", "moco", 1200, BATCH | WHOLE),
        Trial(
            "128, both views as queries, simclr's views, batch norm not split",
            "moco",
            1200,
            BATCH | WHOLE | {"pairs.symmetric": True, "pairs.preset": "simclr", "encoder.bn_splits": 1},
        ),
        Trial("128, views of 20 pixels in the first half", "moco", 1900, BATCH | EARLY),
    ],
    "mnist5k": [
        Trial("batches of 256", "moco", 400, OLD),
        Trial("128, views of 16 pixels in the first half", "moco", 800, BATCH | {"data.early_size": 16}),
        Trial("128", "moco", 800, BATCH | WHOLE),
        Trial("batches of 256", "simclr", 400, OLD),
        Trial("128, views of 16 pixels in the first half", "simclr", 800, BATCH | {"data.early_size": 16}),
        Trial("the same, temperature 0.5", "simclr", 800, BATCH | {"data.early_size": 16, "loss.temperature": 0.5}),
        Trial("128, head without batch norm", "simclr", 800, BATCH | WHOLE | {"encoder.head": "mlp"}),
    ],
    "har": [
        Trial("", "cpc", 1600),
        Trial("batches of 256", "simclr", 400),
        Trial("batches of 256", "moco", 400),
        Trial("batches of 256", "simclr", 1600),
        Trial("batches of 128", "simclr", 2400, BATCH),
    ],
    "fsdd": [
        Trial("", "cpc", 1500),
        Trial("", "simclr", 600),
    ],
}


def tuning_parts(cifar: str, fsdd: str, har: str) -> dict[str, Arrays]:
    """Return for each data set a part to train on and one to measure on, both of its training data."""
    return {"cifar10": of_cifar(cifar), "mnist5k": of_mnist(), "har": of_har(har), "fsdd": of_fsdd(fsdd)}


def of_cifar(path: str) -> Arrays:
    arrays = dict(np.load(path))  # an archive reads an array anew at every look
    x, y = arrays["x_train"], arrays["y_train"]
    order = np.random.default_rng(0).permutation(len(x))
    return _divided(x, y, order[:6500], order[6500:])


def of_mnist() -> Arrays:
    items = data.open("mnist5k", progress=False)
    tested = np.unique(np.concatenate([split(items, Recipe().with_values({"seed": seed}))[1] for seed in SEEDS]))
    order = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(items)), tested))
    assert items.labels is not None
    return _divided(np.asarray(items.array)[:, 0], items.labels, order[700:], order[:700])


def _divided(x: NDArray[Any], y: NDArray[Any], train: NDArray[np.int64], test: NDArray[np.int64]) -> Arrays:
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


def of_har(path: str) -> Arrays:
    """Return the windows of people who are never tested; six of them are measured on."""
    arrays = dict(np.load(path))
    items = data.open(path, progress=False)
    assert items.groups is not None
    tests = [split(items, Recipe().with_values({"seed": seed}))[1] for seed in SEEDS]
    tested = np.unique(arrays["subject"][np.concatenate(tests)])
    kept = ~np.isin(arrays["subject"], tested)
    arrays = {name: value[kept] if len(value) == len(kept) else value for name, value in arrays.items()}
    return arrays | {"is_test": np.isin(arrays["subject"], np.unique(arrays["subject"])[[0, 1, 2, 3, 4, 6]])}


def of_fsdd(path: str) -> Arrays:
    """Return the clips of the training takes; five takes of the 45 are measured on."""
    arrays = dict(np.load(path))  # an archive reads an array anew at every look
    rows = np.flatnonzero(~arrays["is_test"])
    held_out = np.random.default_rng(0).choice(np.unique(arrays["take"][rows]), 5, replace=False)
    offsets = arrays["offsets"]
    clips = [arrays["audio"][offsets[row] : offsets[row + 1]] for row in rows]
    return {
        "audio": np.concatenate(clips),
        "offsets": np.concatenate([[0], np.cumsum([len(clip) for clip in clips])]),
        "y": arrays["digit"][rows],
        "speaker": arrays["speaker"][rows],
        "rate": arrays["rate"],
        "is_test": np.isin(arrays["take"][rows], held_out),
    }


def learn(source: Arrays, trial: Trial) -> dict[str, Any]:
    """Train and measure; return the figures of the learned encoder and of the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        settings = OFTEN | dict(trial.settings)
        run = likewise.train(
            source, method=trial.method, steps=trial.steps, settings=settings, out=f"{folder}/run", progress=False
        )
        figures = likewise.evaluate(run.encoder, source, progress=False)
    _, free, _, learned = figures.values()
    return {"free": row_of(free), "learned": row_of(learned)}


def row_of(found: Mapping[str, Any]) -> dict[str, float]:
    few = {str(count): each["accuracy"] for count, each in found["few_labels"].items()}
    return {name: found[name]["accuracy"] for name in ("knn", "linear")} | few


def measured(name: str, trial: Trial, source: Arrays) -> dict[str, Any]:
    key = {"data": name, "method": trial.method, "steps": trial.steps, **trial.settings}
    return measured_once(STUDY, key, lambda: learn(source, trial))


def main() -> None:
    parts, rows = tuning_parts(*sys.argv[1:]), []
    head = ["data", "method", "", "steps", *FIGURES]
    print(table(head, []))
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures = {name: [pool.submit(measured, name, each, parts[name]) for each in TRIALS[name]] for name in TRIALS}
        for name, trials in TRIALS.items():
            for place, (trial, future) in enumerate(zip(trials, futures[name], strict=True)):
                found = future.result()
                if not place:
                    free = [f"{found['free'][figure]:.3f}" for figure in FIGURES.values()]
                    rows.append([name, "without learning", "", "", *free])
                    print_row(*rows[-1])
                figures = [f"{found['learned'][figure]:.3f}" for figure in FIGURES.values()]
                rows.append([name, trial.method, trial.what, f"{trial.steps:,}", *figures])
                print_row(*rows[-1])
    texts = [
        "Which settings suit a run of five minutes on two cores?",
        "One seed, one thread, two runs at a time; trained and measured on parts of the training data: 6,500 and 1,500 "
        "images of CIFAR-10, 2,943 and 700 digits of `mnist5k`, windows of 15 and of 6 other people (har), 40 and 5 "
        "takes of 6 speakers (fsdd). The linear probe and the few labels are those of `likewise evaluate`. "
        f"{describe_machine([])}",
        table(head, rows),
    ]
    write_section("Settings for five minutes", texts)


if __name__ == "__main__":
    main()
