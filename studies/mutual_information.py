"""How much mutual information does InfoNCE show, and how much is there?

    python -m studies.mutual_information

van den Oord et al., 2018: log N − L is a lower bound on the mutual information of query and key. Poole et al.,
2019: it cannot exceed log N, N being the candidates of a query. Here both are measured where the truth is known:
x and y are Gaussian in d dimensions, each pair of coordinates correlated by ρ, so that
I = −d/2 · log(1 − ρ²).

The critic is −‖Ax − By‖² with random A and B at the start. It can represent the true density ratio: log p(x | y) is
−‖x − ρy‖² / (2 (1 − ρ²)) plus a constant, and terms that depend on x alone cancel in a softmax over keys. So a gap that
the true density ratio shows as well is due to the bound, and any further gap is due to training.
"""

import math
import sys
from dataclasses import dataclass
from itertools import groupby

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.measure import describe_machine, table
from likewise.evaluation.information import infonce_bound
from likewise.losses import info_nce
from likewise.randomness import generator
from studies.page import COLOURS, grid, measured_once, picture, print_row, write_section

STUDY = "mutual_information"
DIM = 20
INFORMATION = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)  # nats
STEPS = {16: 6000, 64: 3000, 256: 1500, 1024: 600, 4096: 200}  # of training, by candidates
LEARNING_RATE = {16: 0.005, 64: 0.01, 256: 0.01, 1024: 0.02, 4096: 0.02}
MEASURED_PAIRS, FEWEST_BATCHES = 2**16, 32
NEAR = 0.1  # a trained critic must come so near to what the true density ratio scores
SEED = 0


@dataclass(frozen=True)
class Cell:
    """One critic, trained and then measured on fresh batches; nats, with standard errors over batches."""

    information: float  # the truth
    candidates: int
    bound: float  # log N − L of the trained critic
    error: float
    best: float  # of the true density ratio, on the same batches
    best_error: float

    @property
    def ceiling(self) -> float:
        return math.log(self.candidates)

    def faults(self) -> list[str]:
        """Which of the three statements do not hold."""
        wrong = {
            "above the truth": self.bound > self.information + 3 * self.error,
            "above log N": self.bound > self.ceiling + 3 * self.error,
            f"not within {NEAR:.0%} of the true density ratio": abs(self.bound - self.best) > NEAR * self.best,
        }
        return [words for words, so in wrong.items() if so]

    def __str__(self) -> str:
        return f"{self.bound:.3f} ± {self.error:.3f} of {self.best:.3f}"


def correlation(information: float) -> float:
    """ρ of the Gaussians that share so many nats."""
    return math.sqrt(-math.expm1(-2 * information / DIM))


