"""The loop of a run, from its plan to a folder with an encoder in it.

It takes steps, writes down what they show, keeps checkpoints, and ends well when it is told to.
"""

import hashlib
import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likewise import ranks
from likewise.data import Items
from likewise.data.items import Captions as Texts
from likewise.data.items import DataError
from likewise.data.mapped import change_of
from likewise.data.sequences import Sequences
from likewise.data.tokens import PADDING, Tokenizer
from likewise.dictionaries import InBatch
from likewise.encoders import TEXT_ENCODERS
from likewise.evaluation.cross_modal import cross_modal
from likewise.evaluation.geometry import geometry
from likewise.evaluation.knn import knn
from likewise.pairs.captions import Captions, flat, matches
from likewise.pairs.future import Future
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.printing import printable
from likewise.recipe import RecipeError
from likewise.training import checkpoint, plan, schedule
from likewise.training.batches import Batches, Pairs, visits
from likewise.training.features import evaluating, features, place_of, text_features
from likewise.training.health import LOOKED_AT, SOFTMAX, Health, Signs, chance, shape_of_batch
from likewise.training.launch import launch
from likewise.training.learner import Learner, Taken
from likewise.training.metrics import Metrics, write_whole
from likewise.training.plan import Plan, spread
from likewise.training.plan_lines import lines
from likewise.training.progress import Observer
from likewise.training.run import (
    NotFiniteError,
    Run,
    RunError,
    first_not_finite,
    preprocessing,
    read_text,
    save_weights,
    save_words,
)
from likewise.training.scores import LookUp
from likewise.training.signals import Interrupted, end_on_signal
from likewise.training.towers import CaptionTower
from likewise.training.trust import mark

KNN_TRAIN, KNN_TEST = 5000, 1000  # at most so many items are looked at while training
EVALUATION_SHARE = 0.02  # of the time, about


class Captioned(NamedTuple):
    """Images and their captions, each caption once, in one space."""

    images: Tensor  # (n, d)
    texts: list[str]
    words: Tensor  # (m, d), of the texts
    pairs: Tensor  # (p, 2): rows of an image and of a caption that it has


