"""What are unlabelled recordings of motion worth, where few are labelled?

    python -m studies.motion har_windows.npz

Windows of a phone's accelerometer and gyroscope, six activities. `cpc` and `simclr` see the windows of 24 people
without labels. Then encoder and classifier are trained together on a share of their labels, and the same network is
trained from scratch on the same labels. All are tested on six people who are not in the training data.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.measure import describe_machine, table
from likewise import data, modalities
from likewise.commands.finetune import finetune, pick_labelled
from likewise.evaluation.linear import linear_probe
from likewise.training.encoder import Encoder
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from studies.page import COLOURS, grid, measured_once, picture, print_row, write_section
from studies.sweep import Runs, mean

STUDY = "motion"
UNSEEN = 6  # people
SHARES = (0.01, 0.1)  # of the labels
DRAWS = range(10)  # of which labels
LR = 0.002
STEPS = {"cpc": 1000, "simclr": 500}
WAYS = {"scratch": "from scratch", "finetuned": "pre-trained, fine-tuned"}

Found = dict[tuple[str, float], Runs]


def main() -> None:
    (path,) = sys.argv[1:]
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    people = np.unique(arrays["subject"])
    unseen = np.isin(arrays["subject"], people[-UNSEEN:])
    items = data.open({"x": arrays["x"], "y": arrays["y"], "is_test": unseen}, progress=False)
    print(table(["", "labels", "draw", *WAYS.values()], []))
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in STEPS:
            encoder: list[Encoder] = []  # trained once, and only if a figure of it is missing
            for share in SHARES:
                found[method, share] = [
                    compare(items, method, share, draw, encoder, Path(folder) / method) for draw in DRAWS
                ]
    plain = {share: [statistics(items, share, draw) for draw in DRAWS] for share in SHARES}
    write(found, plain, int(unseen.sum()), len(items))


def compare(
    items: data.Items, method: str, share: float, draw: int, encoder: list[Encoder], folder: Path
) -> dict[str, Any]:
    """Accuracy on people never seen with this draw of the labels: fine-tuned, and from scratch."""

    def measurement() -> dict[str, Any]:
        if not encoder:
            asked = {"training.steps": STEPS[method], "optimizer.lr": LR}
            ready = make_plan(items, method, asked, progress=False)
            encoder.append(Trainer(ready, folder, Observer()).run().encoder)
        result = finetune(encoder[0], items, labels=share, seed=draw, progress=False)
        return {"scratch": result.scratch, "finetuned": result.finetuned, "labels": result.labels}

    settings = {"method": method, "steps": STEPS[method], "share": share, "draw": draw}
    run = measured_once(STUDY, settings, measurement)
    print_row(method, f"{share:.0%}", str(draw), *(f"{run[key]:.3f}" for key in WAYS))
    return run


def statistics(items: data.Items, share: float, draw: int) -> dict[str, Any]:
    """A linear probe on statistics of each channel, with the same labels."""
    assert items.labels is not None
    assert items.test is not None
    train, test = np.flatnonzero(~items.test), np.flatnonzero(items.test)
    picked = pick_labelled(items.labels, train, share, draw)

    def part(ids: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        assert items.labels is not None
        return modalities.of(items.main).baseline(items.main, ids), torch.from_numpy(items.labels[ids])

    def measurement() -> dict[str, Any]:
        return {"accuracy": linear_probe(*part(picked), *part(test)).accuracy}

    return measured_once(STUDY, {"statistics": share, "draw": draw}, measurement)


def write(found: Found, plain: dict[float, Runs], tested: int, total: int) -> None:
    rows = [
        ["channel statistics, linear probe", *(_cell(plain[share], "accuracy") for share in SHARES)],
        *(
            [f"{name}, {words}", *(_cell(found[name, share], way) for share in SHARES)]
            for name in STEPS
            for way, words in WAYS.items()
        ),
    ]
    labels = [int(found["cpc", share][0]["labels"]) for share in SHARES]
    wins = [
        f"{name} with {share:.0%}: {_wins(found[name, share])} of {len(DRAWS)} draws, "
        f"{100 * (mean(found[name, share], 'finetuned') - mean(found[name, share], 'scratch')):+.1f} points on average"
        for name in STEPS
        for share in SHARES
    ]
    parts = [
        "What are unlabelled recordings of motion worth, where few are labelled? (Chen et al., 2020; van den Oord et "
        "al., 2018.)",
        f"UCI HAPT: {total:,} windows of 128 samples and 6 channels at 50 Hz, 6 activities, 30 people; tested on "
        f"{tested:,} windows of {UNSEEN} people who are in nothing else. The encoder is `sensors` with a GRU; `cpc` "
        f"({STEPS['cpc']:,} steps of 64, no augmentation) and `simclr` ({STEPS['simclr']:,} steps of 256, windows of "
        f"96 samples scaled, disturbed and masked; both by AdamW at {LR:g}) are trained once, with seed 0, on the "
        "other people's windows without labels. Then `likewise finetune` trains encoder and classifier on a share of "
        "the labels, and the same network "
        "from random weights on the same labels, with the same steps and augmentations; mean ± standard deviation "
        f"over {len(DRAWS)} draws of the labels, measured after the last step. {describe_machine([])}",
        table(["", *(f"{share:.0%}, {n} labels" for share, n in zip(SHARES, labels, strict=True))], rows),
        picture(
            STUDY, "Accuracy of each draw, from scratch and pre-trained", 9.6, 4.0, lambda f: draw_points(f, found)
        ),
        "Pre-training wins: " + "; ".join(wins) + ". Channel statistics are probed as they are, where `evaluate` "
        "standardises them.",
    ]
    write_section("Motion", parts)
    print("\n" + "\n\n".join(parts[2:]))


def _wins(runs: Runs) -> int:
    return sum(run["finetuned"] > run["scratch"] for run in runs)


def _cell(runs: Runs, key: str) -> str:
    return f"{mean(runs, key):.3f} ± {np.std([run[key] for run in runs], ddof=1):.3f}"


def draw_points(figure: Figure, found: Found) -> None:
    for axes, share in zip(figure.subplots(1, len(SHARES), sharey=True), SHARES, strict=True):
        places = [(name, way) for name in STEPS for way in WAYS]
        for x, (name, way) in enumerate(places):
            runs = found[name, share]
            colour = COLOURS[list(STEPS).index(name)]
            filled = colour if way == "finetuned" else "white"
            axes.plot([x] * len(runs), [run[way] for run in runs], "o", color=colour, markerfacecolor=filled)
            axes.plot([x - 0.3, x + 0.3], [mean(runs, way)] * 2, color=colour, linewidth=2)
        axes.set_xticks(range(len(places)), [f"{name}\n{way}" for name, way in places])
        axes.set_title(f"{share:.0%} of the labels")
        grid(axes)
    figure.axes[0].set_ylabel("accuracy, people never seen")


if __name__ == "__main__":
    main()