def draw_pairs(n: int, rho: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """x (n, d) and y (n, d), each standard normal."""
    x, noise = torch.randn(2, n, DIM, generator=rng)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def score(query: Tensor, key: Tensor) -> Tensor:
    """Each query among all keys, by −‖query − key‖²."""
    return info_nce(query, key, similarity="euclidean", temperature=1.0)


def train_critic(information: float, candidates: int, *, steps: int, lr: float, seed: int) -> tuple[Tensor, Tensor]:
    """A and B (d, d), from random ones, by Adam with a cosine schedule, on fresh pairs at every step."""
    rho, rng = correlation(information), generator(seed, "critic")
    a, b = (torch.randn(2, DIM, DIM, generator=rng) / math.sqrt(DIM)).unbind()
    weights = [a.requires_grad_(), b.requires_grad_()]
    optimizer = torch.optim.Adam(weights, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        x, y = draw_pairs(candidates, rho, generator(seed, "train", step))
        optimizer.zero_grad()
        score(x @ a, y @ b).backward()
        optimizer.step()
        schedule.step()
    return a.detach(), b.detach()


@torch.no_grad()
def measure_critic(information: float, candidates: int, a: Tensor, b: Tensor, *, pairs: int, seed: int) -> Cell:
    """The bounds of a critic and of the true density ratio on the same fresh batches."""
    rho, found = correlation(information), []
    sharpness = 1 / math.sqrt(2 * (1 - rho**2))
    for batch in range(max(FEWEST_BATCHES, pairs // candidates)):
        x, y = draw_pairs(candidates, rho, generator(seed, "measure", batch))
        losses = torch.stack([score(x @ a, y @ b), score(sharpness * x, sharpness * rho * y)])
        found.append(infonce_bound(losses.double(), candidates))
    bounds = torch.stack(found)
    (bound, best), (error, best_error) = bounds.mean(0).tolist(), (bounds.std(0) / math.sqrt(len(bounds))).tolist()
    return Cell(information, candidates, bound, error, best, best_error)


def measure_cell(
    information: float, candidates: int, *, steps: int, lr: float, pairs: int = MEASURED_PAIRS, seed: int = SEED
) -> Cell:
    a, b = train_critic(information, candidates, steps=steps, lr=lr, seed=seed)
    return measure_critic(information, candidates, a, b, pairs=pairs, seed=seed)


def kept_cell(information: float, candidates: int) -> Cell:
    settings = {"information": information, "candidates": candidates, "dim": DIM, "seed": SEED}
    how = {"steps": STEPS[candidates], "lr": LEARNING_RATE[candidates], "pairs": MEASURED_PAIRS}
    measured = measured_once(
        STUDY,
        settings | how,
        lambda: vars(measure_cell(information, candidates, **how)),  # type: ignore[arg-type]
    )
    return Cell(**measured)


def results(cells: list[Cell]) -> str:
    """A row for each truth, a column for each N."""
    head = ["true I", *(f"N {n:,} (log N {math.log(n):.2f})" for n in STEPS)]
    rows = groupby(sorted(cells, key=lambda cell: (cell.information, cell.candidates)), lambda cell: cell.information)
    return table(head, [[f"{information:g}", *map(str, row)] for information, row in rows])


def verdict(cells: list[Cell]) -> str:
    """Whether the three statements hold, and where they do not."""
    count = len(cells)
    failed = [f"I {c.information:g}, N {c.candidates:,}: {', '.join(c.faults())}" for c in cells if c.faults()]
    worst = max(cells, key=lambda cell: abs(1 - cell.bound / cell.best))
    least = (
        f"The trained critic that is furthest from the true density ratio (I {worst.information:g}, "
        f"N {worst.candidates:,}) reaches {worst.bound / worst.best:.1%} of its score."
    )
    asked = (
        "no trained bound is above the truth or above log N (within three standard errors), and every one is within "
        f"{NEAR:.0%} of what the true density ratio scores at the same N"
    )
    if not failed:
        return f"In all {count} cells {asked}. {least}"
    return f"It was asked that {asked}; {len(failed)} of {count} cells fail: {'; '.join(failed)}. {least}"


def message(cells: list[Cell]) -> str:
    """What the figures say of the bound itself, at the largest truth and the smallest."""
    most = [cell for cell in cells if cell.information == max(INFORMATION)]
    least = [cell for cell in cells if cell.information == min(INFORMATION)]
    shown = ", ".join(f"{cell.best:.2f} (N {cell.candidates:,}, log N {cell.ceiling:.2f})" for cell in most)
    small = f"{least[0].best / least[0].information:.0%} at N {least[0].candidates:,}"
    large = f"{least[-1].best / least[-1].information:.0%} at N {least[-1].candidates:,}"
    return (
        f"The bound saturates at log N. Of {max(INFORMATION):g} nats even the true density ratio proves only {shown}: "
        f"what is missing there is no fault of the critic, and {max(INFORMATION):g} nats cannot be shown with fewer "
        f"than e^{max(INFORMATION):g} ≈ {math.exp(max(INFORMATION)):,.0f} candidates. Where the truth is small the "
        f"bound is tight already: of {min(INFORMATION):g} nats it proves {small}, {large}. So log N − L of a run "
        "compares runs with the same N, and it says what is there only where it is well below log N."
    )


def draw(figure: Figure, cells: list[Cell]) -> None:
    axes = figure.subplots()
    grid(axes)
    axes.plot([0, 10.4], [0, 10.4], color="black", linewidth=1.2)
    axes.text(9.3, 9.5, "truth", ha="right", va="bottom")
    for colour, candidates in zip(COLOURS, STEPS, strict=True):
        row = [cell for cell in cells if cell.candidates == candidates]
        truths = [cell.information for cell in row]
        axes.axhline(math.log(candidates), color=colour, linewidth=1.2, linestyle=":")
        axes.plot(truths, [cell.best for cell in row], color=colour, linewidth=1.5)
        axes.plot(truths, [cell.bound for cell in row], "o", color=colour, markersize=6)
        axes.text(10.45, math.log(candidates), f"log {candidates:,}", color=colour, va="center")
    axes.plot([], [], "o", color="#666666", label="trained critic")
    axes.plot([], [], color="#666666", label="true density ratio")
    axes.plot([], [], ":", color="#666666", label="log N")
    axes.legend(loc="upper left", frameon=False)
    axes.set(xlim=(0, 10.4), ylim=(0, 10.4), xlabel="true mutual information (nats)", ylabel="log N − L (nats)")


def main() -> None:
    torch.set_num_threads(1)
    cells = []
    print(table(["true I", "N", "trained ± standard error of true density ratio", "faults"], []))
    for candidates in STEPS:
        for information in INFORMATION:
            cells.append(cell := kept_cell(information, candidates))
            print_row(f"{information:g}", f"{candidates:,}", str(cell), ", ".join(cell.faults()) or "none")
    steps = ", ".join(f"{steps:,} (N {n:,}, from {LEARNING_RATE[n]:g})" for n, steps in STEPS.items())
    parts = [
        "Is log N − L a lower bound on mutual information, and how tight? (van den Oord et al., 2018; Poole et al., "
        "2019.)",
        f"x and y are Gaussian in {DIM} dimensions, each pair of coordinates correlated by ρ: "
        f"I = −{DIM}/2 · log(1 − ρ²). The critic −‖Ax − By‖², A and B ({DIM}, {DIM}) and random at the start, is "
        "trained by `info_nce` within a batch of N fresh pairs (similarity euclidean, temperature 1), by Adam with a "
        f"cosine schedule, in steps: {steps}. Measured on {MEASURED_PAIRS:,} fresh pairs in batches of N (at least "
        f"{FEWEST_BATCHES} batches), the true density ratio on the same; cells of one N share their draws; "
        f"seed {SEED}. {describe_machine([])}",
        "Each cell: the trained bound ± its standard error, *of* what the true density ratio scores, in nats.",
        results(cells),
        picture(STUDY, "The bound over the true information, by N", 8, 5.6, lambda figure: draw(figure, cells)),
        verdict(cells),
        message(cells),
    ]
    write_section("Mutual information", parts)
    print("\n" + "\n\n".join(parts[3:]))
    if any(cell.faults() for cell in cells):
        sys.exit(1)


if __name__ == "__main__":
    main()
