"""What does every method reach in the same small run?

    python -m studies.methods

All methods for images, with the same encoder, data and number of steps; views, head, loss and dictionary are each
method's own. `pair`, `triplet` and `supcon` learn from the labels, the others do not see them. It is no ranking of the
methods: a run of ten epochs on digits says little about long runs on photos.
"""

from typing import Any

import torch

from benchmarks.measure import describe_machine, table
from likewise import methods
from studies.digits import SETTINGS, learn, references, words
from studies.page import print_row, write_section
from studies.sweep import FIGURES, Runs, mean

STUDY = "methods"
SEEDS = (0,)
STEPS, TRAIN, TEST = 300, 4000, 1000
HEAD = "the method's head"
WITH_LABELS = ("pair", "triplet", "supcon")
WITHOUT = ("instdisc", "bank", "e2e", "moco_v1", "moco", "simclr", "dcl", "nnclr", "moco_v3")


def settings_of(method: str) -> dict[str, Any]:
    """Return the settings of a run: the method's own head, and a ResNet also for a method that is meant for ViTs."""
    share = TEST / (TRAIN + TEST)
    own = {"encoder.head": methods.defaults(method).encoder.head, "encoder.fixed_patches": False}
    return own | {"data.test": share, "training.steps": STEPS}


def measure() -> tuple[dict[str, Runs], dict[str, Runs]]:
    """Return the runs of each method, and what they are compared with."""
    runs: dict[str, Runs] = {method: [] for method in (*WITHOUT, *WITH_LABELS)}
    known: dict[str, Runs] = {}
    print(table(["method", "seed", *FIGURES.values()], []))
    for seed in SEEDS:
        for name, figures in references(STUDY, TEST / (TRAIN + TEST), seed).items():
            known.setdefault(name, []).append(figures)
        for method, found in runs.items():
            found.append(run := learn(STUDY, method, settings_of(method), seed))
            print_row(method, str(seed), *(f"{run[figure]:.3f}" for figure in FIGURES))
    return runs, known


def results(runs: dict[str, Runs], known: dict[str, Runs]) -> str:
    rows = [[name, *(f"{mean(found, figure):.3f}" for figure in FIGURES)] for name, found in known.items()]
    for method, found in runs.items():
        name = f"{method}, with labels" if method in WITH_LABELS else method
        rows.append([name, *(f"{mean(found, figure):.3f}" for figure in FIGURES)])
    return table(["method", *FIGURES.values()], rows)


def conclusion(runs: dict[str, Runs], known: dict[str, Runs]) -> str:
    better = {
        figure: [method for method in WITHOUT if mean(runs[method], figure) > mean(known["raw pixels"], figure)]
        for figure in FIGURES
    }
    said = [
        f"by {title}, {len(better[figure])} of {len(WITHOUT)}"
        + (f" ({', '.join(better[figure])})" if better[figure] else "")
        for figure, title in FIGURES.items()
    ]
    return (
        f"Methods without labels that beat raw pixels after these few steps: {'; '.join(said)}. One seed and one "
        "length of training do not rank methods."
    )


def main() -> None:
    torch.set_num_threads(1)
    runs, known = measure()
    batch = SETTINGS["training.batch_size"]
    parts = [
        "What does every method reach in the same small run?",
        f"{words(TRAIN, TEST, HEAD, SEEDS)} {STEPS} steps of {batch} "
        f"({STEPS * batch / TRAIN:.1f} epochs). Loss, dictionary, head and temperature are the method's own; "
        f"`cpc` and `clip` need other data and have [their](#speech) [sections](#images-and-words). "
        f"{describe_machine([])}",
        results(runs, known),
        conclusion(runs, known),
    ]
    write_section("Methods", parts)
    print("\n" + "\n\n".join(parts[2:]))


if __name__ == "__main__":
    main()
