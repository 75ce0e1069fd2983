"""Is an encoder worth its five minutes? Every data set, beside what is free, the untrained encoder and the best peer.

    python -m benchmarks.five_minutes
    python -m benchmarks.five_minutes --data cifar10=cifar10_10k.npz --data fsdd=fsdd.npz,y=digit
    python -m benchmarks.five_minutes --only digits --seeds 0 --minutes 0.5 --store trial.json

likewise is the command `likewise train DATA --minutes 5` with no other setting: a process of its own, timed by the
wall clock, from its start to the end of its report. Built-in data sets are always measured; `--data` adds files, with
the roles of their columns if their names do not say them. Peers are lightly's SimCLR and MoCo, for labelled images
without captions.

The test part is looked at once, after the last step, by frozen features. Each cell of the table (a data set, a
contestant, a seed) is stored in a JSON file as soon as it is measured, and only missing cells are measured.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import describe_machine, run_process, table, write_section
from benchmarks.quote import ROOT
from likewise import clock, data, views
from likewise.data.builtin import NAMES
from likewise.data.items import IMAGE
from likewise.encoders.features import features
from likewise.evaluation.figures import Embedded, measure
from likewise.recipe import Recipe
from likewise.training.plan import split
from likewise.training.run import Run

STORE = Path(__file__).with_suffix(".json")
MINUTES, SEEDS = 5.0, (0, 1, 2)
FREE, UNTRAINED, LEARNED = "free", "untrained", "likewise"
PEERS = {"lightly, simclr": "simclr", "lightly, moco": "moco"}
CONTESTANTS = (FREE, UNTRAINED, LEARNED, *PEERS)
LABELS = {"k-NN": "knn", "linear": "linear", "1 label a class": "one_label", "5 labels a class": "five_labels"}
TWO_SIDES = {
    "image → text @1": "image_to_text_1",
    "@10": "image_to_text_10",
    "text → image @1": "text_to_image_1",
    "@10 ": "text_to_image_10",
}
NOTHING = "—"

Cell = dict[str, Any]  # what was measured of one contestant on one data set with one seed


@dataclass(frozen=True)
class Source:
    """A data set: its name in the table, where it is, and the roles of its columns."""

    name: str
    path: str
    columns: tuple[str, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> "Source":
        """Read `NAME=PATH` or `NAME=PATH,ROLE=COLUMN,…`."""
        name, equals, rest = text.partition("=")
        path, *columns = rest.split(",")
        if not (name and equals and path) or not all("=" in column for column in columns):
            raise argparse.ArgumentTypeError(f"expected NAME=PATH or NAME=PATH,ROLE=COLUMN, got {text!r}")
        return cls(name, path, tuple(columns))

    @property
    def options(self) -> list[str]:
        return [word for column in self.columns for word in ("--column", column)]

    def open(self) -> data.Items:
        return data.open(self.path, columns=dict(column.split("=", 1) for column in self.columns) or None)

    @property
    def has_peers(self) -> bool:
        """Return whether lightly can be trained and measured on it: labelled images without captions."""
        items = self.open()
        return items.main.modality == IMAGE and items.captions is None and items.labels is not None


def figures_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of the table from one encoder's row of `likewise evaluate --json`."""
    figures = {name: row[name]["accuracy"] for name in ("knn", "linear") if name in row}
    few = {str(count): each["accuracy"] for count, each in row.get("few_labels", {}).items()}
    figures |= {name: few[count] for name, count in (("one_label", "1"), ("five_labels", "5")) if count in few}
    for direction, each in row.get("cross_modal", {}).items():
        recall = {str(k): value for k, value in each["recall"].items()}
        figures |= {f"{direction}_{k}": recall[k] for k in ("1", "10")}
    return figures


def run_likewise(source: Source, minutes: float, seed: int) -> dict[str, Cell]:
    """Train and evaluate by the command line; return the cells of the baseline, the untrained and the trained."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        options = ["--minutes", f"{minutes:g}", "--seed", str(seed), "--out", str(run.folder), *source.options]
        process = run_process("-m", "likewise", "train", source.path, *options)
        evaluated = json.loads(run_process("-m", "likewise", "evaluate", str(run.folder), "--json").output)
        recipe = run.recipe
    _, (free, raw), (_, untrained), (_, learned) = evaluated.items()
    training = f"{recipe.training.steps:,} steps of {recipe.training.batch_size}"
    settings = f"{recipe.method}, {recipe.encoder.name}, {training}"
    return {
        FREE: {"what": free, "figures": figures_of(raw)},
        UNTRAINED: {"what": recipe.encoder.name, "figures": figures_of(untrained)},
        LEARNED: {"what": settings, "seconds": round(process.seconds, 1), "figures": figures_of(learned)},
    }


def run_peer(source: Source, method: str, minutes: float, seed: int) -> Cell:
    """Train one of lightly's methods in a process of its own, and measure its features."""
    given = json.dumps([method, minutes, seed, source.name, source.path, *source.columns])
    process = run_process("-m", "benchmarks.five_minutes", "peer", given)
    cell: Cell = json.loads(process.output.splitlines()[-1])
    return cell


