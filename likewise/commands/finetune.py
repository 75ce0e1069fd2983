"""`likewise finetune`: train the encoder and a classifier on a few labels, and compare with training from scratch."""

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from likewise import methods
from likewise.commands.evaluate import renamed
from likewise.data import DataError, Items
from likewise.encoders.features import features
from likewise.locks import LOCK, only_writer
from likewise.pairs.catalog import build_untrained
from likewise.printing import note
from likewise.randomness import generator, number
from likewise.training import optimizers, schedule
from likewise.training.batches import read
from likewise.training.encoder import Encoder, load
from likewise.training.metrics import write_whole
from likewise.training.plan import split
from likewise.training.run import FINE_TUNED, NotFiniteError, RunError, first_not_finite, save_module, save_weights
from likewise.training.trust import mark

FEWEST_STEPS, FEWEST_EPOCHS = 300, 10
WEIGHT_DECAY, WARMUP = 1e-4, 0.05


@dataclass(frozen=True)
class FineTuned:
    """Accuracy after fine-tuning and from scratch, with everything that they depend on."""

    finetuned: float
    scratch: float
    encoder: str
    share: float
    labels: int
    test: int
    classes: int
    epochs: int
    batch_size: int
    lr: float
    seed: int

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def table(self) -> list[list[str]]:
        """Return the table that is printed, the header first."""
        return [
            [f"{self.test:,} test items", f"accuracy with {self.labels:,} labels"],
            ["from scratch", f"{self.scratch:.3f}"],
            ["pre-trained, then fine-tuned", f"{self.finetuned:.3f}"],
        ]

    def note(self) -> str:
        return (
            f"{self.encoder} and a linear classifier, all weights trained; {self.share:.3g} of the labels, "
            f"{self.classes} classes, {self.epochs} epochs of {self.batch_size}, adamw at {self.lr:g}, cosine, "
            f"seed {self.seed}; both are trained in the same way and measured after the last step."
        )


