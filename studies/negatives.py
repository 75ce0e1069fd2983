"""Are more negatives always better?

    python -m studies.negatives

He et al., 2020 (MoCo): a dictionary should be large and consistent. Three dictionaries are compared, each with 16 to
4,096 negatives per query: the batch (`e2e`), which must be as large as its negatives; the memory bank (`bank`), which
is large but outdated; and the queue (`moco`), which is large and consistent thanks to the momentum copy.
"""

from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.measure import describe_machine, table
from studies import sweep
from studies.digits import SEEDS, SETTINGS, learn, references, words
from studies.page import picture, print_row, write_section
from studies.sweep import FIGURES, Line, Runs, cell, mean

STUDY = "negatives"
DICTIONARIES = {"batch": "e2e", "bank": "bank", "queue": "moco"}
NEGATIVES = (16, 64, 256, 1024, 4096)
TEMPERATURE = 0.2
TRAIN, TEST = 4100, 900  # a batch with 4,096 negatives fits
SEEN = 12 * TRAIN  # images, whatever the batch


def settings(dictionary: str, negatives: int) -> dict[str, Any]:
    """What has to be set for so many negatives, and so many steps that all see as many images."""
    batch = negatives + 1 if dictionary == "batch" else SETTINGS["training.batch_size"]
    size = {"batch": {}, "bank": {"dictionary.negatives": negatives}, "queue": {"dictionary.size": negatives}}
    common = {"loss.temperature": TEMPERATURE, "data.test": TEST / (TRAIN + TEST)}
    return common | size[dictionary] | {"training.batch_size": batch, "training.steps": SEEN // batch}


def measure() -> tuple[dict[str, Line], dict[str, Runs]]:
    """The runs of each dictionary by negatives, and what they are compared with."""
    lines: dict[str, Line] = {dictionary: {negatives: [] for negatives in NEGATIVES} for dictionary in DICTIONARIES}
    known: dict[str, Runs] = {}
    print(table(["", "negatives", "seed", *FIGURES.values()], []))
    for seed in SEEDS:
        for name, figures in references(STUDY, TEST / (TRAIN + TEST), seed).items():
            known.setdefault(name, []).append(figures)
        for dictionary, method in DICTIONARIES.items():
            for negatives in NEGATIVES:
                run = learn(STUDY, method, settings(dictionary, negatives), seed)
                lines[dictionary][negatives].append(run)
                print_row(dictionary, f"{negatives:,}", str(seed), *(f"{run[figure]:.3f}" for figure in FIGURES))
    return lines, known


def results(lines: dict[str, Line], known: dict[str, Runs]) -> str:
    head = ["", "negatives", "batch", "steps", *FIGURES.values(), "consistency"]
    rows = [[name, "", "", "", *(cell(runs, figure) for figure in FIGURES), ""] for name, runs in known.items()]
    for dictionary, line in lines.items():
        for negatives, runs in line.items():
            how = settings(dictionary, int(negatives))
            counts = [f"{count:,}" for count in (negatives, how["training.batch_size"], how["training.steps"])]
            figures = [cell(runs, figure) for figure in FIGURES]
            rows.append([dictionary, *counts, *figures, f"{mean(runs, 'consistency'):.3f}"])
    return table(head, rows)


def conclusions(lines: dict[str, Line], known: dict[str, Runs]) -> list[str]:
    """How each dictionary fares with more negatives, and whether more was always better."""
    fewest, most = min(NEGATIVES), max(NEGATIVES)
    rankings = {(name, key): sweep.rank(line, key) for name, line in lines.items() for key in FIGURES}
    found = []
    for (name, key), ranking in rankings.items():
        means, best = ranking.means, ranking.best
        found.append(
            f"- {name}, {FIGURES[key]}: from {fewest:,} to {most:,} negatives {means[fewest]:.3f} becomes "
            f"{means[most]:.3f}; best at {best:,} ({means[best]:.3f}). Within two standard errors of the best "
            f"({100 * ranking.margin:.1f} points): {', '.join(f'{value:,}' for value in ranking.level)}."
        )
    always = sum(list(ranking.means) == sorted(NEGATIVES, reverse=True) for ranking in rankings.values())
    told = sum(most in ranking.level for ranking in rankings.values())
    gains = {
        name: 100 * (rankings[name, "knn"].means[most] - rankings[name, "knn"].means[fewest])
        for name in ("bank", "queue")
    }
    summary = (
        f"More was always better in {always} of {len(rankings)} comparisons. With batch and steps held fixed, "
        f"{most // fewest} times as many negatives change k-NN by {gains['bank']:+.1f} points (bank) and "
        f"{gains['queue']:+.1f} points (queue). In {told} of {len(rankings)} comparisons {most:,} cannot be told from "
        "the best."
    )
    limits = (
        f"{sweep.caveat(lines, known)} Ten kinds of digits are an easy look-up: MoCo's gains with up to 65,536 keys "
        "are of ImageNet's million photos, and this says nothing against them."
    )
    return [summary, "\n".join(found), limits]


def draw(figure: Figure, lines: dict[str, Line], known: dict[str, Runs]) -> None:
    left, _ = sweep.draw(figure, lines, known, "negatives a query")
    left.legend(loc="lower left", frameon=False)


def main() -> None:
    torch.set_num_threads(1)
    lines, known = measure()
    parts = [
        "Are more negatives always better? (He et al., 2020.)",
        f"{words(TRAIN, TEST)} All runs see {SEEN:,} images ({SEEN // TRAIN} epochs), but for a last short batch, at "
        f"temperature {TEMPERATURE:g} by InfoNCE. The batch is `e2e` with a batch of one more than the negatives, the "
        "bank is `bank` (slots drawn a step, momentum 0.5, one view an image where the others take two), the queue is "
        "`moco` (momentum 0.99, batch statistics of 8 groups; it fills during the first steps). Consistency: the mean "
        "cosine between stored keys and the same views encoded by the last step's key encoder. "
        f"{describe_machine([])}",
        "Where the dictionary is the batch, two things change at once: as the batch grows with its negatives, the "
        "steps become fewer, at the same learning rate. The bank and the queue hold the batch and the steps fixed, so "
        "theirs are the lines that answer the question.",
        results(lines, known),
        picture(STUDY, "Accuracy over negatives, by dictionary", 9.6, 4.4, lambda figure: draw(figure, lines, known)),
        *conclusions(lines, known),
    ]
    write_section("Negatives", parts)
    print("\n" + "\n\n".join(parts[3:]))


if __name__ == "__main__":
    main()
