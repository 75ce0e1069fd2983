"""`likewise.embed` beside the same encoder on tensors that are ready: images a second, and memory against their number.

    python -m benchmarks.embed [images.npy]

The images, (n, h, w, 3) uint8, are repeated with a little noise to as many as are needed; without a file they are made
up: what the pixels show changes no time. Fixed tensors are prepared beforehand and go through the network in the same
batches on the same threads; their vectors are kept, not written. `embed` opens an .npy file, prepares what it reads
and writes a file of vectors.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import likewise
from benchmarks.measure import MIB, describe_machine, quote_in_readme, race, resident, table, write_section
from likewise.training.features import EMBED_BATCH
from likewise.training.run import Encoder, load

SIZE, ENCODER = 32, "resnet_tiny"
FEW, MANY = 10_000, 100_000
KINDS = ("npy", "npz", "parquet")
REPEATS = 10
WANTED = 0.90  # of the rate on fixed tensors
SAMPLED_EVERY = 0.002  # seconds

Images = NDArray[np.uint8]


def made_up() -> Images:
    small = np.random.default_rng(0).integers(0, 256, (1000, SIZE // 4, SIZE // 4, 3), dtype=np.uint8)
    return small.repeat(4, axis=1).repeat(4, axis=2)


def write(path: Path, given: Images, count: int) -> None:
    """So many images in an .npy, a part at a time: the given ones in turn, each with noise of its own."""
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", np.uint8, (count, *given.shape[1:]))
    for start in range(0, count, len(given)):
        part = given[: count - start]
        noise = rng.integers(-8, 9, part.shape, dtype=np.int16)
        file[start : start + len(part)] = np.clip(part + noise, 0, 255)
    file.flush()


def rates(encoder: Encoder, path: Path, folder: Path) -> dict[str, float]:
    """Images a second of each."""
    items = encoder.open(path, progress=False)
    views = encoder.augmentation.plain(torch.from_numpy(items[np.arange(len(items))]))

    @torch.no_grad()
    def fixed() -> list[torch.Tensor]:
        return [encoder.backbone(batch) for batch in views.split(EMBED_BATCH)]

    def ours(kind: str) -> Callable[[], object]:
        out = folder / f"vectors.{kind}"
        return lambda: likewise.embed(encoder, path, out=out, progress=False).unlink()

    best = race({"fixed tensors": fixed} | {f"embed to .{kind}": ours(kind) for kind in KINDS}, REPEATS)
    return {name: len(items) / seconds for name, seconds in best.items()}


def embed_once(run: str, path: str, out: str) -> None:
    """Print by how many bytes anonymous memory, which is this process's own, rose at most while all was embedded."""
    encoder = load(run)
    with peak_of_own_memory() as rise:
        likewise.embed(encoder, path, out=out, progress=False)
    print(rise())


@contextmanager
def peak_of_own_memory() -> Iterator[Callable[[], int]]:
    """Sampled, since the kernel keeps no peak of it. Pages of mapped files are not counted: the kernel's to drop."""
    before, done = resident("RssAnon"), threading.Event()
    highest = before

    def sample() -> None:
        nonlocal highest
        while not done.wait(SAMPLED_EVERY):
            highest = max(highest, resident("RssAnon"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield lambda: highest - before
    finally:
        done.set()
        thread.join()


def memory(run: Path, path: Path, kind: str, folder: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.embed", "once", str(run), str(path), str(folder / f"memory.{kind}")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (folder / f"memory.{kind}").unlink()
    return float(found)


def main(given: Images) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few.npy", folder / "many.npy"
        write(few, given, FEW)
        write(many, given, MANY)
        run = likewise.train(
            few,
            method="simclr",
            encoder=ENCODER,
            steps=3,
            out=folder / "run",
            settings={"data.size": SIZE},
            progress=False,
        )
        rate = rates(run.encoder, few, folder)
        print(rate, flush=True)
        peaks = {kind: [memory(run.folder, path, kind, folder) for path in (few, many)] for kind in KINDS}
    ready = rate.pop("fixed tensors")
    rows = [["fixed tensors", f"{ready:,.0f}", "1.00×", "", "", ""]]
    for kind, (first, second) in peaks.items():
        found = rate[f"embed to .{kind}"]
        share = f"{found / ready:.2f}×" + (", **short**" if found < WANTED * ready else "")
        grown = f"{100 * (second / first - 1):+.1f}%"
        memories = [f"{peak / MIB:,.0f} MiB" for peak in (first, second)]
        rows.append([f"embed to .{kind}", f"{found:,.0f}", share, *memories, grown])
    header = ["", "images/s", "of fixed tensors", f"memory, {FEW:,} images", f"memory, {MANY:,} images", "grown"]
    text = "\n\n".join(
        [
            describe_machine(["pyarrow"]),
            f"{ENCODER} at {SIZE} pixels, backbone, batches of {EMBED_BATCH}, from an .npy of {given.shape[1]} × "
            f"{given.shape[2]} pixels; {FEW:,} images, best of {REPEATS} in turns, {WANTED:.2f}× wanted. Fixed "
            "tensors: the network alone, in evaluation mode and without gradients, on views made before. Memory: "
            "the highest anonymous memory (RssAnon, sampled every 2 ms) of a process of its own above what it was with "
            "the encoder loaded; pages of the mapped input are not counted, flat is wanted.",
            (found_table := table(header, rows)),
        ]
    )
    write_section("Embed", text)
    quote_in_readme("embed", found_table)
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["once"]:
        embed_once(*sys.argv[2:])
    else:
        main(np.load(sys.argv[1]) if len(sys.argv) > 1 else made_up())