def finetune(
    run: Encoder | str | Path,
    train: Any = None,
    test: Any = None,
    *,
    labels: float = 0.1,
    columns: Mapping[str, str] | None = None,
    epochs: int | None = None,
    batch_size: int = 64,
    lr: float = 0.001,
    seed: int = 0,
    out: str | Path | None = None,
    trust: bool = False,
    progress: bool = True,
) -> FineTuned:
    """Fine-tune a run's encoder with a classifier on a share of the labels, and train the same network from scratch.

    - `train`: labelled data, by default the run's own data.
    - `test`: data to test on, by default the part of `train` that the run held out.
    - `labels`: share of each class's labels to train on; at least one item of each class is used.
    - `columns`: names of arrays or columns in the data, such as {"y": "speaker"}.
    - `out`: new folder for the fine-tuned encoder, which `likewise.load` reads, its classifier and its figures.
    - `trust`: allow the run to name an encoder (`module:callable`) even if it was not made under this account.
    """
    if not 0 < labels <= 1:
        raise ValueError(f"labels must be a share above 0 and at most 1, got {labels:g}")
    if batch_size < 2 or (epochs is not None and epochs < 1) or not lr > 0:
        raise ValueError(
            f"batch size must be at least 2, epochs at least 1 and lr positive, got {batch_size}, {epochs}, {lr:g}"
        )
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    folder = None if out is None else Path(out)
    with nullcontext() if folder is None else _new_folder(folder):
        encoder = run if isinstance(run, Encoder) else load(run, trust=trust)
        recipe, about = encoder.recipe, encoder.about
        items = encoder.open(train, columns=columns, progress=progress)
        tested = items if test is None else encoder.open(test, columns=columns, progress=progress)
        if items.labels is None or tested.labels is None:
            raise DataError(f"fine-tuning needs labels, got none in {(items if items.labels is None else tested).name}")
        train_ids, test_ids = split(items, recipe) if test is None else (np.arange(len(items)), np.arange(len(tested)))
        test_ids = test_ids[tested.labels[test_ids] >= 0]
        picked = pick_labelled(items.labels, train_ids, labels, seed)
        if len(picked) < 2 or not len(test_ids):
            got = f"{len(picked)} and {len(test_ids)}"
            raise DataError(
                f"fine-tuning needs at least 2 labelled items and one to test on, got {got} in {items.name}"
            )
        per_epoch = max(1, len(picked) // batch_size)
        epochs = epochs or max(FEWEST_EPOCHS, -(-FEWEST_STEPS // per_epoch))
        answers = torch.from_numpy(renamed(tested, items)[test_ids])

        def accuracy(backbone: nn.Module, name: str) -> tuple[float, nn.Sequential]:
            torch.manual_seed(number(seed, "classifier"))
            classifier = nn.Linear(backbone.dim, len(items.classes))  # type: ignore[arg-type]
            network = nn.Sequential(backbone, classifier).to(torch.accelerator.current_accelerator() or "cpu")
            steps = _batches(picked, batch_size, epochs, seed)
            total = per_epoch * epochs
            console = Console(stderr=True, quiet=not progress)
            _fit(network, encoder, items, track(steps, name, total, console=console, transient=True), total, lr, seed)
            if weight := first_not_finite(network):
                raise NotFiniteError(
                    f"{name} gave weights that are not finite, such as {weight}; lower --lr, which is {lr:g}"
                )
            predicted = features(network, encoder.augmentation, tested, test_ids).argmax(dim=1)
            return float((predicted == answers).double().mean()), network

        fresh = build_untrained(recipe.with_values({"seed": seed}), about).encoder
        from_scratch, _ = accuracy(fresh, "from scratch")
        finetuned, network = accuracy(copy.deepcopy(encoder.backbone), "fine-tuning")
        result = FineTuned(
            finetuned=finetuned,
            scratch=from_scratch,
            encoder=f"{recipe.encoder.name} by {recipe.method}",
            share=labels,
            labels=len(picked),
            test=len(test_ids),
            classes=len(items.classes),
            epochs=epochs,
            batch_size=min(batch_size, len(picked)),
            lr=lr,
            seed=seed,
        )
        if folder is not None:
            if words := mark(folder, recipe.encoder.name):
                note(words)
            save_weights(folder, {"encoder": network[0], "head": encoder.head}, about)
            save_module(folder / "classifier.safetensors", network[1], {"classes": json.dumps(items.classes)})
            write_whole(folder / FINE_TUNED, json.dumps(result.as_dict(), indent=2) + "\n")
            write_whole(
                folder / "recipe.toml", methods.to_toml(recipe)
            )  # written last: a folder with a recipe is complete
        return result


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Lock a new or empty folder for this process."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"--out must be a new folder, got the file {folder}")
    with only_writer(folder, folder / LOCK):
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RunError(f"--out must be a new folder, got {folder}, which is not empty")
        yield


def pick_labelled(labels: NDArray[np.int64], ids: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Return a random share of the ids of each class, at least one of each."""
    rng = generator(seed, "labels")
    picked = []
    for label in np.unique(labels[ids]):
        members = ids[labels[ids] == label]
        order = torch.randperm(len(members), generator=rng).numpy()
        if label >= 0:
            picked.append(members[order[: max(1, round(share * len(members)))]])
    return np.sort(np.concatenate(picked)) if picked else ids[:0]


def _batches(ids: NDArray[np.int64], size: int, epochs: int, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each step with the ids of its batch; the last incomplete batch of an epoch is dropped."""
    size = min(size, len(ids))
    per_epoch = len(ids) // size
    for epoch in range(epochs):
        order = torch.randperm(len(ids), generator=generator(seed, "fine-tuning order", epoch)).numpy()
        for place in range(per_epoch):
            yield epoch * per_epoch + place, ids[order[place * size : (place + 1) * size]]


def _fit(network: nn.Sequential, encoder: Encoder, items: Items, steps: Any, total: int, lr: float, seed: int) -> None:
    network.train()
    optimizer = optimizers.build("adamw", network, lr=lr, momentum=0.9, weight_decay=WEIGHT_DECAY)
    device = next(network.parameters()).device
    assert items.labels is not None
    for step, ids in steps:
        for group in optimizer.param_groups:
            group["lr"] = lr * schedule.factor(step, total, schedule="cosine", warmup=WARMUP)
        torch.manual_seed(number(seed, "fine-tuning dropout", step))
        drawn = encoder.augmentation.draw(len(ids), generator(seed, "fine-tuning view", step))
        rng = generator(seed, "fine-tuning window", step)
        rows, _ = read(items.main, ids, encoder.about["size"], len(ids), slice(None), rng)
        views: Tensor = encoder.augmentation.apply(rows.to(device), drawn)
        loss = cross_entropy(network(views), torch.from_numpy(items.labels[ids]).to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
