"""Train one run on small handwritten digits, and evaluate its encoder on held-out digits."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.encoders.features import features
from likewise.evaluation.few_labels import few_labels
from likewise.evaluation.geometry import alignment, geometry
from likewise.evaluation.knn import knn
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import build_tower
from likewise.randomness import generator
from likewise.training.about import fitted
from likewise.training.plan import Plan, make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from studies.page import measured_once

SOURCE = "mnist5k"
SEEDS = (0, 1)
K, VOTE = 20, 0.07  # of the k-NN
PER_CLASS, DRAWS = 5, 20
SETTINGS: dict[str, Any] = {
    "data.size": 14,  # a quarter of the pixels, a third of the time
    "encoder.name": "resnet_tiny",
    "encoder.head": "mlp_bn",
    "optimizer.lr": 0.003,
    "training.batch_size": 128,
    "training.checkpoint_every": 1_000_000,
    "training.evaluate_every": 1_000_000,
}


def learn(study: str, method: str, settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train with these settings beside the common ones, and measure the encoder of the last step."""
    asked = SETTINGS | dict(settings) | {"seed": seed}

    def measurement() -> dict[str, float]:
        ready = make_plan(SOURCE, method, asked, progress=False)
        with tempfile.TemporaryDirectory() as folder:
            # The loop itself, because `likewise.train` would also write a report that nobody reads.
            run = Trainer(ready, Path(folder), Observer()).run()
            encoder, last = run.encoder, run.metrics[-1]
        network = torch.nn.Sequential(encoder.backbone, encoder.head).eval()
        everything = np.arange(len(ready.items))
        embeddings = features(encoder.backbone, encoder.augmentation, ready.items, everything)
        images = torch.from_numpy(ready.items[ready.test])
        with torch.no_grad():
            first, second = (
                network(encoder.augmentation.apply(images, encoder.augmentation.draw(len(images), rng)))
                for rng in (generator(seed, f"studied {which} view") for which in ("first", "second"))
            )
            compared = encoder.head(embeddings[ready.test])
        return judge(ready, embeddings) | {
            "alignment": alignment(first, second),
            "uniformity": geometry(compared).uniformity,
            "consistency": last["consistency"],
        }

    return measured_once(study, {"method": method} | asked, measurement)


def references(study: str, test: float, seed: int) -> dict[str, dict[str, float]]:
    """The same figures of raw pixels and of the encoder before training."""
    asked = SETTINGS | {"data.test": test, "seed": seed}

    def measurement() -> dict[str, Any]:
        ready = make_plan(SOURCE, "simclr", asked, progress=False)
        everything, about = np.arange(len(ready.items)), fitted(ready.recipe, ready.items, ready.train)
        backbone = build_tower(ready.recipe, about).encoder
        augmentation = MODALITIES[about["modality"]].augmentation(ready.recipe, about)
        untrained = features(backbone, augmentation, ready.items, everything)
        pixels = torch.from_numpy(ready.items[everything]).flatten(1).float() / 255
        return {"raw pixels": judge(ready, pixels), "untrained encoder": judge(ready, untrained)}

    return measured_once(study, {"method": "none"} | asked, measurement)


def judge(ready: Plan, embeddings: Tensor) -> dict[str, float]:
    """How well labels of the held-out items follow from embeddings of all items (n, d)."""
    assert ready.items.labels is not None
    labels = torch.from_numpy(ready.items.labels)
    rows = (embeddings[ready.train], labels[ready.train], embeddings[ready.test], labels[ready.test])
    return {
        "knn": knn(*rows, k=K, temperature=VOTE).accuracy,
        "five": few_labels(*rows, per_class=PER_CLASS, draws=DRAWS).accuracy,
    }


def words(train: int, test: int, head: str = f"{SETTINGS['encoder.head']} head", seeds: tuple[int, ...] = SEEDS) -> str:
    """What every figure depends on, and the same in all studies of digits."""
    named = " and ".join(map(str, seeds))
    split = f"another split for each of the seeds {named}" if len(seeds) > 1 else f"seed {named}"
    mean = "; the mean over the seeds, and each in brackets" if len(seeds) > 1 else ""
    return (
        f"`{SOURCE}`, {SETTINGS['data.size']}×{SETTINGS['data.size']} pixels, {train:,} images to train on, {test:,} "
        f"held out, {split}; {SETTINGS['encoder.name']} (small stem), "
        f"{head} to 128, greyscale augmentations, AdamW at {SETTINGS['optimizer.lr']:g}, "
        "cosine schedule. Figures are of the backbone's features after the last step: weighted k-NN "
        f"(k {K}, T {VOTE:g}, all {train:,} labels), and the nearest class mean of {PER_CLASS} labels a class "
        f"(mean of {DRAWS} draws){mean}."
    )
