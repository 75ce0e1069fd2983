"""Is 0.07 the best temperature?

    python -m studies.temperature

Wu et al., 2018 (InstDisc) took 0.07, He et al., 2020 (MoCo) kept it, and it has been copied since, although MoCo v2
went to 0.2, and SimCLR's best was 0.1 on ImageNet and 0.5 on CIFAR-10 (Chen et al., 2020). Wang & Isola, 2020,
describe the trade-off: how close positives are (alignment) against how evenly all items are spread (uniformity).
"""

from collections.abc import Collection

import torch
from matplotlib.figure import Figure

from benchmarks.measure import describe_machine, table
from studies import sweep
from studies.digits import SEEDS, SETTINGS, learn, references, words
from studies.page import picture, print_row, write_section
from studies.sweep import FIGURES, Line, Runs, cell, mean

STUDY = "temperature"
METHODS = ("simclr", "moco")
TEMPERATURES = (0.01, 0.02, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0)
REPEATED = 0.07
STEPS, TRAIN, TEST = 300, 4000, 1000


def measure() -> tuple[dict[str, Line], dict[str, Runs]]:
    """The runs of each method by temperature, and what they are compared with."""
    share = TEST / (TRAIN + TEST)
    lines: dict[str, Line] = {method: {temperature: [] for temperature in TEMPERATURES} for method in METHODS}
    known: dict[str, Runs] = {}
    print(table(["", "temperature", "seed", *FIGURES.values()], []))
    for seed in SEEDS:
        for name, figures in references(STUDY, share, seed).items():
            known.setdefault(name, []).append(figures)
        for method, line in lines.items():
            for temperature, runs in line.items():
                settings = {"loss.temperature": temperature, "data.test": share, "training.steps": STEPS}
                runs.append(run := learn(STUDY, method, settings, seed))
                print_row(method, f"{temperature:g}", str(seed), *(f"{run[figure]:.3f}" for figure in FIGURES))
    return lines, known


def results(lines: dict[str, Line], known: dict[str, Runs]) -> str:
    head = ["", "temperature", *FIGURES.values(), "alignment", "uniformity"]
    rows = [[name, "", *(cell(runs, figure) for figure in FIGURES), "", ""] for name, runs in known.items()]
    for method, line in lines.items():
        for temperature, runs in line.items():
            shape = [f"{mean(runs, figure):.2f}" for figure in ("alignment", "uniformity")]
            rows.append([method, f"{temperature:g}", *(cell(runs, figure) for figure in FIGURES), *shape])
    return table(head, rows)


def conclusions(lines: dict[str, Line], known: dict[str, Runs]) -> list[str]:
    """Which temperature was best, which are as good for all we know, and where 0.07 stands."""
    rankings = {(method, key): sweep.rank(line, key) for method, line in lines.items() for key in FIGURES}
    found = []
    for (method, key), ranking in rankings.items():
        means, best, worst = ranking.means, ranking.best, ranking.worst
        found.append(
            f"- {method}, {FIGURES[key]}: best at {best:g} ({means[best]:.3f}), worst at {worst:g} "
            f"({means[worst]:.3f}); {REPEATED:g} is number {list(means).index(REPEATED) + 1} of {len(means)}, "
            f"{100 * (means[best] - means[REPEATED]):.1f} points behind the best. Within two standard errors of "
            f"the best ({100 * ranking.margin:.1f} points): {listed(ranking.level)}."
        )
    count = len(rankings)
    won = sum(ranking.best == REPEATED for ranking in rankings.values())
    level = sum(REPEATED in ranking.level for ranking in rankings.values())
    lowest = sum(ranking.worst == min(TEMPERATURES) for ranking in rankings.values())
    either = set.intersection(*(set(ranking.level) for (_, key), ranking in rankings.items() if key == "knn"))
    summary = (
        f"{REPEATED:g} was the best temperature in {won} of {count} comparisons, and in {level} of {count} it cannot "
        f"be told from the best. By k-NN, {listed(either)} cannot be told from the best in either method. "
        f"{min(TEMPERATURES):g} was the worst in {lowest} of {count}."
    )
    return [summary, "\n".join(found), f"{sweep.caveat(lines, known)} Another length or data set can move the best."]


def listed(values: Collection[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values)) or "no temperature"


def draw(figure: Figure, lines: dict[str, Line], known: dict[str, Runs]) -> None:
    left, right = sweep.draw(figure, lines, known, "temperature")
    for axes in (left, right):
        axes.axvline(REPEATED, color="#888888", linestyle=":", linewidth=1.5)
    left.legend(loc="lower right", frameon=False)


def main() -> None:
    torch.set_num_threads(1)
    lines, known = measure()
    batch = SETTINGS["training.batch_size"]
    parts = [
        f"Is {REPEATED:g} the best temperature? (Wu et al., 2018; He et al., 2020; and everyone who copied it.)",
        f"{words(TRAIN, TEST)} {STEPS} steps of {batch} ({STEPS * batch / TRAIN:.1f} epochs); moco with a queue of "
        f"{TRAIN:,}, a momentum of 0.99 and batch statistics of 8 groups. Only the temperature differs. Alignment (the "
        "mean ‖a − b‖² of two views) and uniformity (Wang & Isola, 2020) are of the head's unit rows on held-out "
        f"images; of both, less is better. {describe_machine([])}",
        results(lines, known),
        picture(STUDY, "Accuracy over temperature, by method", 9.6, 4.4, lambda figure: draw(figure, lines, known)),
        *conclusions(lines, known),
    ]
    write_section("Temperature", parts)
    print("\n" + "\n\n".join(parts[2:]))


if __name__ == "__main__":
    main()
