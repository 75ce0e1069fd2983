"""`likewise evaluate`: measure an encoder, and compare it with the raw input and with the untrained encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likewise import modalities
from likewise.commands.representations import Evaluated, Representation, evaluated
from likewise.data import DataError, Items
from likewise.data.items import CAPTION
from likewise.data.labels import read_names
from likewise.data.parts import Ids, spread
from likewise.evaluation.figures import Embedded, measure
from likewise.evaluation.interval import chance
from likewise.evaluation.worth import too_few, worth
from likewise.malloc import keep_freed_memory
from likewise.modalities.modality import Frames
from likewise.modalities.text import matches, texts_by_item
from likewise.search.copies import copies, in_words
from likewise.training.encoder import Encoder
from likewise.training.plan import split
from likewise.training.progress import Observer, Screen

WITH_VIEWS = 1024  # items for which two views are embedded
WITHOUT_TEST = 2000  # items that are evaluated if none are held out
NONE_HELD_OUT = "items, none held out"
TEMPLATES = ("{}", "a {}", "a photo of a {}", "a drawing of a {}")
TRAIN_FRAMES, TEST_FRAMES = 20_000, 5_000  # frames that are evaluated, at most


@dataclass(frozen=True)
class Sample:
    """Training or test items, or some of their frames, with their labels."""

    items: Items
    ids: Ids
    labels: Tensor | None
    frames: Frames | None = None

    def by_frame(self, hop: int, most: int) -> "Sample":
        """Return a sample of at most `most` frames of these items."""
        frames = Frames.of(self.items.main, self.ids, hop, most)
        return replace(self, frames=frames, labels=None if self.labels is None else self.labels[frames.places])

    def through(self, representation: Representation) -> Tensor:
        """Return the vectors (n, d) that a representation gives these items or frames."""
        if self.frames is None:
            return representation.embed(self.items, self.ids)
        return representation.embed_frames(self.items, self.ids, self.frames)


@dataclass(frozen=True)
class Words:
    """Texts that items are compared with: captions, and prompts made of class names."""

    texts: list[str]
    matched: Tensor | None  # (p, 2): pairs of an item's row and its caption's row; None if there are no captions
    prompts: list[list[str]]  # (classes, templates)
    answers: Tensor  # (n,) labels of the items

    def added(self, embedded: Embedded, representation: Representation) -> Embedded:
        """Add the vectors of the texts to `embedded`, if the representation can embed text."""
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
    """Measure an encoder, and return its figures beside those of the raw input and of the untrained encoder.

    The result has one dictionary of figures for each of them, by name, and `about`, which says what the figures depend
    on, whether learning was worth it (`worth`), and what makes the figures doubtful (`notes`), such as too few test
    items or copies of training items among them. Without labels, only the geometry of the embeddings is measured.

    - `encoder`: a loaded encoder, a run's folder, a `module:callable`, or a file of embeddings (`.npz`, `.parquet`).
    - `train`: labelled data to compare with, by default the run's own data.
    - `test`: data to classify, by default the test part of `train`, or else the items that the run held out.
    - `layer`: backbone or head; by default head for a run trained on captions, else backbone.
    - `by`: with "frame", single frames of sequences are measured, each with the label of its sequence.
    - `names`: class names for zero-shot classification by a run trained on captions, as a list or a file with one name
      per line. Each name is put into each of the `templates`, such as "a photo of a {}".
    - `columns`: names of arrays or columns in the data, such as {"y": "speaker"}.
    - `k`, `temperature`: of the k-NN classifier.
    - `size`: side in pixels of the images that a `module:callable` is given.
    - `trust`: allow the run to name an encoder (`module:callable`) even if it was not made under this account.
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
        raise ValueError(f"by frame needs an encoder of sequences that has frames, got {subject.name}")
    known, tested, which = samples(subject, train, test)
    words = words_for(subject, tested, names, templates, held_out=which != NONE_HELD_OUT)
    observer = Screen() if progress else Observer()
    if known.items.labels is not None and tested.items.labels is None:
        observer.say(f"{tested.items.name} has no labels, or only one class, so figures that need labels are left out")
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
    if known.labels is not None and tested.labels is not None:
        about["chance"] = chance(known.labels, tested.labels)
    if words.prompts:
        about["templates"] = list(TEMPLATES if templates is None else templates)
    if by == "frame":
        known, tested = known.by_frame(subject.hop, TRAIN_FRAMES), tested.by_frame(subject.hop, TEST_FRAMES)
    protocol = {"k": k, "temperature": temperature, "loss_temperature": subject.temperature, "seed": seed}
    results: dict[str, Any] = {"about": about}
    notes: list[str | None] = []
    representations = subject.representations(known.items, known.ids, by == "frame")
    for number, (name, representation) in enumerate(representations.items(), 1):
        with observer.waiting_for(f"evaluating: {name} ({number}/{len(representations)})"):
            unscaled = embed(representation, known, tested, viewed)
            train_vectors, test_vectors = representation.scaled(known.items, unscaled.train, unscaled.test)
            embedded = words.added(replace(unscaled, train=train_vectors, test=test_vectors), representation)
            try:
                figures = measure(embedded, known.labels, tested.labels, **protocol)  # type: ignore[arg-type]
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            results[name] = figures.as_dict()
            if number == 1 and by == "item" and which != NONE_HELD_OUT:
                # The first of several is the baseline. Vectors of an encoder may be alike without being copies.
                features = (unscaled.train, unscaled.test) if len(representations) > 1 else None
                found = copies(known.items, known.ids, tested.items, tested.ids, features)
                notes.append(in_words(found, known.items, tested.items))
    *rivals, learned = (row for name, row in results.items() if name != "about")
    baseline, untrained = (*rivals, None, None)[:2]
    if which == NONE_HELD_OUT:
        learned = {}  # figures on items that were trained on prove nothing
    else:
        notes.insert(0, too_few(learned, len(tested.ids)))
    in_sentences = modalities.of(known.items.main).baseline_in_words(by == "frame")
    about["worth"] = worth(learned, baseline, untrained, name=in_sentences, items=len(tested.ids))
    about["notes"] = [note for note in notes if note]
    return results


