"""The training loop: from a plan to a run's folder with a trained encoder.

It takes steps, logs metrics, writes checkpoints, and ends cleanly when it is interrupted.
"""

import gc
import json
import shutil
import statistics
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from likewise import methods, modalities, ranks
from likewise.data.items import DataError
from likewise.data.mapped import change_of
from likewise.data.parts import Ids, spread
from likewise.dictionaries import InBatch
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.encoders.features import features
from likewise.evaluation.geometry import geometry
from likewise.evaluation.knn import knn
from likewise.losses.catalog import LOSSES
from likewise.modalities import Modality
from likewise.pairs.catalog import PAIRS, finish
from likewise.pairs.metric import MOST_HELD_OUT, Metric
from likewise.pairs.pairs import Pairs
from likewise.printing import printable
from likewise.training import checkpoint, schedule, trial
from likewise.training.about import fitted
from likewise.training.batches import Batches
from likewise.training.health import LOOKED_AT, Health, Signs, chance, shape_of_batch
from likewise.training.launch import launch
from likewise.training.learner import Learner, Taken
from likewise.training.metrics import Metrics, write_whole
from likewise.training.pace import Limit, Pace, timed
from likewise.training.plan import Plan, with_steps
from likewise.training.plan_lines import lines
from likewise.training.progress import Observer
from likewise.training.run import TRIAL, NotFiniteError, Run, RunError, first_not_finite, read_text, save_weights
from likewise.training.signals import Interrupted, end_on_signal
from likewise.training.trust import mark

KNN_TRAIN, KNN_TEST = 5000, MOST_HELD_OUT  # largest number of items that are evaluated during training
EVALUATION_SHARE = 0.02  # approximate share of the time that evaluation may take
FORWARDS = 3  # a training step costs at least so many forward passes for each view
TRIED_ITEMS = 64  # items that are evaluated on trial, to see how long the evaluation takes


