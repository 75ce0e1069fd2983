"""CLIP with large batches in little memory, and its loss compared with open_clip's.

    python -m benchmarks.captions

Measures the time and the peak memory of the whole process for a step of 8,192 pairs in chunks (gradient caching), and
compares it with an ordinary step at a batch size that both can handle. Each measurement is a separate process. Images
have 32 pixels; the encoders are vit_tiny and text_tiny, which have no batch norm.
"""

import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks.measure import MIB, describe_machine, resident, table, write_section
from likewise import losses
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

LARGE, BOTH, CHUNK = 8192, 512, 128
CASES = ((BOTH, 0), (BOTH, CHUNK), (LARGE, CHUNK))  # pairs, and how many at once: 0 for all
REPEATS = {BOTH: 3, LARGE: 1}
WORDS = ("red", "green", "blue", "small", "large", "old", "new", "dog", "cat", "house", "tree", "car", "on", "under")


def step(pairs: int, chunk: int) -> None:
    """Print the best seconds of a step and the peak resident bytes of this process."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(pairs, 32, 32, 3), dtype=np.uint8)
    captions = [f"{' '.join(rng.choice(WORDS, size=8))} {i}" for i in range(pairs)]
    asked = {
        "encoder.name": "vit_tiny",
        "training.batch_size": pairs,
        "training.chunk": chunk,
        "training.steps": 1000,
        "data.test": 0.0,
        "data.workers": 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        ready = make_plan({"x": pixels, "captions": captions}, "clip", asked, progress=False)
        trainer = Trainer(ready, Path(folder), Observer())
        batch, seconds = trainer.batches.at(0), math.inf
        for _ in range(REPEATS[pairs]):
            began = time.perf_counter()
            trainer.learner.step(batch, 1000)
            seconds = min(seconds, time.perf_counter() - began)
    print(seconds, resident("VmHWM"))


def difference(dtype: torch.dtype) -> float:
    """The largest difference from open_clip's loss and gradients, as a share of each one's largest entry."""
    from benchmarks.peers import OpenClipLoss

    rng = torch.Generator().manual_seed(0)
    rows = [torch.randn(512, 128, generator=rng, dtype=dtype) for _ in range(2)]
    found = []
    for ours in (True, False):
        a, b = (row.clone().requires_grad_() for row in rows)
        log_temperature = torch.tensor(math.log(0.07), dtype=dtype, requires_grad=True)
        if ours:
            loss = losses.symmetric_info_nce(a, b, temperature=log_temperature.exp())
        else:
            loss = OpenClipLoss()(normalize(a, dim=1), normalize(b, dim=1), (-log_temperature).exp())
        found.append([loss.detach(), *torch.autograd.grad(loss, [a, b, log_temperature])])
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(*found, strict=True))


def main() -> None:
    measured = {}
    for pairs, chunk in CASES:
        command = [sys.executable, "-m", "benchmarks.captions", str(pairs), str(chunk)]
        seconds, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        measured[pairs, chunk] = seconds, peak
        print(f"{pairs:,} pairs, chunk {chunk}: {seconds:.1f} s, {peak / MIB:,.0f} MiB", flush=True)
    base = measured[BOTH, 0]
    rows = [
        [
            f"{pairs:,}",
            f"{chunk} at once" if chunk else "all at once",
            f"{seconds:.1f} s",
            f"{pairs / seconds:,.0f}",
            f"{base[0] / BOTH / (seconds / pairs):.2f}×",
            f"{peak / MIB:,.0f} MiB",
        ]
        for (pairs, chunk), (seconds, peak) in measured.items()
    ]
    found = table(["pairs a step", "embedded", "time", "pairs a second", "speed", "peak of the process"], rows)
    apart = {name: difference(dtype) for name, dtype in (("float64", torch.float64), ("float32", torch.float32))}
    text = "\n\n".join(
        [
            describe_machine(["open_clip_torch"]),
            "CLIP with vit_tiny and text_tiny on images of 32 pixels; one symmetric InfoNCE over the whole batch in "
            "every case, the gradients those of all pairs at once. In chunks each pair is embedded twice, which is "
            "what it costs. Peak memory is that of the whole process, libraries and data included.",
            found,
            "Loss and gradients of images, captions and temperature against open_clip's ClipLoss, 512 pairs × 128, "
            f"differ by {apart['float64']:.0e} (float64) and {apart['float32']:.0e} (float32) of their largest entry.",
        ]
    )
    write_section("CLIP in chunks", text)
    print(text)


if __name__ == "__main__":
    step(*map(int, sys.argv[1:])) if len(sys.argv) > 1 else main()
