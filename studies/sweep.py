"""Compare runs over the values of one setting, with several seeds: rank the values beyond noise, and draw them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from studies.page import COLOURS, grid

FIGURES = {"knn": "k-NN", "five": "5 labels a class"}

Runs = list[dict[str, float]]  # the figures of one setting, a run for each seed
Line = dict[float, Runs]  # by the value of the setting


@dataclass(frozen=True)
class Ranking:
    """The values of a line from best to worst by one figure, and which cannot be told from the best."""

    means: dict[float, float]  # best first
    margin: float  # two standard errors of a difference between two means

    @property
    def best(self) -> float:
        return next(iter(self.means))

    @property
    def worst(self) -> float:
        return list(self.means)[-1]

    @property
    def level(self) -> list[float]:
        """The values no further than the margin behind the best, smallest first."""
        return sorted(value for value, found in self.means.items() if self.means[self.best] - found <= self.margin)


def rank(line: Line, figure: str) -> Ranking:
    means = {value: mean(runs, figure) for value, runs in line.items()}
    return Ranking(
        dict(sorted(means.items(), key=lambda item: -item[1])), 2 * 2**0.5 * noise(list(line.values()), figure)
    )


def mean(runs: Sequence[Mapping[str, float]], figure: str) -> float:
    return statistics.fmean(run[figure] for run in runs)


def noise(settings: Sequence[Runs], figure: str) -> float:
    """The standard error of a mean over the seeds, pooled over all settings.

    What all runs of a seed share, the split above all, moves them alike; it is taken off first.
    """
    seeds = len(settings[0])
    shift = [statistics.fmean(runs[seed][figure] for runs in settings) for seed in range(seeds)]
    squares = 0.0
    for runs in settings:
        rest = [run[figure] - moved for run, moved in zip(runs, shift, strict=True)]
        squares += sum((value - statistics.fmean(rest)) ** 2 for value in rest)
    freedom = (len(settings) - 1) * (seeds - 1)
    return (squares / freedom / seeds) ** 0.5


def cell(runs: Runs, figure: str) -> str:
    """The mean over the seeds, and each."""
    return f"{mean(runs, figure):.3f} ({', '.join(f'{run[figure]:.3f}' for run in runs)})"


def caveat(lines: Mapping[str, Line], known: Mapping[str, Runs]) -> str:
    """How many settings beat raw pixels, so that nobody takes these runs for more than they are."""
    settings = [runs for line in lines.values() for runs in line.values()]
    knn, five = (sum(mean(runs, key) > mean(known["raw pixels"], key) for runs in settings) for key in FIGURES)
    return (
        f"These are short runs on small images: {five} of {len(settings)} settings beat raw pixels with 5 labels a "
        f"class, {knn} of {len(settings)} in k-NN with all labels. Standard errors "
        "come from two seeds a setting and are rough themselves."
    )


def draw(figure: Figure, lines: Mapping[str, Line], known: Mapping[str, Runs], setting: str) -> tuple[Axes, Axes]:
    """Both accuracies over a setting: a line through the means, a dot for each run, raw pixels beside them."""
    left, right = figure.subplots(1, 2)
    for axes, (key, title) in zip((left, right), FIGURES.items(), strict=True):
        grid(axes)
        axes.axhline(mean(known["raw pixels"], key), color="black", linestyle="--", linewidth=1.2, label="raw pixels")
        for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
            axes.plot(list(line), [mean(runs, key) for runs in line.values()], color=colour, linewidth=2, label=name)
            for value, runs in line.items():
                axes.plot([value] * len(runs), [run[key] for run in runs], "o", color=colour, markersize=5)
        values = list(next(iter(lines.values())))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{value:,g}" for value in values], rotation=45)
        axes.set(xlabel=setting, title=title)
    left.set_ylabel("accuracy on held-out images")
    return left, right