class Trainer:
    """Trains the encoder of one run."""

    def __init__(self, ready: Plan, folder: Path, observer: Observer, *, resume: bool = False) -> None:
        self.plan, self.recipe, self.folder, self.observer = ready, ready.recipe, folder, observer
        self.resume = resume
        options = self.recipe.training
        self.fabric = launch(self.recipe)
        if not self.fabric.is_global_zero:
            self.observer = Observer()
        self.pairs_kind = PAIRS[self.recipe.pairs.kind]
        self.pairs = self._pairs()
        self.batches = self._batches(ready.train, options.batch_size, self.recipe.data.workers)
        self.about = self._about() | self.pairs.about
        self.learner = self._learner()
        self.pace: Pace | None = None  # known if the number of steps was chosen by time
        self.total = options.steps or options.epochs * self.batches.per_epoch
        self.health = Health()
        self.first_bad = torch.full((), -1, device=self.fabric.device)  # the first step whose loss was not finite

    def run(self) -> Run:
        """Train to the end, from the start or from the last checkpoint."""
        first = self._start()
        if first >= self.total:
            self.observer.say(f"the run in {self.folder} was already finished, after {first:,} steps")
            return self._finish()
        metrics: Metrics | None = None
        try:
            with trial.enough_memory(self.batches.size):
                self.observer.plan(self._plan_lines(first))
            metrics = Metrics(self.folder, first, self.observer.say) if self.fabric.is_global_zero else None
            self.observer.start(first, self.total)
            with end_on_signal() as told, trial.enough_memory(self.batches.size):
                self._loop(first, metrics, told)
        finally:
            self.observer.stop()
            if metrics is not None:
                metrics.close()
        return self._finish()

    def _finish(self) -> Run:
        """Write the weights; also those of a run that was interrupted after its last checkpoint."""
        if self.fabric.is_global_zero:
            tower = self.learner.tower
            temperature = getattr(self.learner.loss, "temperature", self.recipe.loss.temperature)
            about = self.about | {"temperature": float(torch.as_tensor(temperature).detach())}
            try:
                save_weights(self.folder, tower.saved, about)  # the encoder is written last: if it exists, all files do
            except RunError as error:
                raise RunError(f"{error}; the last checkpoint is kept, and --resume tries again") from None
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
                    row |= self._evaluate(*self._evaluated())
                now = time.monotonic()
                row["items_per_second"] = (done - seen) * options.batch_size / (now - since)
                row["seconds_left"] = (now - began) / (done - first) * (self.total - done)
                since, seen = now, done
                if metrics is not None:
                    metrics.write(row)
                self.observer.row(row, self.metrics_of(row))
                for note in notes:
                    self.observer.say(note)
            stop = (logs or ranks.count() == 1) and ranks.any_of(told.is_set(), self.fabric.device)
            if done % options.checkpoint_every == 0 or last or stop:
                self._check_finite()
                self._check_weights(done)
                self._check_data()
                self._save(done)
            if stop and not last:
                raise Interrupted(f"stopped after step {done:,} of {self.total:,}; --resume continues from there")

    def _look(self, taken: Taken, done: int) -> tuple[dict[str, Any], list[str]]:
        """Return the row of metrics of a logged step, and notes on the health of the run."""
        self._check_finite()
        recipe, look_ups = self.recipe, taken.look_ups
        value = float(ranks.mean(taken.loss))
        negatives = [look_up.negatives_a_query() * float(look_up.weight) for look_up in look_ups]
        candidates = 1.0 + sum(negatives) / len(negatives)
        if ranks.count() > 1:  # average over ranks, as the loss is
            candidates = float(ranks.mean(taken.loss.new_tensor(candidates)))
        row: dict[str, Any] = {"step": done, "epoch": done / self.batches.per_epoch, "loss": value}
        dictionary = DICTIONARIES[recipe.dictionary.kind]
        knows_chance = LOSSES[recipe.loss.kind].chance_is_log_n and not recipe.loss.policy
        if knows_chance:
            exact = not dictionary.stores and all(look_up.distinct for look_up in look_ups)
            row |= {"candidates": candidates, "chance": chance(candidates)}
            row["bound" if exact else "estimate"] = row["chance"] - value
        row |= self.pairs.measure(look_ups, recipe.loss.similarity)
        temperature = getattr(self.learner.loss, "temperature", None)
        if temperature is not None:
            row["temperature"] = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
        row["lr"] = self.learner.optimizer.param_groups[0]["lr"]
        if self.learner.copy is not None:
            keys = recipe.keys
            row["key_momentum"] = schedule.momentum_at(done - 1, self.total, keys.momentum, keys.schedule)
        meters = self.learner.meters()
        row |= meters
        query, valid = look_ups[0].query, look_ups[0].is_valid.nonzero()[:, 0]
        shown = valid[
            :: max(1, len(valid) // LOOKED_AT)
        ]  # rows from the whole batch, not only from its first sequences
        length, largest, alike = shape_of_batch(query[shown], look_ups[0].found.positive[shown])
        signs = Signs(
            step=done,
            total=self.total,
            loss=value,
            similarity="" if self.pairs_kind.needs_frames else LOSSES[recipe.loss.kind].similarity(recipe.loss),
            temperature=row.get("temperature"),
            learnable=recipe.loss.learnable,
            candidates=candidates if knows_chance else None,
            dim=query.shape[1],
            length=length,
            largest=largest,
            alike=alike,
            queue_fill=meters["fill"] if dictionary.fills else None,
        )
        notes = self.health.look(signs)
        return row | ({"health": notes} if notes else {}), notes

    def metrics_of(self, row: Mapping[str, Any]) -> list[Metric]:
        """Return the figures in a row that the pairs have measured, with their descriptions."""
        return self.pairs_kind.metrics(row, self.recipe)

    @torch.no_grad()
    def measure_held_out(self, ids: Ids) -> dict[str, Any]:
        """Measure the pairs of one batch of held-out items; empty if there are too few."""
        size = min(self.batches.size, len(self.plan.items.main.visits(ids, self.batches.window)))
        if ranks.count() > 1 or size < 2:
            return {}
        batch = self._batches(ids, size, workers=0).at(0)
        query, key, row_ids = self.learner.encode(batch)
        look_ups = self.learner.look_ups(query, InBatch().lookup(key, row_ids), row_ids, batch)
        return self.pairs.measure(look_ups, self.recipe.loss.similarity)

    def _evaluated(self) -> tuple[Ids, Ids]:
        """Return the items that an evaluation looks at, and the labelled training items that they are compared with."""
        options, items, held_out = self.recipe.training, self.plan.items, len(self.plan.test) > 0
        # Limit the items, so that evaluation takes a small share of the time of the steps before it.
        share = EVALUATION_SHARE / items.main.windows_per_row(self.batches.window)
        most = max(64, int(share * FORWARDS * options.evaluate_every * options.batch_size))
        test = spread(self.plan.test if held_out else self.plan.train, min(KNN_TEST, most // 2))
        if items.labels is None or not held_out:
            return test, test[:0]
        return test, spread(self.plan.train, min(KNN_TRAIN, most - len(test)))

    def _evaluate(self, test: Ids, train: Ids) -> dict[str, float]:
        """Measure consistency and the geometry of held-out items and, if there are labels, their k-NN accuracy."""
        figures = {"consistency": self.learner.consistency()}
        items, encoder, augmentation = self.plan.items, self.learner.tower.encoder, self.learner.augmentation
        finish(self.recipe, encoder, augmentation, items, self.plan.train)
        network = partial(features, encoder, augmentation, items)
        rows = network(test)
        if not rows.isfinite().all():
            return figures
        if len(self.plan.test):
            figures |= self.pairs.evaluate(self.learner.tower, items, test, rows)
        shape = geometry(rows)
        figures |= {"effective_rank": shape.effective_rank, "uniformity": shape.uniformity, "alike": shape.alike}
        if items.labels is None or not len(train):
            return figures
        labels = torch.from_numpy(items.labels)
        if not ((labels[train] >= 0).any() and (labels[test] >= 0).any()):
            return figures
        known = network(train)
        if known.isfinite().all():
            vote = knn(known, labels[train], rows, labels[test])
            figures |= {"knn": vote.accuracy, "knn_items": vote.test, "knn_labels": vote.train}
        return figures

    def _check_finite(self) -> None:
        """Stop the run if a loss was not finite, and write the step and its items to not_finite.json."""
        steps = ranks.gather(self.first_bad[None])  # all ranks must stop together, or the others would wait
        bad = steps[steps >= 0]
        if not len(bad):
            return
        step = int(bad.min())
        ids = self.plan.train[self.batches.places(step).numpy()]
        paths = self.plan.items.paths
        details = {"step": step + 1, "ids": ids.tolist(), "paths": None if paths is None else [paths[i] for i in ids]}
        if self.fabric.is_global_zero:
            (self.folder / "not_finite.json").write_text(json.dumps(details))
        raise NotFiniteError(
            f"the loss was not finite at step {step + 1}; its items are in {self.folder / 'not_finite.json'}; "
            "lower optimizer.lr, set optimizer.clip = 1.0, or raise loss.temperature"
        )

    def _check_weights(self, done: int) -> None:
        """Stop the run before weights that are not finite are saved: no loss shows the effect of the last step."""
        name = first_not_finite(self.learner.tower) or first_not_finite(self.learner.loss)
        if ranks.any_of(bool(name), self.fabric.device):
            raise NotFiniteError(
                f"the weights were not finite after step {done:,}{f', such as {name}' * bool(name)}; "
                "lower optimizer.lr, or set optimizer.clip = 1.0"
            )

    def _check_data(self) -> None:
        """Stop the run, on all ranks, if the file that items are read from has changed since it was opened."""
        words = change_of(self.plan.items.array)
        if ranks.any_of(bool(words), self.fabric.device):
            raise DataError(
                f"the data changed during training: {words or 'another rank has noticed it'}; "
                "restore it, and --resume continues from the last checkpoint"
            )

    def _pairs(self) -> Pairs:
        """Return the recipe's pairs, with what they fitted on the data, such as a tokenizer.

        A resumed run reads it from its folder. Otherwise the first rank fits it and sends it to the others.
        """
        files: dict[str, str] = {}
        if self.fabric.is_global_zero:
            existing = [name for name in self.pairs_kind.kept_files if self.resume and (self.folder / name).exists()]
            files = {name: read_text(self.folder / name) for name in existing}
            if len(files) < len(self.pairs_kind.kept_files):
                files = self.pairs_kind.fit(self.plan.items, self.plan.train, self.recipe)
        files = self.fabric.broadcast(files)
        pairs = self.pairs_kind.build(self.plan.items, self.plan.train, self.recipe, files)
        for note in pairs.notes:
            self.observer.say(note)
        return pairs

    def _about(self) -> dict[str, Any]:
        """Return the pre-processing and a description of the data; a resumed run keeps what is in its folder."""
        about: dict[str, Any] = {}
        if self.fabric.is_global_zero:
            kept = self.modality.kept_in(self.folder) if self.resume else {}
            about = fitted(self.recipe.with_values(kept), self.plan.items, self.plan.train)
        return self.fabric.broadcast(about)

    @property
    def modality(self) -> Modality:
        return modalities.of(self.plan.items.main)

    @property
    def files(self) -> dict[str, str]:
        """The content of the files with what was fitted, such as a tokenizer, by name."""
        return self.modality.files_of(self.about) | self.pairs.files

    @property
    def fitted_digest(self) -> str:
        """A digest of what was fitted, such as a tokenizer, so that a resumed run can compare it."""
        return self.modality.digest(self.about) or self.pairs.digest

    def _learner(self) -> Learner:
        """Return the learner of the recipe, before its first step."""
        all_labels = self.plan.items.labels
        labels = None if all_labels is None else torch.from_numpy(all_labels)[torch.from_numpy(self.plan.train)]
        return Learner(self.recipe, self.about, self.batches, labels, self.fabric)

    def _batches(self, ids: Ids, size: int, workers: int) -> Batches:
        """Return the batches of some items."""
        items, recipe = self.plan.items, self.recipe
        grid = self.pairs_kind.grid(items, recipe)
        options = {"size": size, "seed": recipe.seed, "workers": workers, "window": recipe.pairs.window, "grid": grid}
        return Batches(items, ids, self.pairs, **options)

    def _start(self) -> int:
        """Create the folder, or load the last intact checkpoint; return the number of steps already done."""
        fingerprint = self.plan.items.fingerprint
        saved = None
        if self.resume:
            saved = checkpoint.newest(
                self.folder / "checkpoints",
                lambda path, reason: self.observer.say(f"{path.name} is skipped: {reason}"),
            )
            if saved is None:
                self.observer.say(f"there is no checkpoint in {self.folder}: starting from the beginning")
        if saved is not None and saved.state["fingerprint"] != fingerprint:
            raise RunError(f"the data is not that of {self.folder}, or has changed since; start a new run on it")
        if saved is not None and saved.state.get("tokenizer", "") != self.fitted_digest:
            raise RunError(f"the tokenizer.json in {self.folder} is not the one that the run started with")
        if self.fabric.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "recipe.toml", methods.to_toml(self.recipe))
            # `printable` keeps each file on one line, whatever its name contains.
            skipped = "".join(f"{printable(s.path)}\t{printable(s.reason)}\n" for s in self.plan.items.skipped)
            write_whole(self.folder / "skipped.txt", skipped)
            if note := mark(self.folder, self.recipe.encoder.name):
                self.observer.say(note)
            for name, text in self.files.items():
                write_whole(self.folder / name, text)
        self.fabric.barrier()
        if saved is None:
            return 0
        self.health.said.update(saved.state["said"])
        self.learner.load_state(checkpoint.unflatten(saved.tensors, saved.state["learner"]))
        return saved.step

    def _save(self, done: int) -> None:
        if self.fabric.is_global_zero:
            self._write_checkpoint(self.folder / "checkpoints", done)
        self.fabric.barrier()

    def _write_checkpoint(self, folder: Path, done: int) -> None:
        tensors, rest = checkpoint.flatten(self.learner.state())
        said = sorted(self.health.said)
        state = {"learner": rest, "fingerprint": self.plan.items.fingerprint, "said": said}
        state |= {"tokenizer": self.fitted_digest}
        checkpoint.save(folder, done, tensors, state)

    def choose_length(self, limit: Limit, report_items: int) -> None:
        """Measure the speed, and choose the number of steps so that the command ends within its time limit.

        Its report will embed `report_items` items. Measuring trains the learner, so a new one is built afterwards. With
        several ranks the first one decides.
        """
        with self.observer.waiting_for("measuring the speed"), trial.enough_memory(self.batches.size):
            warm_up = timed(lambda: self._warm_up(0))
            pace = self.fabric.broadcast(self._measure(limit, report_items))
        left = self.fabric.broadcast(limit.left - warm_up)  # the new learner has to warm up again
        choice = limit.choice(pace, left, self.recipe.training, self.batches.per_epoch)
        self.plan, self.pace = with_steps(self.plan, choice), pace
        self.recipe, self.total, self.health = self.plan.recipe, choice.value, Health()
        del self.learner  # free its memory before another is built; a cached method of it refers to it in a circle
        gc.collect()
        self.learner = self._learner()

    def _measure(self, limit: Limit, report_items: int) -> Pace:
        """Take steps, log, evaluate and save on trial, and return how long each takes."""
        firsts = sorted({0, self.learner.grows_at})  # early steps may be faster; half of all steps are early then
        tried = [trial.take_steps(self.learner, self.batches, limit.trial / len(firsts), first) for first in firsts]
        taken = tried[-1][1]
        step, slowest = statistics.fmean(seconds for seconds, _ in tried), max(seconds for seconds, _ in tried)
        logs = [timed(lambda: self._look(taken, 1)) for _ in range(3)]
        test, train = self._evaluated()
        some = spread(test, TRIED_ITEMS)
        evaluation = min(timed(lambda: self._evaluate(some, spread(train, TRIED_ITEMS))) for _ in range(2))
        network, augmentation = self.learner.tower.encoder, self.learner.augmentation
        embedding = timed(lambda: features(network, augmentation, self.plan.items, some)) / len(some)
        # The bound of a step: a few items are embedded less efficiently than many.
        windows = self.plan.items.main.windows_per_row(self.batches.window)
        embedding = min(embedding, slowest * windows / (FORWARDS * self.batches.size))
        checkpoint = 0.0
        if self.fabric.is_global_zero:
            folder = self.folder / TRIAL  # beside the checkpoints, as another disk may be faster or slower
            checkpoint = timed(lambda: self._write_checkpoint(folder, 0))
            shutil.rmtree(folder)
        report = evaluation + embedding * report_items
        return Pace(step, min(logs), evaluation + embedding * (len(test) + len(train)), checkpoint, report)

    def _warm_up(self, first: int) -> None:
        if self.recipe.training.compile:
            self.observer.say("compiling the encoder first, which can take a minute")
        trial.check_gradients(self.learner, self.batches, first)

    def _plan_lines(self, first: int) -> list[str]:
        parameters = sum(parameter.numel() for parameter in self.learner.tower.parameters())
        if self.pace is not None:
            seconds = self.pace.seconds(self.total, self.recipe.training)
        else:
            self._warm_up(first)
            seconds = self._rehearsed(first)
        if first:
            self.observer.say(f"continuing after step {first:,} of {self.total:,}")
        return lines(self.plan, self.total, parameters, seconds, self.where())

    def _rehearsed(self, first: int) -> float:
        """Return about how many seconds the steps from `first` on take; early steps may be faster than later ones."""
        grows_at = max(first, self.learner.grows_at)
        parts = [(start, end) for start, end in ((first, grows_at), (grows_at, self.total)) if start < end]
        return sum((end - start) * trial.rehearsed_step(self.learner, self.batches, start, end) for start, end in parts)

    def where(self) -> str:
        """Return the device, or the number of ranks, as text."""
        world = self.fabric.world_size
        return str(self.fabric.device) if world == 1 else f"{world} ranks of {self.fabric.device.type}"
