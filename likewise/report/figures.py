"""The figures at the top of a report, each beside chance, the baseline without learning and the untrained encoder.

All of them are measured on the same items, which are embedded once for each encoder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import modalities
from likewise.data.parts import Ids, spread
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.encoders.features import features, place_of
from likewise.evaluation.cross_modal import cross_modal
from likewise.evaluation.few_labels import few_labels
from likewise.evaluation.figures import Figures
from likewise.evaluation.geometry import geometry, verdict
from likewise.evaluation.interval import Interval, chance, wilson
from likewise.evaluation.knn import knn
from likewise.evaluation.linear import linear_probe
from likewise.evaluation.worth import DIRECTIONS, PER_CLASS, Row, too_few, worth
from likewise.pairs.across import Captioned
from likewise.pairs.catalog import build_untrained, finish
from likewise.pairs.towers import Tower
from likewise.training.trainer import Trainer

FITTED = 2000  # training items that the linear probe is fitted on, at most: with all of them it may take a minute
INTERVALS = (
    "Intervals are Wilson's at 95 % over the test items. Baselines are measured on the same items. Chance is to guess "
    "the most frequent class, or to rank at random."
)

Tile = dict[str, Any]  # name, value, the lines beside it, and a note on what it depends on


@dataclass(frozen=True)
class Looked:
    """The items of the report: those that are looked at, and those of the training part that they are compared with."""

    ids: Ids
    known: Ids
    labels: tuple[Tensor, Tensor] | None  # of `known` and of `ids`; None if there are none, or nothing is held out
    held_out: bool

    @staticmethod
    def of(trainer: Trainer, most: int, most_known: int) -> "Looked":
        """Return at most `most` held-out items, if there are any, and at most `most_known` training items."""
        ready = trainer.plan
        held_out = len(ready.test) > 0
        ids = spread(ready.test if held_out else ready.train, most)
        known = spread(ready.train, most_known) if held_out else ids
        labels = None if ready.items.labels is None else torch.from_numpy(ready.items.labels)
        if labels is None or not held_out or not all((labels[part] >= 0).any() for part in (known, ids)):
            return Looked(ids, known, None, held_out)
        return Looked(ids, known, (labels[known], labels[ids]), held_out)


@dataclass(frozen=True)
class Rows:
    """The embeddings of the report's items by one encoder."""

    looked: Tensor  # (m, d)
    known: Tensor | None  # (n, d); None if nothing is compared with them
    captioned: Captioned | None = None


@dataclass(frozen=True)
class Measured:
    """The figures of the learned encoder, of the baseline without learning, and of the untrained encoder, by name."""

    learned: Row
    baseline: Row
    untrained: Row
    name: str  # of the baseline
    guessed: float | None  # the accuracy of guessing; None without labels

    @property
    def rivals(self) -> tuple[tuple[str, Row], ...]:
        """What the learned encoder is compared with, by name."""
        return (self.name, self.baseline), ("untrained", self.untrained)

    def beside(self, *path: str | int, chance: float | None) -> list[list[str]]:
        """Return lines of a name and a share: that of each rival that has it, found by its keys, and chance."""
        shares = [(name, found) for name, row in self.rivals if (found := _at(row, path)) is not None]
        return [[name, f"{share:.3f}"] for name, share in [*shares, ("chance", chance)] if share is not None]


def _at(row: Row, path: Sequence[str | int]) -> float | None:
    """Return a figure by the keys that lead to it, or None if the row does not have it."""
    found: Any = row
    for key in path:
        found = found.get(key) if found is not None else None
    return None if found is None else float(found)


def learned_rows(trainer: Trainer, looked: Looked) -> Rows:
    """Embed the items by the learned encoder; those they are compared with too, for the neighbours."""
    return _through(trainer, looked, trainer.learner.tower, with_known=True)


