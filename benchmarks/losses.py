"""The losses compared with other libraries: time and peak memory, forward and backward, float32, two threads.

make bench
python -m benchmarks.losses                     # in an environment with the peers
python -m benchmarks.losses memory CASE NAME    # one peak memory, in a separate process
"""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.chart import bar_chart
from benchmarks.measure import (
    MIB,
    describe_machine,
    peak_memory,
    race,
    report_peak_memory,
    table,
    verdict,
    write_section,
)
from benchmarks.peers import InfoNCEPyTorch, LightlyNTXent, MetricLearningNTXent, OpenClipLoss
from likewise import losses

PEERS = ("lightly", "pytorch-metric-learning", "info-nce-pytorch", "open-clip-torch")
OURS = "likewise"
MM = "torch.mm"
HEADER = ["loss", "", "time", "time / ours", "peak memory", "memory / ours"]
WHY = (
    "The queue has least to spare: its two products, which cannot be avoided, are most of its time (last "
    "column), and normalising the stored keys, which MoCo's code leaves out, is most of the rest."
)
CHART = Path(__file__).parents[1] / "docs" / "reference" / "losses.svg"
Loss = Callable[..., Tensor]
Inputs = Callable[[int], tuple[Tensor, ...]]  # of how many times fewer rows, 1 for the case itself


@dataclass(frozen=True)
class Case:
    """One comparison: how its inputs are made, who takes part, and the products nobody can avoid."""

    title: str
    inputs: Inputs
    contestants: dict[str, Loss]
    flops: float
    repeats: int
    against: str = ""  # the peer that targets are about
    faster: float = 1.0
    leaner: float = 1.0


