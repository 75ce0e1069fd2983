"""What does training from scratch on 18,000 short texts reach, beside TF-IDF?

    python -m studies.texts packages_en.parquet

Descriptions of Debian packages: a title, a text and one of 42 sections. `simclr` and `simcse` see title and text of the
training part without sections, for ten minutes each. Sections of the test part are then read from frozen features, from
TF-IDF, and from both together.
"""

import sys
import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import likewise
from benchmarks.measure import describe_machine, table
from likewise import data
from likewise.data import Items
from likewise.data.parts import Ids
from likewise.encoders.features import features
from likewise.evaluation.knn import knn
from likewise.evaluation.linear import linear_probe
from likewise.modalities.tf_idf import TfIdf
from likewise.pairs.catalog import build_untrained
from likewise.views import Augmentation
from studies.page import measured_once, print_row, write_section

STUDY = "texts"
MINUTES = 10
METHODS = ("simclr", "simcse")
COLUMNS = {"text": "title+text", "y": "section", "is_test": "is_test"}
HEAD = ["features", "k-NN (20)", "linear"]


def main() -> None:
    (path,) = sys.argv[1:]
    items = data.open(path, columns=COLUMNS, progress=False)
    print(table(HEAD, []))
    words = measured_once(STUDY, {"features": "TF-IDF"}, lambda: measure(*words_of(items), items))
    write(words, {method: learn(path, items, method) for method in METHODS})


def learn(path: str, items: Items, method: str) -> dict[str, Any]:
    """Train for ten minutes; measure the untrained and the trained encoder, alone and beside TF-IDF."""

    def measurement() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            run = likewise.train(
                path, method=method, columns=COLUMNS, minutes=MINUTES, out=f"{folder}/run", progress=False
            )
            encoder, steps = run.encoder, run.recipe.training.steps
        untrained = build_untrained(encoder.recipe, encoder.about).encoder
        before, after = (parts_of(items, network, encoder.augmentation) for network in (untrained, encoder.backbone))
        both = [beside(rows, words) for rows, words in zip(after, words_of(items), strict=True)]
        found = {"untrained": measure(*before, items), "alone": measure(*after, items)}
        return found | {"beside TF-IDF": measure(*both, items), "steps": steps, "encoder": encoder.recipe.encoder.name}

    found = measured_once(STUDY, {"method": method, "minutes": MINUTES}, measurement)
    for what in ("untrained", "alone", "beside TF-IDF"):
        print_row(f"{method}, {what}", f"{found[what]['knn']:.3f}", f"{found[what]['linear']:.3f}")
    return found


def parts_of(items: Items, network: nn.Module, augmentation: Augmentation) -> tuple[Tensor, Tensor]:
    """Return the features of the training and of the test texts."""
    train, test = ids_of(items)
    return features(network, augmentation, items, train), features(network, augmentation, items, test)


def ids_of(items: Items) -> tuple[Ids, Ids]:
    assert items.test is not None
    return np.flatnonzero(~items.test), np.flatnonzero(items.test)


def words_of(items: Items) -> tuple[Tensor, Tensor]:
    """Return TF-IDF of the training and of the test texts."""
    train, test = map(items.main.texts, ids_of(items))
    words = TfIdf(train)
    return words.rows(train), words.rows(test)


def beside(rows: Tensor, words: Tensor) -> Tensor:
    """Return unit rows of both next to each other, so that both count the same in a cosine."""
    return torch.cat([normalize(rows - rows.mean(dim=0), dim=1), normalize(words, dim=1)], dim=1)


def measure(train: Tensor, test: Tensor, items: Items) -> dict[str, Any]:
    known, answers = (torch.from_numpy(items.labels[ids]) for ids in ids_of(items))  # type: ignore[index]
    neighbours = knn(train, known, test, answers, k=20)
    return {"knn": neighbours.accuracy, "linear": linear_probe(train, known, test, answers).accuracy}


def write(words: dict[str, Any], learned: dict[str, Any]) -> None:
    rows = [["TF-IDF, the most frequent 8,192 words", f"{words['knn']:.3f}", f"{words['linear']:.3f}"]]
    for method, found in learned.items():
        for what in ("untrained", "alone", "beside TF-IDF"):
            steps = "" if what == "untrained" else f", {found['steps']:,} steps"
            cells = [f"{found[what]['knn']:.3f}", f"{found[what]['linear']:.3f}"]
            rows.append([f"{method}{steps}, {what}", *cells])
    best = max(learned.values(), key=lambda found: found["beside TF-IDF"]["linear"])
    verdict = "adds something to" if best["beside TF-IDF"]["linear"] > words["linear"] else "adds nothing to"
    texts = [
        "What does training from scratch on 18,000 short texts reach, beside TF-IDF?",
        f"Titles and descriptions of Debian packages; 42 sections, 2,000 test items. {learned[METHODS[0]]['encoder']} "
        f"from random weights, {MINUTES} minutes, with no setting but the method; seed 0, frozen features, last step. "
        f"{describe_machine([])}",
        table(HEAD, rows),
        f"Beside TF-IDF (both as unit rows, concatenated), what was learned {verdict} it in a linear probe.",
    ]
    write_section("Texts", texts)


if __name__ == "__main__":
    main()