def measured(trainer: Trainer, looked: Looked, learned: Rows) -> Measured:
    """Measure the learned encoder, and beside it the baseline and the untrained encoder on the same items."""
    items, modality = trainer.plan.items, modalities.of(trainer.plan.items.main)
    recipe, learned_encoder = trainer.recipe, trainer.learner.tower.encoder
    untrained = build_untrained(recipe, trainer.about).to(place_of(learned_encoder).device)
    augmentation, train = trainer.learner.augmentation, trainer.plan.train
    finish(recipe, untrained.encoder, augmentation, items, train, like=learned_encoder)
    with_known = looked.labels is not None
    baseline = modality.fitted_baseline(items.main, train)
    known, rows = modality.scaled_baseline(baseline(items.main, looked.known), baseline(items.main, looked.ids))
    raw = Rows(rows, known if with_known else None)
    return Measured(
        _figures(learned, looked),
        _figures(raw, looked),
        _figures(_through(trainer, looked, untrained, with_known=with_known), looked),
        modality.baseline_in_words(by_frame=False),
        None if looked.labels is None else chance(*looked.labels),
    )


def _through(trainer: Trainer, looked: Looked, tower: Tower, *, with_known: bool) -> Rows:
    items = trainer.plan.items
    rows = features(tower.encoder, trainer.learner.augmentation, items, looked.ids)
    known = None
    if with_known:
        is_same = looked.known is looked.ids
        known = rows if is_same else features(tower.encoder, trainer.learner.augmentation, items, looked.known)
    return Rows(rows, known, trainer.pairs.captioned(tower, items, looked.ids, rows))


def _figures(rows: Rows, looked: Looked) -> Row:
    shape = geometry(rows.looked)
    figures = Figures(geometry=shape, verdict=verdict(shape))
    if rows.captioned is not None and looked.held_out:
        figures = replace(figures, cross_modal=cross_modal(*_sides(rows.captioned)))
    if rows.known is not None and looked.labels is not None:
        known, labels = rows.known, looked.labels
        fitted = torch.from_numpy(spread(np.arange(len(known)), FITTED))
        if not (labels[0][fitted] >= 0).any():
            fitted = torch.arange(len(known))
        parts = known, labels[0], rows.looked, labels[1]
        figures = replace(
            figures,
            knn=knn(*parts),
            linear=linear_probe(known[fitted], labels[0][fitted], rows.looked, labels[1]),
            few_labels={PER_CLASS: few_labels(*parts, per_class=PER_CLASS)},
        )
    return figures.as_dict()


def _sides(captioned: Captioned) -> tuple[Tensor, Tensor, Tensor]:
    return captioned.images, captioned.words, captioned.pairs


def worth_in_words(measured: Measured, looked: Looked) -> tuple[str, str | None]:
    """Say whether learning was worth it, and whether there are too few items to say so."""
    items = len(looked.ids)
    words = worth(measured.learned, measured.baseline, measured.untrained, name=measured.name, items=items)
    return words or "", too_few(measured.learned, items) if looked.held_out else None


def tiles(trainer: Trainer, rows: Sequence[Mapping[str, Any]], measured: Measured) -> list[Tile]:
    """Return the figures, each with what it is compared with and a note on what it depends on."""
    return [*_recalls(trainer, measured), *_accuracies(trainer, measured), *_others(trainer, rows, measured)]


def _recalls(trainer: Trainer, measured: Measured) -> list[Tile]:
    """Return the retrieval figures of held-out images and captions, if there are any."""
    if "cross_modal" not in measured.learned:
        return []
    encoder = f"{described(trainer, 'head')}, and of {trainer.recipe.text.name}"
    shown = []
    for key, queries, candidates in (("image_to_text", "images", "captions"), ("text_to_image", "captions", "images")):
        figures = measured.learned["cross_modal"][key]
        note = (
            f"{figures['queries']:,} held-out {queries}, each searched among {figures['candidates']:,} {candidates}, "
        )
        note += f"median rank {figures['median_rank']:g}; {encoder}"
        recall, guessed = figures["recall"][10], figures["chance"][10]
        beside = measured.beside("cross_modal", key, "recall", 10, chance=guessed)
        interval = wilson(recall, figures["queries"])
        shown.append(_share(f"recall@10, {DIRECTIONS[key]}", recall, interval, beside, note))
    return shown