def pairs(n: int, d: int) -> Inputs:
    return lambda shrink: tuple(torch.randn(n // shrink, d, requires_grad=True) for _ in range(2))


def queue(n: int, k: int, d: int) -> Inputs:
    def make(shrink: int) -> tuple[Tensor, ...]:
        keys = normalize(torch.randn(k // shrink, d), dim=1)
        return torch.randn(n // shrink, d, requires_grad=True), torch.randn(n // shrink, d), keys, keys.T.contiguous()

    return make


def plain_nt_xent(a: Tensor, b: Tensor) -> Tensor:
    """NT-Xent as one writes it by hand, with care."""
    rows = normalize(torch.cat([a, b]), dim=1)
    scores = (rows @ rows.T / 0.1).fill_diagonal_(-math.inf)
    return cross_entropy(scores, torch.arange(len(rows)).roll(len(a)))


def plain_symmetric(a: Tensor, b: Tensor) -> Tensor:
    scores = normalize(a, dim=1) @ normalize(b, dim=1).T / 0.07
    own = torch.arange(len(a))
    return (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2


def plain_info_nce(a: Tensor, b: Tensor) -> Tensor:
    return cross_entropy(normalize(a, dim=1) @ normalize(b, dim=1).T / 0.07, torch.arange(len(a)))


def moco_as_published(query: Tensor, key: Tensor, keys: Tensor, columns: Tensor) -> Tensor:
    """The operations of MoCo's published training step; its queue is (d, k), unit columns."""
    query, key = normalize(query, dim=1), normalize(key, dim=1)
    positive = torch.einsum("nc,nc->n", [query, key]).unsqueeze(-1)
    negative = torch.einsum("nc,ck->nk", [query, columns.clone().detach()])
    scores = torch.cat([positive, negative], dim=1) / 0.07
    return cross_entropy(scores, torch.zeros(len(query), dtype=torch.int64))


def metric_learning_nt_xent(a: Tensor, b: Tensor) -> Tensor:
    labels = torch.arange(len(a)).repeat(2)
    return MetricLearningNTXent(temperature=0.1)(torch.cat([a, b]), labels)


def open_clip(a: Tensor, b: Tensor) -> Tensor:
    return OpenClipLoss()(normalize(a, dim=1), normalize(b, dim=1), torch.tensor(1 / 0.07))


CASES = {
    "nt_xent": Case(
        "NT-Xent, 4,096 pairs × 128",
        pairs(4096, 128),
        {
            OURS: lambda a, b: losses.nt_xent(a, b, temperature=0.1),
            "lightly": LightlyNTXent(temperature=0.1),
            "plain PyTorch": plain_nt_xent,
        },
        # The matrix is symmetric: half of it forward, half of it again, and all of it times the rows.
        flops=2 * 8192**2 * 128 * (0.5 + 0.5 + 1),
        repeats=9,
        against="lightly",
        faster=9,
        leaner=20,
    ),
    "queue": Case(
        "InfoNCE, 256 queries × 65,536 keys × 128",
        queue(256, 65536, 128),
        {
            OURS: lambda q, p, keys, columns: losses.info_nce(q, p, keys, temperature=0.07),
            "MoCo as published": moco_as_published,
            "info-nce-pytorch": lambda q, p, keys, columns: InfoNCEPyTorch(temperature=0.07)(q, p, keys),
        },
        flops=2 * 256 * 65536 * 128 * 2,
        repeats=60,
        against="MoCo as published",
        faster=5,
        leaner=4,
    ),
    "symmetric": Case(
        "symmetric InfoNCE, 8,192 pairs × 256",
        pairs(8192, 256),
        {
            OURS: lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.07),
            "open_clip": open_clip,
            "plain PyTorch": plain_symmetric,
        },
        flops=2 * 8192**2 * 256 * 4,
        repeats=5,
        against="open_clip",
        faster=2.3,
        leaner=20,
    ),
    "cube": Case(
        "NT-Xent, 128 pairs × 128",
        pairs(128, 128),
        {OURS: losses.nt_xent, "pytorch-metric-learning": metric_learning_nt_xent},
        flops=2 * 256**2 * 128 * (0.5 + 0.5 + 1),
        repeats=9,
    ),
}
SMALL = {
    "NT-Xent": (lambda a, b: losses.nt_xent(a, b, temperature=0.1), plain_nt_xent),
    "InfoNCE": (lambda a, b: losses.info_nce(a, b, temperature=0.07), plain_info_nce),
    "symmetric InfoNCE": (lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.07), plain_symmetric),
}


def step(loss: Loss, inputs: tuple[Tensor, ...]) -> Callable[[], None]:
    """Forward and backward, gradients made anew."""

    def run() -> None:
        for tensor in inputs:
            tensor.grad = None
        loss(*inputs).backward()

    return run


def memory_of(case: str, name: str) -> float:
    """Peak memory of one forward and backward, above the inputs, in MiB."""
    return peak_memory("benchmarks.losses", "memory", case, name) / MIB


def report_memory(case: str, name: str) -> None:
    """The child's side of `memory_of`; a case is one of CASES or a number of NT-Xent pairs."""
    found = CASES.get(case)
    inputs = found.inputs if found else pairs(int(case), 128)
    loss = found.contestants[name] if found else losses.nt_xent
    step(loss, inputs(64))()  # libraries allocate buffers of their own the first time
    report_peak_memory(step(loss, inputs(1)))


def products(flops: float, n: int, d: int) -> Callable[[], None]:
    """So many flops, spent in this machine's own torch.mm of (n, d) by (d, 4096)."""
    a, b, out = torch.randn(n, d), torch.randn(d, 4096), torch.empty(n, 4096)
    times = round(flops / (2 * n * 4096 * d))

    def run() -> None:
        for _ in range(times):
            torch.mm(a, b, out=out)

    return run


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


@dataclass(frozen=True)
class Compared:
    """Time and memory of a case's contestants, and how near its products come to torch.mm's rate."""

    case: Case
    seconds: dict[str, float]
    mebibytes: dict[str, float]
    share: str

    def multiples(self) -> list[tuple[str, float, float]]:
        return [
            (name, self.seconds[name] / self.seconds[OURS], self.mebibytes[name] / self.mebibytes[OURS])
            for name in self.case.contestants
        ]

    def against_targets(self) -> list[str]:
        """What was wanted of this case and what was reached, said either way."""
        _, seconds, mebibytes = next(found for found in self.multiples() if found[0] == self.case.against)
        share = self.seconds[MM] / self.seconds[OURS]
        return [
            self.case.title,
            verdict(seconds, self.case.faster, "×"),
            verdict(mebibytes, self.case.leaner, "×"),
            verdict(100 * share, 60, " %"),
        ]

    def rows(self) -> list[list[str]]:
        return [
            [
                self.case.title if name == OURS else "",
                name,
                milliseconds(self.seconds[name]),
                f"{seconds:.2f}×",
                f"{self.mebibytes[name]:,.0f} MiB",
                f"{mebibytes:.1f}×",
            ]
            for name, seconds, mebibytes in self.multiples()
        ]


def compare(key: str) -> Compared:
    case = CASES[key]
    inputs = case.inputs(1)
    steps = {name: step(loss, inputs) for name, loss in case.contestants.items()}
    steps[MM] = products(case.flops, len(inputs[0]), inputs[0].shape[1])
    times = race(steps, case.repeats)
    memory = {name: memory_of(key, name) for name in case.contestants}
    share = f"{case.title}: {case.flops / times[OURS] / 1e9:.0f} Gflop/s, {times[MM] / times[OURS]:.0%} of torch.mm's"
    return Compared(case, times, memory, share)


def small_batches() -> list[list[str]]:
    rows = []
    for n in (64, 128, 256, 512):
        ratios = []
        for ours, plain in SMALL.values():
            inputs = pairs(n, 128)(1)
            times = race({"ours": step(ours, inputs), "plain": step(plain, inputs)}, 400)
            ratios.append(f"{times['ours'] / times['plain']:.2f}×")
        rows.append([str(n), *ratios])
    return rows


def growth() -> list[list[str]]:
    rows, previous = [], (0.0, 0.0)
    for n in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768):
        inputs = pairs(n, 128)(1)
        seconds = race({"ours": step(losses.nt_xent, inputs)}, 9 if n <= 4096 else 2)["ours"]
        mebibytes = memory_of(str(n), OURS)
        factors = [
            f"{now / before:.1f}×" if before else "" for now, before in zip((seconds, mebibytes), previous, strict=True)
        ]
        rows.append([f"{n:,}", milliseconds(seconds), factors[0], f"{mebibytes:,.0f} MiB", factors[1]])
        previous = seconds, mebibytes
    return rows


def errors() -> list[list[str]]:
    """Largest relative error of the gradient against float64, float32 inputs, 512 noisy pairs × 128."""
    rows = []
    item = torch.randn(512, 128)
    a, b = ((item + torch.randn(512, 128)).requires_grad_() for _ in range(2))
    for temperature in (0.005, 0.01, 0.07, 0.5):
        exact = torch.autograd.grad(losses.nt_xent(a.double(), b.double(), temperature=temperature), [a])[0]
        line = [f"{temperature:g}"]
        for loss in (
            lambda a, b, t=temperature: losses.nt_xent(a, b, temperature=t),
            LightlyNTXent(temperature=temperature),
            lambda a, b, t=temperature: MetricLearningNTXent(temperature=t)(
                torch.cat([a, b]), torch.arange(len(a)).repeat(2)
            ),
        ):
            (gradient,) = torch.autograd.grad(loss(a, b), [a])
            line.append(f"{((gradient - exact).norm() / exact.norm()).item():.1e}")
        rows.append(line)
    return rows


def import_times() -> list[list[str]]:
    def python(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    statements = ["import torch", "import likewise", "import torch; from likewise import losses"]
    times = race({"pass": python("pass"), **{code: python(code) for code in statements}}, 9)
    torch_time = times["import torch"] - times["pass"]
    return [
        [
            f"`{code}`",
            f"{(times[code] - times['pass']) * 1e3:,.0f} ms",
            f"{(times[code] - times['pass']) / torch_time:.2f}×",
        ]
        for code in statements
    ]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    compared = []
    for key, case in CASES.items():
        found = compare(key)
        compared.append(found)
        print(case.title, table(HEADER, found.rows()), found.share, sep="\n", flush=True)
    big = table(HEADER, [row for found in compared for row in found.rows()])
    sections = [
        describe_machine(PEERS),
        "Forward and backward, float32, best of several repeats taken in turns; peak memory above the inputs, "
        "each in a process of its own.",
        big,
        "The products that the loss cannot avoid, against this machine's own `torch.mm` in the same run:",
        "\n".join(f"- {found.share}" for found in compared[:-1]),  # the last is a small problem
        "Reached and wanted, against the peer in question (time and memory) and torch.mm:",
        table(["loss", "faster", "leaner", "of torch.mm"], [found.against_targets() for found in compared[:-1]]),
        WHY,
        "Small batches, time of ours / plain PyTorch:",
        table(["pairs × 128", *SMALL], small_batches()),
        "NT-Xent against the number of pairs (d = 128): time grows with n², memory with n.",
        table(["pairs", "time", "of the row above", "peak memory", "of the row above"], growth()),
        "NT-Xent's gradient against float64 on the same float32 inputs (512 noisy pairs × 128), relative error:",
        table(["temperature", OURS, "lightly", "pytorch-metric-learning"], errors()),
        "Imports, above a bare interpreter's start:",
        table(["", "time", "of torch's"], import_times()),
    ]
    text = "\n\n".join(sections)
    print(text)
    write_section("Losses", text)
    CHART.write_text(bar_chart([(found.case.title, found.multiples()) for found in compared[:-1]]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        torch.set_num_threads(2)
        report_memory(*sys.argv[2:])
    else:
        main()