def train_peer(method: str, minutes: float, seed: int, *source: str) -> Cell:
    """Train until the minutes since the start of this process are over, and return the cell.

    The time for measuring is not counted, and nothing is written: lightly trains a little longer than likewise.
    """
    from benchmarks.lightly_methods import METHODS

    items = Source(source[0], source[1], source[2:]).open()
    train, test = split(items, Recipe().with_values({"seed": seed}))
    size = items.array.shape[-1]
    run = METHODS[method](_rgb(items[train]), size, seed=seed)
    steps = 0
    for _ in run.steps():
        steps += 1
        if clock.now() - clock.began() > 60 * minutes:
            break
    seconds = clock.now() - clock.began()
    augmentation = views.preset("simclr", size=size, channels=3)
    coloured = data.open({"x": _rgb(items[np.arange(len(items))])}, progress=False)
    rows = [features(run.encoder, augmentation, coloured, ids) for ids in (train, test)]
    assert items.labels is not None
    labels = torch.from_numpy(items.labels)
    measured = measure(Embedded(rows[0], rows[1]), labels[train], labels[test]).as_dict()
    what = f"resnet_tiny, {steps:,} steps of {run.loader.batch_size}"
    return {"what": what, "seconds": round(seconds, 1), "figures": figures_of(measured)}


def _rgb(images: np.ndarray) -> np.ndarray:
    """Return images (n, c, h, w) as (n, h, w, 3), as lightly's transforms take them."""
    return np.ascontiguousarray(np.broadcast_to(images, (len(images), 3, *images.shape[2:])).transpose(0, 2, 3, 1))


