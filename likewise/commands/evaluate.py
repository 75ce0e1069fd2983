"""`likewise evaluate`: how good is an encoder, beside raw input and beside itself before training?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likewise.commands.representations import Evaluated, Representation, evaluated
from likewise.data import DataError, Items
from likewise.data.items import CAPTION
from likewise.data.labels import read_names
from likewise.data.parts import Ids, spread
from likewise.evaluation.figures import Embedded, measure
from likewise.malloc import keep_freed_memory
from likewise.modalities.modality import Frames
from likewise.modalities.text import matches, texts_by_item
from likewise.training.encoder import Encoder
from likewise.training.plan import split
from likewise.training.progress import Observer, Screen

WITH_VIEWS = 1024  # items of which two views are made
WITHOUT_TEST = 2000  # items looked at where nothing is held out
NONE_HELD_OUT = "items, none held out"
TEMPLATES = ("{}", "a {}", "a photo of a {}", "a drawing of a {}")
TRAIN_FRAMES, TEST_FRAMES = 20_000, 5_000  # looked at, at most


@dataclass(frozen=True)
class Sample:
    """Items of one part of the data, or some of their frames, and their labels."""

    items: Items
    ids: Ids
    labels: Tensor | None
    frames: Frames | None = None

    def by_frame(self, hop: int, most: int) -> "Sample":
        frames = Frames.of(self.items.main, self.ids, hop, most)
        return replace(self, frames=frames, labels=None if self.labels is None else self.labels[frames.places])

    def through(self, representation: Representation) -> Tensor:
        """Return the vectors (n, d)."""
        if self.frames is None:
            return representation.embed(self.items, self.ids)
        return representation.embed_frames(self.items, self.ids, self.frames)


@dataclass(frozen=True)
class Words:
    """Texts that items are compared with: captions, and the names of classes in templates."""

    texts: list[str]
    matched: Tensor | None  # (p, 2): rows of an item and of a text that it has; None: there are no captions
    prompts: list[list[str]]  # (classes, templates)
    answers: Tensor  # labels (n,)

    def added(self, embedded: Embedded, representation: Representation) -> Embedded:
        """Return what was embedded with the vectors of the texts, where the representation knows words."""
        if self.matched is not None and (vectors := representation.embed_text(self.texts)) is not None:
            embedded = replace(embedded, texts=(vectors, self.matched))
        if self.prompts:
            vectors = representation.embed_text([text for row in self.prompts for text in row])
            if vectors is not None:
                shape = len(self.prompts), len(self.prompts[0]), -1
                embedded = replace(embedded, named=(self.answers, vectors.view(shape)))
        return embedded


def evaluate(
    encoder: Encoder | str | Path,
    train: Any = None,
    test: Any = None,
    *,
    layer: str | None = None,
    by: str = "item",
    names: str | Path | Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    k: int = 20,
    temperature: float = 0.07,
    size: int | None = None,
    seed: int = 0,
    trust: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Return named figures by row: raw input, untrained encoder, learned encoder; `about` says what they depend on.

    `encoder` is a loaded one, a run's folder, a `module:callable`, or a file of embeddings (`.npz`, `.parquet`).
    `train` is a source, by default the run's own; `test` another, by default the source's own test part, else
    the part that the run held out. `k` and `temperature` are the k-NN's, `layer` is backbone or head (by default
    head for an encoder of images and words, else backbone), `size` the side of the images that a `module:callable`
    is given. Without labels only the geometry can be measured.
    With `by="frame"` what is measured are single frames of sequences, each with its sequence's label; `columns`
    name the labels in the data, as in {"y": "speaker"}.
    An encoder of images and words is measured by how images and captions find each other, and, given the `names` of
    the classes (a file with one a line, or a list), by zero-shot classification: each name is put into each of the
    `templates`, as in "a photo of a {}", by default a few.
    `trust` allows the code of an encoder (`module:callable`) that a run from elsewhere names.
    """
    keep_freed_memory()
    if by not in ("item", "frame"):
        raise ValueError(f"by must be item or frame, got {by!r}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    subject = evaluated(
        encoder, train, layer=layer, columns=columns, size=size, seed=seed, trust=trust, progress=progress
    )
    if by == "frame" and not subject.hop:
        raise ValueError(f"only an encoder of sequences with frames can be measured by frame, got {subject.name}")
    known, tested, which = samples(subject, train, test)
    words = words_for(subject, tested, names, templates, held_out=which != NONE_HELD_OUT)
    observer = Screen() if progress else Observer()
    if known.items.labels is not None and tested.items.labels is None:
        observer.say(f"{tested.items.name} has no labels, or one class only, so that what needs labels is not measured")
    viewed = spread(tested.ids, WITH_VIEWS) if by == "item" else None
    about = {
        "encoder": subject.name,
        "by": by,
        "data": known.items.name,
        "test": tested.items.name,
        "test_words": which if by == "item" else which.replace("items", "frames of items"),
        "train_items": len(known.ids),
        "test_items": len(tested.ids),
        "labels": known.labels is not None,
        "loss_temperature": subject.temperature,
    }
    if words.prompts:
        about["templates"] = list(TEMPLATES if templates is None else templates)
    if by == "frame":
        known, tested = known.by_frame(subject.hop, TRAIN_FRAMES), tested.by_frame(subject.hop, TEST_FRAMES)
    rulers = {"k": k, "temperature": temperature, "loss_temperature": subject.temperature, "seed": seed}
    results: dict[str, Any] = {"about": about}
    representations = subject.representations(known.items, known.ids, by == "frame")
    for number, (name, representation) in enumerate(representations.items(), 1):
        with observer.waiting_for(f"evaluating: {name} ({number}/{len(representations)})"):
            embedded = words.added(embed(representation, known, tested, viewed), representation)
            try:
                figures = measure(embedded, known.labels, tested.labels, **rulers)  # type: ignore[arg-type]
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            results[name] = figures.as_dict()
    return results