def _accuracies(trainer: Trainer, measured: Measured) -> list[Tile]:
    """Return the figures that need labels, if there are any."""
    if "knn" not in measured.learned:
        return []
    vote, probe, few = (measured.learned[key] for key in ("knn", "linear", "few_labels"))
    few = few[PER_CLASS]
    where = f"on {vote['test']:,} held-out items; {described(trainer, 'backbone')}"
    chosen = ", chosen on a fifth of them" if probe["chosen"] else ""
    notes = {
        "k-NN": f"k {vote['k']}, T {vote['temperature']:g}, {vote['train']:,} training labels, {where}",
        "linear": f"logistic regression, {probe['train']:,} training labels, l2 {probe['l2']:g}{chosen}, {where}",
        f"{PER_CLASS} labels a class": f"accuracy by nearest class mean, ± {few['spread']:.3f} over {few['draws']} "
        f"draws, {where}",
    }
    paths: tuple[tuple[str | int, ...], ...] = (("knn",), ("linear",), ("few_labels", PER_CLASS))
    shown = []
    for (name, note), path in zip(notes.items(), paths, strict=True):
        accuracy = _at(measured.learned, (*path, "accuracy"))
        assert accuracy is not None
        beside = measured.beside(*path, "accuracy", chance=measured.guessed)
        shown.append(_share(name, accuracy, wilson(accuracy, vote["test"]), beside, note))
    return shown


def _share(name: str, share: float, interval: Interval, beside: list[list[str]], note: str) -> Tile:
    lines = [["95 % interval", f"{interval.low:.3f} to {interval.high:.3f}"], *beside]
    return {"name": name, "value": f"{share:.3f}", "beside": lines, "note": note}


def _others(trainer: Trainer, rows: Sequence[Mapping[str, Any]], measured: Measured) -> list[Tile]:
    """Return the figures that need no labels: the effective rank, and those of the last logged row."""
    shape = measured.learned["geometry"]

    note = f"of {shape['dim']} dimensions; {shape['items']:,} items, normalised and centred; "
    note += described(trainer, "backbone")
    others = [(name, row["geometry"]) for name, row in measured.rivals]
    beside = [[name, f"{other['effective_rank']:.1f} of {other['dim']}"] for name, other in others]
    value = f"{shape['effective_rank']:.1f}"
    shown: list[Tile] = [{"name": "effective rank", "value": value, "beside": beside, "note": note}]
    last = rows[-1] if rows else {}
    for name in ("bound", "estimate"):
        if all(last.get(key) is not None for key in (name, "candidates", "chance")):
            most = f"log {last['candidates']:,.0f} = {last['chance']:.2f}"
            kind = "a lower bound" if name == "bound" else "an estimate"
            note = f"nats, {kind} from the loss of the last step; it cannot exceed {most}"
            value = f"{last[name]:.2f}"
            shown.append({"name": "information", "value": value, "beside": [["chance", "0"]], "note": note})
    if DICTIONARIES[trainer.recipe.dictionary.kind].stores and last.get("consistency") is not None:
        note = "mean cosine between stored keys and the same views encoded by the final encoder"
        beside = [["unrelated keys", "0"], ["unchanged encoder", "1"]]
        shown.append({"name": "consistency", "value": f"{last['consistency']:.3f}", "beside": beside, "note": note})
    return shown


def described(trainer: Trainer, layer: str) -> str:
    """Return a phrase that says which encoder and layer a figure is about."""
    return modalities.of(trainer.plan.items.main).describe_features(trainer.recipe, trainer.about, layer)