def samples(subject: Evaluated, train: Any, test: Any) -> tuple[Sample, Sample, str]:
    """Return the training sample, the test sample, and a phrase that describes the test items."""
    items = subject.open(train)
    train_ids, test_ids = split(items, subject.recipe)
    tested = items
    if test is not None:
        tested = subject.open(test)
        if tested.array.shape[1:] != items.array.shape[1:]:
            got = f"{tested.array.shape[1:]} and {items.array.shape[1:]}"
            raise DataError(f"test items must have the same shape as training items, got {got}")
        train_ids, test_ids = np.arange(len(items)), np.arange(len(tested))
    if not len(train_ids):
        raise DataError(f"{items.name} has only test items, and none to compare them with")
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
    """Return the captions of the test items and, if class names are given, the prompts made of them."""
    items, ids = tested.items, tested.ids
    prompts: list[list[str]] = []
    answers = torch.from_numpy(np.full(1, -1) if items.labels is None else items.labels[ids])
    if names is None and templates is not None:
        raise ValueError("templates need class names (--labels), got none")
    if names is not None:
        if not subject.knows_words:
            raise ValueError(
                f"zero-shot classification needs the head of a run trained on captions, got {subject.name}"
            )
        if not (answers >= 0).any() or not held_out:
            raise ValueError(
                f"zero-shot classification needs labelled items that are held out, got none in {items.name}"
            )
        prompts = prompts_of(names, items.classes, TEMPLATES if templates is None else templates)
    if CAPTION not in items.parts:
        return Words([], None, prompts, answers)
    return Words(*matches(texts_by_item(items.parts[CAPTION], ids)), prompts, answers)


def embed(representation: Representation, known: Sample, tested: Sample, viewed: Ids | None) -> Embedded:
    """Embed both samples and, if the representation has views, two views of the `viewed` test items."""
    views = keys = None
    if viewed is not None:
        sides = [representation.embed_view(tested.items, viewed, side) for side in ("first", "second")]
        if sides[0] is not None and sides[1] is not None:
            views, keys = (sides[0][0], sides[1][0]), (sides[0][1], sides[1][1])
    return Embedded(known.through(representation), tested.through(representation), views, keys)


def prompts_of(names: str | Path | Sequence[str], classes: Sequence[str], templates: Sequence[str]) -> list[list[str]]:
    """Return each class name in each template, (classes, templates).

    `names` are either the class names in any order, or other names in the order of the classes.
    """
    given = read_names(names) if isinstance(names, str | Path) else list(names)
    lower, known = [name.lower() for name in given], [name.lower() for name in classes]
    if len(given) != len(classes):
        raise ValueError(f"there must be one name for each of the {len(classes)} classes, got {len(given)} names")
    if twice := [name for name in given if lower.count(name.lower()) > 1]:
        raise ValueError(f"names must differ, got {twice[0]!r} twice")
    if sorted(lower) == sorted(known):
        given = list(classes)  # the same names in another order
    elif moved := [name for name, own in zip(lower, known, strict=True) if name != own and name in known]:
        # Some are class names, but out of order, so the list was probably not meant to be in the order of the classes.
        other = next(name for name in given if name.lower() not in known)
        raise ValueError(
            f"names must be exactly the class names, or be in their order, got {moved[0]!r} out of order and {other!r}"
        )
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"a template must have one {{}} for the class name, got {template!r}")
    if not templates:
        raise ValueError("there must be at least one template, got none")
    return [[template.replace("{}", name) for template in templates] for name in given]


def renamed(tested: Items, items: Items) -> NDArray[np.int64]:
    """Return the labels of `tested` in the numbering of `items`; classes that `items` lacks get new numbers."""
    assert tested.labels is not None
    if tested.classes == items.classes:
        return tested.labels
    known = {name: place for place, name in enumerate(items.classes)}
    place = [known.setdefault(name, len(known)) for name in tested.classes]
    return np.where(tested.labels < 0, -1, np.array([*place, -1], dtype=np.int64)[tested.labels])
