"""The demo: MoCo on 5,000 handwritten digits, without a label, and what that is worth."""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.evaluation.few_labels import FewLabels, few_labels
from likewise.evaluation.knn import KNN, knn
from likewise.training import plan, trainer
from likewise.training.learner import build_tower
from likewise.training.run import features, preprocessing

SOURCE, METHOD = "mnist5k", "moco"
SETTINGS: dict[str, Any] = {
    "data.test": 0.2,
    "encoder.head": "mlp_bn",
    "optimizer.lr": 0.003,
    "training.batch_size": 128,
    "training.steps": 900,
}


@dataclass(frozen=True)
class Row:
    """How well labels follow from one kind of embedding."""

    name: str
    knn: KNN
    one: FewLabels
    five: FewLabels


@dataclass(frozen=True)
class Demo:
    rows: list[Row]

    def table(self) -> list[list[str]]:
        """What is printed: names and accuracies, each with what it depends on."""
        first = self.rows[0]
        k, test = first.knn, first.knn.test
        head = [
            f"{test:,} images not trained on",
            f"k-NN (k {k.k}, T {k.temperature:g}, {k.train:,} labels)",
            f"1 label a class (mean of {first.one.draws})",
            f"5 labels a class (mean of {first.five.draws})",
        ]
        body = [
            [
                row.name,
                f"{row.knn.accuracy:.3f}",
                *(f"{few.accuracy:.3f} ± {few.spread:.3f}" for few in (row.one, row.five)),
            ]
            for row in self.rows
        ]
        return [head, *body]


def run_demo(out: str | Path | None = None, steps: int | None = None, seed: int = 0) -> Demo:
    """Train, then compare raw pixels, the encoder before training and the encoder after it."""
    with ExitStack() as stack:
        folder = out if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "demo"
        run = trainer.train(SOURCE, method=METHOD, out=folder, steps=steps, seed=seed, settings=SETTINGS)
        learned = run.encoder
        ready = plan.make_plan(SOURCE, METHOD, {**SETTINGS, "seed": seed}, progress=False)
    items = ready.items
    untrained = build_tower(ready.recipe, preprocessing(ready.recipe, items, ready.train))
    assert items.labels is not None
    labels = torch.from_numpy(items.labels)

    def row(name: str, embed: Any) -> Row:
        rows: tuple[Tensor, Tensor, Tensor, Tensor] = (
            embed(ready.train),
            labels[ready.train],
            embed(ready.test),
            labels[ready.test],
        )
        return Row(name, knn(*rows), few_labels(*rows, per_class=1), few_labels(*rows, per_class=5))

    def pixels(ids: np.ndarray) -> Tensor:
        return torch.from_numpy(items[ids]).flatten(1).float() / 255

    return Demo(
        [
            row("raw pixels", pixels),
            row("untrained encoder", lambda ids: features(untrained.encoder, learned.augmentation, items, ids)),
            row("learned encoder", lambda ids: features(learned.backbone, learned.augmentation, items, ids)),
        ]
    )
