"""`likewise evaluate`: how good is an encoder, beside raw input and beside itself before training?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likewise.commands.raw import Frames
from likewise.commands.subjects import Ids, Way, subject_of
from likewise.data import DataError, Items
from likewise.data.labels import read_names
from likewise.data.sequences import Sequences
from likewise.evaluation.figures import Embedded, measure
from likewise.malloc import keep_freed_memory
from likewise.pairs.captions import matches
from likewise.training.plan import split, spread
from likewise.training.progress import Observer, Screen
from likewise.training.run import Encoder

WITH_VIEWS = 1024  # items of which two views are made
WITHOUT_TEST = 2000  # items looked at where nothing is held out
NONE_HELD_OUT = "items, none held out"
TEMPLATES = ("{}", "a {}", "a photo of a {}", "a drawing of a {}")
TRAIN_FRAMES, TEST_FRAMES = 20_000, 5_000  # looked at, at most


@dataclass(frozen=True)
class Seen:
    """Items of one part, or some of their frames."""

    items: Items
    ids: Ids
    frames: Frames | None = None

    def by_frame(self, hop: int, most: int) -> "Seen":
        assert isinstance(self.items, Sequences)
        return replace(self, frames=Frames.of(self.items, self.ids, hop, most))

    @property
    def owners(self) -> Ids:
        """Whose the frames are, as places among the ids."""
        assert self.frames is not None
        return self.frames.places

    def through(self, way: Way) -> Tensor:
        """As vectors (n, d)."""
        if self.frames is None:
            return way.embed(self.items, self.ids)
        assert way.embed_frames is not None
        assert isinstance(self.items, Sequences)
        return way.embed_frames(self.items, self.ids, self.frames)


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
    """Named figures by row: raw input, untrained encoder, learned encoder; `about` says what they depend on.

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
    subject = subject_of(
        encoder, train, layer=layer, columns=columns, size=size, seed=seed, trust=trust, progress=progress
    )
    if by == "frame" and not subject.hop:
        raise ValueError(f"only an encoder of sequences with frames can be measured by frame, got {subject.name}")
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
    labels: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if items.labels is not None and tested.labels is not None:
        labels = (torch.from_numpy(items.labels[train_ids]), torch.from_numpy(renamed(tested, items)[test_ids]))
    words = "items not trained on" if test is None and subject.trained_on == items.fingerprint else "test items"
    if not len(test_ids):
        test_ids, words = spread(train_ids, WITHOUT_TEST), NONE_HELD_OUT
        labels = (None, None)
    if any(part is None or not (part >= 0).any() for part in labels):
        labels = (None, None)
    prompts: list[list[str]] = []
    answers = torch.from_numpy(np.full(1, -1) if tested.labels is None else tested.labels[test_ids])
    if names is None and templates is not None:
        raise ValueError("templates are for names of classes, and none are given (--labels)")
    if names is not None:
        if not subject.worded:
            raise ValueError(f"names of classes need an encoder of images and words, and its head, got {subject.name}")
        if not (answers >= 0).any() or words == NONE_HELD_OUT:
            raise ValueError(f"names of classes need labelled items that are held out, got none in {tested.name}")
        prompts = prompts_of(names, tested.classes, TEMPLATES if templates is None else templates)
    texts, matched = (
        matches([tested.captions[item] for item in test_ids]) if tested.captions is not None else ([], None)
    )
    seen = Seen(items, train_ids), Seen(tested, test_ids)
    if by == "frame":
        seen = seen[0].by_frame(subject.hop, TRAIN_FRAMES), seen[1].by_frame(subject.hop, TEST_FRAMES)
        if labels[0] is not None and labels[1] is not None:
            labels = (labels[0][seen[0].owners], labels[1][seen[1].owners])
        words = words.replace("items", "frames of items")
    about = {
        "encoder": subject.name,
        "by": by,
        "data": items.name,
        "test": tested.name,
        "test_words": words,
        "train_items": len(train_ids),
        "test_items": len(test_ids),
        "labels": labels[0] is not None,
        "loss_temperature": subject.temperature,
    }
    if prompts:
        about["templates"] = list(TEMPLATES if templates is None else templates)
    found: dict[str, Any] = {"about": about}
    viewed = spread(test_ids, WITH_VIEWS)
    observer = Screen() if progress else Observer()
    if items.labels is not None and tested.labels is None:
        observer.say(f"{tested.name} has no labels, or one class only, so that what needs labels is not measured")
    ways = subject.ways(items, train_ids, by)
    for number, (name, way) in enumerate(ways.items(), 1):
        with observer.waiting_for(f"evaluating: {name} ({number}/{len(ways)})"):
            views = keys = None
            if way.view is not None and by == "item":
                (first, first_key), (second, second_key) = (
                    way.view(tested, viewed, which) for which in ("first", "second")
                )
                views, keys = (first, second), (first_key, second_key)
            embedded = Embedded(seen[0].through(way), seen[1].through(way), views, keys)
            if way.embed_text is not None and matched is not None:
                embedded = replace(embedded, texts=(way.embed_text(texts), matched))
            if way.embed_text is not None and prompts:
                vectors = way.embed_text([text for row in prompts for text in row])
                embedded = replace(embedded, named=(answers, vectors.view(len(prompts), len(prompts[0]), -1)))
            try:
                figures = measure(
                    embedded,
                    *labels,
                    k=k,
                    temperature=temperature,
                    loss_temperature=subject.temperature,
                    seed=seed,
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            found[name] = figures.as_dict()
    return found


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