def samples(subject: Evaluated, train: Any, test: Any) -> tuple[Sample, Sample, str]:
    """Return the items that others are compared with, those that are tested, and what the latter are called."""
    items = subject.open(train)
    train_ids, test_ids = split(items, subject.recipe)
    tested = items
    if test is not None:
        tested = subject.open(test)
        if tested.array.shape[1:] != items.array.shape[1:]:
            got = f"{tested.array.shape[1:]} and {items.array.shape[1:]}"
            raise DataError(f"test items must have the shape of the others, got {got}")
        train_ids, test_ids = np.arange(len(items)), np.arange(len(tested))
    if not len(train_ids):
        raise DataError(f"there is nothing to compare with in {items.name}: all items are its test part")
    which = "items not trained on" if test is None and subject.trained_on == items.fingerprint else "test items"
    if not len(test_ids):
        return Sample(items, train_ids, None), Sample(tested, spread(train_ids, WITHOUT_TEST), None), NONE_HELD_OUT
    if items.labels is None or tested.labels is None:
        return Sample(items, train_ids, None), Sample(tested, test_ids, None), which
    labels = torch.from_numpy(items.labels[train_ids]), torch.from_numpy(renamed(tested, items)[test_ids])
    if not all((part >= 0).any() for part in labels):
        return Sample(items, train_ids, None), Sample(tested, test_ids, None), which
    return Sample(items, train_ids, labels[0]), Sample(tested, test_ids, labels[1]), which


def words_for(
    subject: Evaluated,
    tested: Sample,
    names: str | Path | Sequence[str] | None,
    templates: Sequence[str] | None,
    *,
    held_out: bool,
) -> Words:
    """Return the captions of the tested items, and the names of their classes in templates, where names are given."""
    items, ids = tested.items, tested.ids
    prompts: list[list[str]] = []
    answers = torch.from_numpy(np.full(1, -1) if items.labels is None else items.labels[ids])
    if names is None and templates is not None:
        raise ValueError("templates are for names of classes, and none are given (--labels)")
    if names is not None:
        if not subject.knows_words:
            raise ValueError(f"names of classes need an encoder of images and words, and its head, got {subject.name}")
        if not (answers >= 0).any() or not held_out:
            raise ValueError(f"names of classes need labelled items that are held out, got none in {items.name}")
        prompts = prompts_of(names, items.classes, TEMPLATES if templates is None else templates)
    if CAPTION not in items.parts:
        return Words([], None, prompts, answers)
    return Words(*matches(texts_by_item(items.parts[CAPTION], ids)), prompts, answers)


def embed(representation: Representation, known: Sample, tested: Sample, viewed: Ids | None) -> Embedded:
    """Return the vectors of both samples, and of two views of some tested items, where there are such views."""
    views = keys = None
    if viewed is not None:
        sides = [representation.embed_view(tested.items, viewed, side) for side in ("first", "second")]
        if sides[0] is not None and sides[1] is not None:
            views, keys = (sides[0][0], sides[1][0]), (sides[0][1], sides[1][1])
    return Embedded(known.through(representation), tested.through(representation), views, keys)


def prompts_of(names: str | Path | Sequence[str], classes: Sequence[str], templates: Sequence[str]) -> list[list[str]]:
    """Each class's name in each template, (classes, templates); `names` in the order of classes, or the same names."""
    given = read_names(names) if isinstance(names, str | Path) else list(names)
    lower, known = [name.lower() for name in given], [name.lower() for name in classes]
    if len(given) != len(classes):
        raise ValueError(f"names must be one a class, {len(classes)}, got {len(given)}")
    if twice := [name for name in given if lower.count(name.lower()) > 1]:
        raise ValueError(f"names must differ, got {twice[0]!r} twice")
    if sorted(lower) == sorted(known):
        given = list(classes)  # in any order
    elif moved := [name for name, own in zip(lower, known, strict=True) if name != own and name in known]:
        # Some are names of classes, but not at their places: whoever wrote them did not mean the order.
        other = next(name for name in given if name.lower() not in known)
        raise ValueError(f"names must be those of all classes, or in their order, got {moved[0]!r} and {other!r}")
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"a template must have one {{}} for the name, got {template!r}")
    if not templates:
        raise ValueError("templates must be one or more, got none")
    return [[template.replace("{}", name) for template in templates] for name in given]


def renamed(tested: Items, items: Items) -> NDArray[np.int64]:
    """Labels of `tested` by the classes of `items`, as two sources may number theirs differently; others behind."""
    assert tested.labels is not None
    if tested.classes == items.classes:
        return tested.labels
    known = {name: place for place, name in enumerate(items.classes)}
    place = [known.setdefault(name, len(known)) for name in tested.classes]
    return np.where(tested.labels < 0, -1, np.array([*place, -1], dtype=np.int64)[tested.labels])
