"""`train`: from a source to a run's folder with an encoder in it.

The loop takes steps, writes down what they show, keeps checkpoints, and ends well when it is told to.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from likewise import ranks
from likewise.evaluation.knn import knn
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.training import checkpoint, plan, schedule
from likewise.training.batches import Batches
from likewise.training.health import SOFTMAX, Health, Signs, chance, geometry
from likewise.training.learner import Learner, Taken
from likewise.training.metrics import Metrics, write_whole
from likewise.training.plan import Plan
from likewise.training.progress import Observer, Screen
from likewise.training.recipe import Recipe, RecipeError, parse_settings, read_toml
from likewise.training.run import Run, RunError, features, preprocessing, save_weights
from likewise.training.signals import Interrupted, end_on_signal

MAY_CHANGE = ("data.source", "data.workers", "data.cache", "training.devices")  # when a run is resumed
KNN_TRAIN, KNN_TEST = 5000, 1000  # at most so many items are looked at while training


class NotFiniteError(ValueError):
    """The loss is no number any more."""


def train(
    source: Any,
    *,
    method: str | None = None,
    pairs: str | None = None,
    keys: str | None = None,
    dictionary: str | None = None,
    loss: str | None = None,
    encoder: str | None = None,
    init: str | Path | None = None,
    out: str | Path | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    devices: int | None = None,
    precision: str | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | list[str] | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Run:
    """Pre-train an encoder on a source of images or vectors, and leave it in the folder `out`.

    What is not given comes from the recipe file, then from the method, then is chosen for the data;
    `settings` change any value of the recipe (`{"dictionary.size": 4096}`). With `resume`, a run that was
    cut off goes on from its last checkpoint, as if nothing had happened.
    """
    written: dict[str, Any] = read_toml(recipe) if recipe is not None else {}
    named = {
        "pairs.kind": pairs,
        "keys.by": keys,
        "dictionary.kind": dictionary,
        "loss.kind": loss,
        "encoder.name": encoder,
        "encoder.init": None if init is None else str(init),
        "training.epochs": epochs,
        "training.steps": steps,
        "training.batch_size": batch_size,
        "optimizer.lr": lr,
        "loss.temperature": temperature,
        "seed": seed,
        "training.devices": devices,
        "training.precision": precision,
    }
    given = {key: value for key, value in named.items() if value is not None}
    given |= parse_settings(settings) if isinstance(settings, list) else dict(settings or {})
    if epochs is not None and steps is not None:
        raise RecipeError(f"give epochs or steps, not both, got {epochs} epochs and {steps} steps")
    if method is not None and written.get("method", method) != method:
        raise RecipeError(f"the recipe {recipe} is of method {written['method']}, got method {method}")
    if epochs is not None:
        written.pop("training.steps", None)  # what is said here counts, not what the file says
    if "data.size" in given:
        written.pop("data.stored", None)
    asked = written | given
    Recipe().with_values(asked)  # refuses unknown keys before anything is opened
    if isinstance(source, str | os.PathLike):
        asked["data.source"] = os.fspath(source)
    method = method if method is not None else asked.pop("method", None)
    observer = Screen() if progress and ranks.is_first() else Observer()
    folder = _folder(source, method, out, resume)
    if resume and (folder / "recipe.toml").exists():
        method, asked = _resumed(folder, method, asked)
    ready = plan.make_plan(source, method, asked, progress=progress and ranks.is_first())
    return Trainer(ready, folder, observer).run(resume)


class Trainer:
    """One run, from its plan to its folder."""

    def __init__(self, ready: Plan, folder: Path, observer: Observer) -> None:
        self.plan, self.recipe, self.folder, self.observer = ready, ready.recipe, folder, observer
        options = self.recipe.training
        self.fabric = build_fabric(self.recipe)
        self.fabric.launch()
        if not self.fabric.is_global_zero:
            self.observer = Observer()
        train = torch.from_numpy(ready.train)
        labels = None if ready.items.labels is None else torch.from_numpy(ready.items.labels)[train]
        groups = labels if ready.items.groups is None else torch.from_numpy(ready.items.groups)[train]
        make_groups = self.recipe.pairs.kind == "groups" and groups is not None
        self.batches = Batches(
            ready.items,
            ready.train,
            Groups(groups) if make_groups and groups is not None else Views(),
            size=options.batch_size,
            seed=self.recipe.seed,
            workers=self.recipe.data.workers,
        )
        self.about = preprocessing(self.recipe, ready.items, ready.train)
        self.learner = Learner(self.recipe, self.about, self.batches, labels, self.fabric)
        self.total = options.steps or options.epochs * self.batches.per_epoch
        self.health = Health()
        self.first_bad = torch.full((), -1, device=self.fabric.device)  # the first step whose loss is no number

    def run(self, resume: bool) -> Run:
        """Train to the end, or go on to it."""
        first = self._start(resume)
        if first >= self.total:
            self.observer.say(f"the run in {self.folder} was finished already, after {first:,} steps")
            return self._finish()
        self.observer.plan(self._plan_lines(first))
        metrics = Metrics(self.folder, first) if self.fabric.is_global_zero else None
        self.observer.start(first, self.total)
        try:
            with end_on_signal() as told:
                self._loop(first, metrics, told)
        except torch.OutOfMemoryError:
            raise RunError(
                f"the device ran out of memory; lower training.batch_size, {self.recipe.training.batch_size} now"
            ) from None
        finally:
            self.observer.stop()
            if metrics is not None:
                metrics.close()
        return self._finish()

    def _finish(self) -> Run:
        """Write the weights, also those that a run which ended after its last checkpoint still owes."""
        if self.fabric.is_global_zero:
            tower = self.learner.tower
            save_weights(self.folder, tower.encoder, tower.head, self.about)
        self.fabric.barrier()
        return Run(self.folder)

    def _loop(self, first: int, metrics: Metrics | None, told: threading.Event) -> None:
        options = self.recipe.training
        began, since, seen = time.monotonic(), time.monotonic(), first
        for batch in self.batches.ahead(first, self.total):
            taken = self.learner.step(batch, self.total)
            done = batch.step + 1
            bad = ~taken.loss.isfinite() & (self.first_bad < 0)
            self.first_bad = torch.where(bad, batch.step, self.first_bad)
            last = done == self.total
            evaluates = done % options.evaluate_every == 0 or last
            logs = done % options.log_every == 0 or evaluates
            if logs:
                row, notes = self._look(taken, done)
                if evaluates:
                    row |= self._evaluate()
                now = time.monotonic()
                row["items_per_second"] = (done - seen) * options.batch_size / (now - since)
                row["seconds_left"] = (now - began) / (done - first) * (self.total - done)
                since, seen = now, done
                if metrics is not None:
                    metrics.write(row)
                self.observer.row(row)
                for note in notes:
                    self.observer.say(note)
            stop = (logs or ranks.count() == 1) and ranks.any_of(told.is_set(), self.fabric.device)
            if done % options.checkpoint_every == 0 or last or stop:
                self._check_finite()
                self._save(done)
            if stop and not last:
                raise Interrupted(f"stopped after step {done:,} of {self.total:,}; --resume goes on from there")

    def _look(self, taken: Taken, done: int) -> tuple[dict[str, Any], list[str]]:
        """A logged step's row, and what is to be said of it."""
        self._check_finite()
        recipe, look_up = self.recipe, taken.look_up
        value = float(ranks.mean(taken.loss))
        candidates = 1.0 + look_up.negatives_a_query()
        if ranks.count() > 1:  # the loss is that of all ranks' queries, so are their candidates
            candidates = float(ranks.mean(taken.loss.new_tensor(candidates)))
        row: dict[str, Any] = {"step": done, "epoch": done / self.batches.per_epoch, "loss": value}
        knows_chance = recipe.loss.kind in SOFTMAX and not recipe.loss.policy
        if knows_chance:
            exact = recipe.dictionary.kind == "batch" and look_up.distinct
            row |= {"candidates": candidates, "chance": chance(candidates)}
            row["bound" if exact else "estimate"] = row["chance"] - value
        temperature = getattr(self.learner.loss, "temperature", None)
        if temperature is not None:
            row["temperature"] = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
        row["lr"] = self.learner.optimizer.param_groups[0]["lr"]
        if self.learner.copy is not None:
            keys = recipe.keys
            row["key_momentum"] = schedule.momentum_at(done - 1, self.total, keys.momentum, keys.schedule)
        meters = self.learner.dictionary.meters()
        row |= meters
        length, largest, alike = geometry(look_up.query, look_up.found.positive)
        signs = Signs(
            step=done,
            total=self.total,
            loss=value,
            loss_kind=recipe.loss.kind,
            similarity=recipe.loss.similarity,
            temperature=row.get("temperature"),
            learnable=recipe.loss.learnable,
            candidates=candidates if knows_chance else None,
            dim=self.learner.tower.head.dim,
            length=length,
            largest=largest,
            alike=alike,
            queue_fill=meters["fill"] if recipe.dictionary.kind == "queue" else None,
        )
        notes = self.health.look(signs)
        return row | ({"health": notes} if notes else {}), notes

    def _evaluate(self) -> dict[str, float]:
        """Consistency, and k-NN accuracy on the held-out part where there are labels."""
        found = {"consistency": self.learner.consistency()}
        items = self.plan.items
        if items.labels is None or not len(self.plan.test):
            return found
        train, test = spread(self.plan.train, KNN_TRAIN), spread(self.plan.test, KNN_TEST)
        encoder, augmentation = self.learner.tower.encoder, self.learner.augmentation
        labels = torch.from_numpy(items.labels)
        if not ((labels[train] >= 0).any() and (labels[test] >= 0).any()):
            return found
        rows = [features(encoder, augmentation, items, ids) for ids in (train, test)]
        return found | {"knn": knn(rows[0], labels[train], rows[1], labels[test]).accuracy}

    def _check_finite(self) -> None:
        """Stop at a loss that is no number, and keep what is needed to look into it: the step and its items."""
        steps = ranks.gather(self.first_bad[None])  # a rank must not stop alone: the others would wait for it
        bad = steps[steps >= 0]
        if not len(bad):
            return
        step = int(bad.min())
        ids = self.plan.train[self.batches.places(step).numpy()]
        paths = self.plan.items.paths
        found = {"step": step + 1, "ids": ids.tolist(), "paths": None if paths is None else [paths[i] for i in ids]}
        if self.fabric.is_global_zero:
            (self.folder / "not_finite.json").write_text(json.dumps(found))
        raise NotFiniteError(
            f"the loss was not finite at step {step + 1}; its items are in {self.folder / 'not_finite.json'}; "
            "lower optimizer.lr, set optimizer.clip = 1.0, or raise loss.temperature"
        )

    def _start(self, resume: bool) -> int:
        """Make the folder, or load the last whole checkpoint; the number of steps already done."""
        fingerprint = self.plan.items.fingerprint
        found = None
        if resume:
            found = checkpoint.newest(
                self.folder / "checkpoints",
                lambda path, reason: self.observer.say(f"{path.name} is passed over: {reason}"),
            )
            if found is None:
                self.observer.say(f"there is no checkpoint in {self.folder}: starting afresh")
        if found is not None and found.state["fingerprint"] != fingerprint:
            raise RunError(f"the data of {self.folder} has changed since the run began; start another run on it")
        if self.fabric.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "recipe.toml", self.recipe.toml())
            skipped = "".join(f"{item.path}\t{item.reason}\n" for item in self.plan.items.skipped)
            write_whole(self.folder / "skipped.txt", skipped)
        self.fabric.barrier()
        if found is None:
            return 0
        self.health.said.update(found.state["said"])
        self.learner.load_state(checkpoint.unflatten(found.tensors, found.state["learner"]))
        return found.step

    def _save(self, done: int) -> None:
        if self.fabric.is_global_zero:
            tensors, rest = checkpoint.flatten(self.learner.state())
            said = sorted(self.health.said)
            state = {"learner": rest, "fingerprint": self.plan.items.fingerprint, "said": said}
            checkpoint.save(self.folder / "checkpoints", done, tensors, state)
        self.fabric.barrier()

    def _plan_lines(self, first: int) -> list[str]:
        parameters = sum(parameter.numel() for parameter in self.learner.tower.parameters())
        batch = self.batches.at(first)
        idle = self.learner.rehearse(batch)  # also to warm up
        if idle and ranks.count() > 1:
            raise RecipeError(
                f"over ranks every parameter of the encoder must have a part in its output, got {idle[0]} without; "
                "remove it or set its requires_grad to False"
            )
        began = time.monotonic()
        self.learner.rehearse(batch)
        seconds = (time.monotonic() - began) * (self.total - first)
        device = str(self.fabric.device) if self.fabric.world_size == 1 else f"{self.fabric.world_size} ranks"
        return plan.lines(self.plan, self.total, parameters, seconds, device)