class Trainer:
    """One run, from its plan to its folder."""

    def __init__(self, ready: Plan, folder: Path, observer: Observer, *, resume: bool = False) -> None:
        self.plan, self.recipe, self.folder, self.observer = ready, ready.recipe, folder, observer
        self.resume = resume
        options = self.recipe.training
        self.fabric = launch(self.recipe)
        if not self.fabric.is_global_zero:
            self.observer = Observer()
        train = torch.from_numpy(ready.train)
        labels = None if ready.items.labels is None else torch.from_numpy(ready.items.labels)[train]
        self.tokenizer = self._tokenizer() if self.recipe.pairs.kind == "captions" else None
        pairs = self._pairs(labels)
        # Frames of two windows of one sequence are then the same frames or others, and their ids say which.
        self.grid = plan.hop_of(self.recipe, ready.items) if isinstance(pairs, Future) else 1
        self.batches = Batches(
            ready.items,
            ready.train,
            pairs,
            size=options.batch_size,
            seed=self.recipe.seed,
            workers=self.recipe.data.workers,
            window=self.recipe.pairs.window,
            grid=self.grid,
        )
        self.about = preprocessing(self.recipe, ready.items, ready.train)
        if self.tokenizer is not None:
            self.about["vocabulary"] = self.tokenizer.vocabulary
        self.learner = Learner(self.recipe, self.about, self.batches, labels, self.fabric)
        self.total = options.steps or options.epochs * self.batches.per_epoch
        self.health = Health()
        self.first_bad = torch.full((), -1, device=self.fabric.device)  # the first step whose loss is no number

    def run(self) -> Run:
        """Train to the end, or go on to it."""
        first = self._start()
        if first >= self.total:
            self.observer.say(f"the run in {self.folder} was finished already, after {first:,} steps")
            return self._finish()
        metrics: Metrics | None = None
        try:
            self.observer.plan(self._plan_lines(first))
            metrics = Metrics(self.folder, first, self.observer.say) if self.fabric.is_global_zero else None
            self.observer.start(first, self.total)
            with end_on_signal() as told:
                self._loop(first, metrics, told)
        except torch.OutOfMemoryError:
            raise RunError(
                f"the device ran out of memory; lower training.batch_size, {self.recipe.training.batch_size} now, or "
                "embed it in parts (training.chunk)"
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
            temperature = getattr(self.learner.loss, "temperature", self.recipe.loss.temperature)
            about = self.about | {"temperature": float(torch.as_tensor(temperature).detach())}
            parts = {"head": tower.head}
            if isinstance(tower, CaptionTower):
                parts |= {"text": tower.text.encoder, "text_head": tower.text.head}
            try:
                save_weights(self.folder, parts | {"encoder": tower.encoder}, about)  # last: where it is, all are
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
                self._check_weights(done)
                self._check_data()
                self._save(done)
            if stop and not last:
                raise Interrupted(f"stopped after step {done:,} of {self.total:,}; --resume goes on from there")

    def _look(self, taken: Taken, done: int) -> tuple[dict[str, Any], list[str]]:
        """A logged step's row, and what is to be said of it."""
        self._check_finite()
        recipe, look_ups = self.recipe, taken.look_ups
        value = float(ranks.mean(taken.loss))
        negatives = [look_up.negatives_a_query() * float(look_up.weight) for look_up in look_ups]
        candidates = 1.0 + sum(negatives) / len(negatives)
        if ranks.count() > 1:  # the loss is that of all ranks' queries, so are their candidates
            candidates = float(ranks.mean(taken.loss.new_tensor(candidates)))
        row: dict[str, Any] = {"step": done, "epoch": done / self.batches.per_epoch, "loss": value}
        knows_chance = recipe.loss.kind in SOFTMAX and not recipe.loss.policy
        if knows_chance:
            exact = recipe.dictionary.kind == "batch" and all(look_up.distinct for look_up in look_ups)
            row |= {"candidates": candidates, "chance": chance(candidates)}
            row["bound" if exact else "estimate"] = row["chance"] - value
        if recipe.pairs.kind == "future":
            row["accuracy"] = self._accuracies(look_ups)
        if recipe.pairs.kind == "captions":
            row["recall"] = self._accuracies(look_ups)[0]
        temperature = getattr(self.learner.loss, "temperature", None)
        if temperature is not None:
            row["temperature"] = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
        row["lr"] = self.learner.optimizer.param_groups[0]["lr"]
        if self.learner.copy is not None:
            keys = recipe.keys
            row["key_momentum"] = schedule.momentum_at(done - 1, self.total, keys.momentum, keys.schedule)
        meters = self.learner.dictionary.meters()
        row |= meters
        query, there = look_ups[0].query, look_ups[0].there.nonzero()[:, 0]
        shown = there[:: max(1, len(there) // LOOKED_AT)]  # frames of many sequences, not of the first ones
        length, largest, alike = shape_of_batch(query[shown], look_ups[0].found.positive[shown])
        signs = Signs(
            step=done,
            total=self.total,
            loss=value,
            loss_kind=recipe.loss.kind,
            similarity="" if recipe.pairs.kind == "future" else recipe.loss.similarity,
            temperature=row.get("temperature"),
            learnable=recipe.loss.learnable,
            candidates=candidates if knows_chance else None,
            dim=query.shape[1],
            length=length,
            largest=largest,
            alike=alike,
            queue_fill=meters["fill"] if recipe.dictionary.kind == "queue" else None,
        )
        notes = self.health.look(signs)
        return row | ({"health": notes} if notes else {}), notes

    def _accuracies(self, look_ups: list[LookUp]) -> list[float | None]:
        """How often the frame that came was found, by steps ahead, over all ranks; None where no frame came."""
        counts = [(float(look_up.there.sum()), look_up.accuracy(self.recipe.loss.similarity)) for look_up in look_ups]
        found = torch.tensor([(there, there * share) for there, share in counts], device=self.fabric.device)
        there, right = ranks.mean(found).T
        return [round(r / t, 4) if t else None for r, t in zip(right.tolist(), there.tolist(), strict=True)]

    @torch.no_grad()
    def accuracy_ahead(self, ids: NDArray[np.int64]) -> list[float | None]:
        """The same on one batch of windows of these items, among frames of that batch; none where they are too few."""
        window = self.batches.window
        size = min(self.batches.size, len(visits(self.plan.items, ids, window)))
        if ranks.count() > 1 or size < 2:
            return []
        options = {"size": size, "seed": self.recipe.seed, "workers": 0, "window": window, "grid": self.grid}
        batch = Batches(self.plan.items, ids, self.batches.pairs, **options).at(0)
        query, key, frame_ids = self.learner.encode(batch)
        found = InBatch().lookup(key, frame_ids)
        return self._accuracies(self.learner.look_ups(query, found, frame_ids, batch))

    def _evaluate(self) -> dict[str, float]:
        """Consistency, the geometry of held-out items, and k-NN accuracy on them where there are labels."""
        found = {"consistency": self.learner.consistency()}
        options, items, held_out = self.recipe.training, self.plan.items, len(self.plan.test) > 0
        # A step costs three passes a view at least: this stays a small share of the steps before it.
        share = EVALUATION_SHARE / windows_an_item(items, self.batches.window)
        most = max(64, int(share * 3 * options.evaluate_every * options.batch_size))
        test = spread(self.plan.test if held_out else self.plan.train, min(KNN_TEST, most // 2))
        network = partial(features, self.learner.tower.encoder, self.learner.augmentation, items)
        rows = network(test)
        if not rows.isfinite().all():
            return found
        if held_out and self.tokenizer is not None:
            seen = self.captioned(test, rows)
            if seen.images.isfinite().all() and seen.words.isfinite().all():
                found["recall_at_10"] = cross_modal(seen.images, seen.words, seen.pairs).image_to_text.recall[10]
        shape = geometry(rows)
        found |= {"effective_rank": shape.effective_rank, "uniformity": shape.uniformity, "alike": shape.alike}
        if items.labels is None or not held_out:
            return found
        train = spread(self.plan.train, min(KNN_TRAIN, most - len(test)))
        labels = torch.from_numpy(items.labels)
        if not ((labels[train] >= 0).any() and (labels[test] >= 0).any()):
            return found
        known = network(train)
        if known.isfinite().all():
            vote = knn(known, labels[train], rows, labels[test])
            found |= {"knn": vote.accuracy, "knn_items": vote.test, "knn_labels": vote.train}
        return found

    @torch.no_grad()
    def captioned(self, ids: NDArray[np.int64], rows: Tensor) -> Captioned:
        """These images, of which `rows` are the encoder's features, and their captions, after both heads."""
        tower = self.learner.tower
        assert isinstance(tower, CaptionTower)
        assert self.tokenizer is not None
        texts, pairs = matches(self._captions(ids))
        with evaluating(tower.head):
            images = tower.head(rows.to(place_of(tower))).float().cpu()
        return Captioned(images, texts, text_features(tower.text, self.tokenizer, texts, self._text_length), pairs)

    @property
    def _text_length(self) -> int:
        return int(TEXT_ENCODERS[self.recipe.text.name].keywords["length"])

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

    def _check_weights(self, done: int) -> None:
        """Stop at weights that are not finite, before they are saved: no loss shows what the last step did to them."""
        name = first_not_finite(self.learner.tower) or first_not_finite(self.learner.loss)
        if ranks.any_of(bool(name), self.fabric.device):
            raise NotFiniteError(
                f"the weights were not finite after step {done:,}{f', {name} for one' * bool(name)}; "
                "lower optimizer.lr, or set optimizer.clip = 1.0"
            )

    def _check_data(self) -> None:
        """Stop where the file that items are read from has changed since it was opened; all ranks stop together."""
        words = change_of(self.plan.items.array)
        if ranks.any_of(bool(words), self.fabric.device):
            raise DataError(
                f"the data changed while the run went on: {words or 'another rank has noticed it'}; "
                "put them back as they were, and --resume goes on from the last checkpoint"
            )

    def _pairs(self, labels: Tensor | None) -> Pairs:
        """The recipe's answer to the first question; labels are groups where there are no others."""
        options, items, train = self.recipe.pairs, self.plan.items, self.plan.train
        groups = None if items.groups is None else torch.from_numpy(items.groups[train])
        if self.tokenizer is not None:
            captions, length = self._captions(train), self._text_length
            tokens = self.tokenizer.encode(flat(captions), length + 1)
            if cut := int((tokens[:, length:] != PADDING).sum()):
                longer = f"{cut:,} of {len(tokens):,} captions are longer than the {length} tokens that"
                self.observer.say(f"{longer} {self.recipe.text.name} reads, and are cut")
            return Captions(captions, self.tokenizer.encode(flat(captions), length), groups)
        if options.kind == "future":
            return Future(options.horizon, options.candidates, options.negatives)
        groups = labels if groups is None else groups
        return Groups(groups) if options.kind == "groups" and groups is not None else Views()

    def _captions(self, ids: NDArray[np.int64]) -> Texts:
        assert self.plan.items.captions is not None
        return tuple(self.plan.items.captions[item] for item in ids)

    def _tokenizer(self) -> Tokenizer:
        """That of the run that goes on, else one learned on the captions to train on; the same on every rank."""
        kept = self.folder / "tokenizer.json"
        text = ""
        if self.fabric.is_global_zero:
            if self.resume and kept.exists():
                text = read_text(kept)
            else:
                captions = flat(self._captions(self.plan.train))
                text = Tokenizer.learned(captions, self.recipe.text.vocabulary).text
        return Tokenizer(self.fabric.broadcast(text))

    @property
    def _tokenizer_digest(self) -> str:
        return "" if self.tokenizer is None else hashlib.sha256(self.tokenizer.text.encode()).hexdigest()

    def _start(self) -> int:
        """Make the folder, or load the last whole checkpoint; the number of steps already done."""
        fingerprint = self.plan.items.fingerprint
        found = None
        if self.resume:
            found = checkpoint.newest(
                self.folder / "checkpoints",
                lambda path, reason: self.observer.say(f"{path.name} is passed over: {reason}"),
            )
            if found is None:
                self.observer.say(f"there is no checkpoint in {self.folder}: starting afresh")
        if found is not None and found.state["fingerprint"] != fingerprint:
            raise RunError(f"the data is not that of {self.folder}, or has changed since; start another run on it")
        if found is not None and found.state.get("tokenizer", "") != self._tokenizer_digest:
            raise RunError(f"the tokenizer.json in {self.folder} is not the one that the run began with")
        if self.fabric.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "recipe.toml", self.recipe.toml())
            # One line each, whatever the names hold.
            skipped = "".join(f"{printable(s.path)}\t{printable(s.reason)}\n" for s in self.plan.items.skipped)
            write_whole(self.folder / "skipped.txt", skipped)
            if note := mark(self.folder, self.recipe.encoder.name):
                self.observer.say(note)
            if self.tokenizer is not None:
                write_whole(self.folder / "tokenizer.json", self.tokenizer.text)
                save_words(self.folder, flat(self._captions(self.plan.train)))
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
            state |= {"tokenizer": self._tokenizer_digest}
            checkpoint.save(self.folder / "checkpoints", done, tensors, state)
        self.fabric.barrier()

    def _plan_lines(self, first: int) -> list[str]:
        parameters = sum(parameter.numel() for parameter in self.learner.tower.parameters())
        batch = self.batches.at(first)
        if self.recipe.training.compile:
            self.observer.say("the encoder is compiled first, which can take a minute")
        idle = self.learner.rehearse(batch)  # also to warm up
        if idle and ranks.count() > 1:
            raise RecipeError(
                f"over ranks every parameter of the encoder must have a part in its output, got {idle[0]} without; "
                "remove it or set its requires_grad to False"
            )
        began = time.monotonic()
        self.learner.rehearse(batch)
        parts = len(self.learner.parts(batch))
        # Where there are several, each is embedded once more.
        seconds = (time.monotonic() - began) * (self.total - first) * (parts * 4 / 3 if parts > 1 else 1)
        if first:
            self.observer.say(f"going on after step {first:,} of {self.total:,}")
        return lines(self.plan, self.total, parameters, seconds, self.where())

    def where(self) -> str:
        """What it runs on, for people."""
        world = self.fabric.world_size
        return str(self.fabric.device) if world == 1 else f"{world} ranks of {self.fabric.device.type}"


def windows_an_item(items: Items, window: int) -> float:
    """How many windows an item is long, on average: a whole sequence is embedded, a window of it trained on."""
    return max(1.0, float(items.lengths.mean()) / window) if isinstance(items, Sequences) else 1.0
