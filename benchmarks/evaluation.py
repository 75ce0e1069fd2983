"""k-NN and linear probe compared with lightly and scikit-learn, k-NN's memory, and whole commands.

    python -m benchmarks.evaluation

k-NN and linear probe are kernels: the best of several repeats is reported. Before timing, the results must agree: the
votes except for ties, and accuracies within 0.2 points. What users wait for is `likewise evaluate`, which is timed as a
separate process, and the evaluations during training, whose share of the time is measured in whole runs.
"""

import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import (
    MIB,
    describe_machine,
    peak_memory,
    race,
    report_peak_memory,
    run_process,
    table,
    train_by_command,
    write_section,
)
from likewise.evaluation import linear
from likewise.evaluation.knn import knn_predict
from likewise.recipe import Recipe

TRAIN, QUERIES, DIM, K, CLASSES, TEMPERATURE = 50_000, 10_000, 128, 200, 100, 0.07
FEATURES, TARGETS, C = 512, 10, 0.01
THEIR_BATCH = 256  # of lightly's queries; 1,024 is slower
ITEMS, SIZE = 8192, 32  # of the run in which evaluations are timed
ROUNDS = 3


def clouds(n: int, dim: int, classes: int, seed: int, apart: float = 0.5) -> tuple[Tensor, Tensor]:
    """Classes around centres, (n, dim) and labels."""
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99))
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=rng)
    return apart * centres[labels] + torch.randn(n, dim, generator=rng), labels


def features(n: int, seed: int, apart: float) -> tuple[Tensor, Tensor]:
    """Like a ResNet's: not negative, and of a spread that falls by a power law from direction to direction."""
    rng = torch.Generator().manual_seed(7)
    directions = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=rng))[0]
    rows, labels = clouds(n, FEATURES, TARGETS, seed, apart)
    return torch.relu(4 * (rows * torch.arange(1, FEATURES + 1) ** -0.5) @ directions + 0.5), labels


def knn_rows() -> list[list[str]]:
    from benchmarks.peers import lightly_knn as theirs

    (train, labels), (queries, _) = clouds(TRAIN, DIM, CLASSES, 0), clouds(QUERIES, DIM, CLASSES, 1)
    train, queries = normalize(train, dim=1), normalize(queries, dim=1)
    bank = train.T.contiguous()
    by_cosine = KNeighborsClassifier(
        K, algorithm="brute", metric="cosine", weights=lambda distance: np.exp((1 - distance) / TEMPERATURE)
    ).fit(train.numpy(), labels.numpy())

    def lightly() -> Tensor:
        parts = torch.split(queries, THEIR_BATCH)
        return torch.cat([theirs(part, bank, labels, CLASSES, K, TEMPERATURE)[:, 0] for part in parts])

    contestants = {
        "likewise": lambda: knn_predict(train, labels, queries, k=K, temperature=TEMPERATURE),
        "lightly": lightly,
        "scikit-learn, brute force": lambda: torch.from_numpy(by_cosine.predict(queries.numpy())),
    }
    answers = [run() for run in contestants.values()]
    for answer in answers[1:]:
        assert (answer == answers[0]).double().mean() > 0.9999, "a tie may fall either way, no more"
    best = race(contestants, repeats=3)
    case = f"k-NN, {QUERIES:,} queries among {TRAIN:,} × {DIM}, k {K}"
    return [[case, name, f"{s:.2f} s", f"{s / best['likewise']:.2f}×", ""] for name, s in best.items()]


def linear_rows(case: str, apart: float) -> list[list[str]]:
    (train, labels), (test, answers) = features(TRAIN, 0, apart), features(QUERIES, 1, apart)
    l2 = 1 / (C * len(train))

    def theirs() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it stopped after its default of 100 steps
            return float(
                LogisticRegression(C=C).fit(train.numpy(), labels.numpy()).score(test.numpy(), answers.numpy())
            )

    def ours() -> float:
        predicted = linear.fit(train, labels, TARGETS, l2).logits(test).argmax(dim=1)
        return float((predicted == answers).double().mean())

    contestants = {"likewise": ours, "scikit-learn, lbfgs": theirs}
    accuracies = {name: run() for name, run in contestants.items()}
    assert max(accuracies.values()) - min(accuracies.values()) < 0.002
    best = race(contestants, repeats=3)
    case = f"linear probe, {TRAIN:,} × {FEATURES}, {TARGETS} classes{case}, C {C:g}"
    return [
        [case, name, f"{s:.2f} s", f"{s / best['likewise']:.2f}×", f"{accuracies[name]:.4f}"]
        for name, s in best.items()
    ]


def memory(queries: int) -> None:
    """Print the peak of one k-NN prediction above its inputs."""
    (train, labels), (rows, _) = clouds(TRAIN, DIM, CLASSES, 0), clouds(queries, DIM, CLASSES, 1)
    report_peak_memory(lambda: knn_predict(train, labels, rows, k=K))


def command() -> str:
    """Say how long `likewise evaluate` takes on a run of a few steps on mnist5k."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        run_process("-m", "likewise", "train", "mnist5k", "--method", "moco", "--steps", "20", "--out", run)
        seconds = [run_process("-m", "likewise", "evaluate", run).seconds for _ in range(ROUNDS)]
    return f"{median(seconds):.1f} s by the wall clock (median of {ROUNDS})"


def cost(batch: int) -> str:
    """Say which share of a MoCo run evaluating takes.

    A whole run by the command line ends with its evaluation. The last stretch of steps that it logs contains it; what
    that stretch takes beyond as many steps of the others is the evaluation's time.
    """
    steps = Recipe().training.evaluate_every
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "labelled.npz"
        pixels = np.random.default_rng(0).integers(0, 256, (ITEMS, SIZE, SIZE, 3), dtype=np.uint8)
        np.savez(source, x=pixels, y=np.arange(ITEMS) % 10)
        options = ["--method", "moco", "--encoder", "resnet_tiny", "--steps", str(steps)]
        *others, last = train_by_command(source, *options, batch_size=batch).stretches
    a_step = median(stretch.seconds / stretch.steps for stretch in others)
    once = last.seconds - last.steps * a_step
    share = once / (last.seconds + sum(stretch.seconds for stretch in others))
    return f"{share:.1%} at batch {batch} ({once:.2f} s after {steps} steps of {a_step:.3f} s)"


def main() -> None:
    torch.set_num_threads(2)
    rows = [*knn_rows(), *linear_rows(" that overlap", 0.15), *linear_rows(" far apart", 0.5)]
    measured = table(["", "", "time", "time / ours", "accuracy"], rows)
    print(measured, flush=True)
    peaks = {n: peak_memory("benchmarks.evaluation", "memory", str(n)) / MIB for n in (1_000, 10_000)}
    words = ", ".join(f"{peak:.0f} MiB with {n:,} queries" for n, peak in peaks.items())
    text = "\n\n".join(
        [
            describe_machine(["lightly", "scikit-learn"]),
            measured,
            f"Peak memory of the k-NN above its inputs: {words}.",
            "`likewise evaluate RUN` on a run of MoCo on mnist5k, which evaluates raw pixels, the untrained and the "
            f"trained encoder, takes {command()}.",
            f"Of a whole MoCo run (resnet_tiny, {ITEMS:,} images of {SIZE} pixels), evaluating takes {cost(256)}; "
            f"{cost(64)}.",
        ]
    )
    write_section("Evaluation", text)
    print(text)


if __name__ == "__main__":
    memory(int(sys.argv[2])) if sys.argv[1:2] == ["memory"] else main()