class Store:
    """The cells in a JSON file, which is written after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, Cell] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, source: str, contestant: str, seed: int, minutes: float) -> Cell | None:
        return self.cells.get(self._key(source, contestant, seed, minutes))

    def put(self, source: str, contestant: str, seed: int, minutes: float, cell: Cell) -> None:
        self.cells[self._key(source, contestant, seed, minutes)] = cell | {"commit": commit(), "machine": machine()}
        self.path.write_text(json.dumps(dict(sorted(self.cells.items())), indent=1, ensure_ascii=False) + "\n")

    def sources(self, minutes: float) -> list[str]:
        """Return the names of the data sets that have cells of so many minutes, built-in ones first."""
        names = {key.split(" | ")[0] for key in self.cells if key.endswith(f" | {minutes:g} min")}
        return sorted(names, key=lambda name: (name not in NAMES, name))

    @staticmethod
    def _key(source: str, contestant: str, seed: int, minutes: float) -> str:
        return f"{source} | {contestant} | seed {seed} | {minutes:g} min"


def commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return described.stdout.strip()


def machine() -> str:
    return describe_machine(["lightly"])


def measure_missing(store: Store, source: Source, seeds: Sequence[int], minutes: float, again: bool) -> None:
    """Measure the cells of a data set that the store does not have, or all of them."""
    peers = PEERS if source.has_peers else {}
    for seed in seeds:

        def is_missing(contestant: str, seed: int = seed) -> bool:
            return again or store.get(source.name, contestant, seed, minutes) is None

        if any(map(is_missing, (FREE, UNTRAINED, LEARNED))):
            for contestant, cell in run_likewise(source, minutes, seed).items():
                store.put(source.name, contestant, seed, minutes, cell)
                print(source.name, seed, contestant, cell, file=sys.stderr, flush=True)
        for contestant, method in peers.items():
            if is_missing(contestant):
                cell = run_peer(source, method, minutes, seed)
                store.put(source.name, contestant, seed, minutes, cell)
                print(source.name, seed, contestant, cell, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Line:
    """One contestant on one data set: its cells over the seeds."""

    source: str
    contestant: str
    cells: list[Cell]

    def figure(self, name: str) -> float | None:
        """Return the mean over the seeds."""
        values = [cell["figures"][name] for cell in self.cells if name in cell["figures"]]
        return statistics.fmean(values) if values else None

    def shown(self, name: str) -> str:
        """Return mean and standard deviation over the seeds."""
        values = [cell["figures"][name] for cell in self.cells if name in cell["figures"]]
        if not values:
            return NOTHING
        return f"{statistics.fmean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")

    @property
    def seconds(self) -> str:
        values = [cell["seconds"] for cell in self.cells if "seconds" in cell]
        return f"{max(values):.0f} s" if values else ""


def lines_of(store: Store, seeds: Sequence[int], minutes: float) -> Iterator[Line]:
    for source in store.sources(minutes):
        for contestant in CONTESTANTS:
            cells = [cell for seed in seeds if (cell := store.get(source, contestant, seed, minutes))]
            if cells:
                yield Line(source, contestant, cells)


def whole_table(lines: Sequence[Line], columns: Mapping[str, str]) -> str:
    """Return a table of every line of the data sets that have these figures."""
    having = {line.source for line in lines if any(line.figure(name) is not None for name in columns.values())}
    rows = [
        [line.source, f"{line.contestant}: {line.cells[0]['what']}", *map(line.shown, columns.values()), line.seconds]
        for line in lines
        if line.source in having
    ]
    return table(["data", "", *columns, "whole command"], rows) if rows else ""


def summary(lines: Sequence[Line]) -> str:
    """Return one row for each data set: k-NN and five labels a class, or recall@10 both ways."""
    rows = []
    for source in dict.fromkeys(line.source for line in lines):
        own = {line.contestant: line for line in lines if line.source == source}
        is_two_sided = any(line.figure("image_to_text_10") is not None for line in own.values())
        names = ("image_to_text_10", "text_to_image_10") if is_two_sided else ("knn", "five_labels")
        peers = {own[peer].figure(names[0]) or 0.0: own[peer] for peer in PEERS if peer in own}
        best = peers[max(peers)] if peers else None
        words = "recall@10, image → text / text → image" if is_two_sided else "k-NN / 5 labels a class"
        contestants = [own.get(FREE), own.get(UNTRAINED), own.get(LEARNED), best]
        free = f" ({own[FREE].cells[0]['what']})" if FREE in own and not is_two_sided else ""
        cells = [_both(line, names) for line in contestants]
        rows.append([source, words, cells[0] + free, *cells[1:]])
    return table(["data", "measured by", "without learning", "untrained", "likewise", "best peer"], rows)


def _both(line: Line | None, names: Sequence[str]) -> str:
    figures = [] if line is None else [line.figure(name) for name in names]
    return NOTHING if not figures or None in figures else " / ".join(f"{figure:.3f}" for figure in figures)


def text_of(lines: Sequence[Line], seeds: Sequence[int], minutes: float) -> str:
    commits = sorted({cell["commit"] for line in lines for cell in line.cells})
    machines = list(dict.fromkeys(cell["machine"] for line in lines for cell in line.cells))
    parts = [
        " ".join(machines),
        f"`likewise train DATA --minutes {minutes:g}` with no other setting than the seed and, for some files, which "
        "column is what; lightly's SimCLR and MoCo with the settings of its examples for the same time, around "
        "resnet_tiny; the untrained encoder is the one that likewise chose. Frozen features after the last step, on "
        f"items not trained on: mean ± standard deviation over the seeds {', '.join(map(str, seeds))}, which also draw "
        "the held-out items where the data has no test part. The whole command is the longest of the seeds, by the "
        f"wall clock. Commit {', '.join(commits)}.",
        summary(lines),
        whole_table(lines, LABELS),
        whole_table(lines, TWO_SIDES),
    ]
    return "\n\n".join(filter(None, parts))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", action="append", type=Source.from_text, default=[], metavar="NAME=PATH[,ROLE=COLUMN]")
    parser.add_argument("--only", action="append", metavar="NAME", help="measure only this data set; may be repeated")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="another time, to try it out; writes no page")
    parser.add_argument("--again", action="store_true", help="measure stored cells again")
    parser.add_argument("--store", type=Path, default=STORE, help="the JSON file of the cells")
    given = parser.parse_args(arguments)
    sources = {source.name: source for source in [*(Source(name, name) for name in NAMES), *given.data]}
    if unknown := set(given.only or ()) - set(sources):
        parser.error(f"--only must name a built-in data set or one of --data, got {', '.join(sorted(unknown))}")
    store = Store(given.store)
    for source in sources.values():
        if not given.only or source.name in given.only:
            measure_missing(store, source, given.seeds, given.minutes, given.again)
    lines = list(lines_of(store, given.seeds, given.minutes))
    text = text_of(lines, given.seeds, given.minutes)
    if given.minutes == MINUTES:
        write_section("Five minutes", text)
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        clock.begin_command()
        print(json.dumps(train_peer(*json.loads(sys.argv[2]))))
    else:
        main(sys.argv[1:])