def build_fabric(recipe: Recipe) -> Fabric:
    """Devices, ranks and precision; under torchrun or SLURM those that were launched."""
    found = ranks.launched()
    devices = found.on_this_machine if found else recipe.training.devices
    nodes = found.world // devices if found else 1
    ddp = DDPStrategy(process_group_backend=None if torch.cuda.is_available() else "gloo")
    try:
        return Fabric(
            accelerator="auto",
            devices=devices,
            num_nodes=nodes,
            strategy=ddp if devices * nodes > 1 else "auto",
            precision=recipe.training.precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise RecipeError(f"{devices} devices on {nodes} machines cannot be used: {error}") from None


def spread(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many ids, evenly from first to last."""
    return ids if len(ids) <= most else ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]


def _folder(source: Any, method: str | None, out: str | Path | None, resume: bool) -> Path:
    """The run's folder: free, or a run to go on with."""
    name = Path(os.fspath(source)).stem if isinstance(source, str | os.PathLike) else "run"
    folder = Path(out) if out is not None else Path("runs") / "-".join(filter(None, [name or "run", method]))
    if folder.exists() and not folder.is_dir():
        raise RunError(f"--out must be a folder, got the file {folder}")
    if not folder.exists() or not any(folder.iterdir()) or not ranks.is_first():
        return folder
    if not (folder / "recipe.toml").exists():
        raise RunError(f"--out must be a new folder or a run, got {folder}, which holds other files")
    if not resume:
        raise RunError(f"{folder} holds a run already: --resume goes on with it, another --out starts a new one")
    return folder


def _resumed(folder: Path, method: str | None, asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The values of the run in `folder`; what is asked for must not differ, but for what changes no result."""
    kept = read_toml(folder / "recipe.toml")
    before = Recipe().with_values(kept)
    for key, given in {**asked, "method": method or before.method}.items():
        value = Recipe().with_values({key: given}).value(key)
        if key not in MAY_CHANGE and before.value(key) != value:
            raise RecipeError(f"{key} was {before.value(key)!r} in {folder} and cannot become {value!r} on resuming")
    kept.pop("method", None)
    return before.method, kept | {key: value for key, value in asked.items() if key in MAY_CHANGE}
