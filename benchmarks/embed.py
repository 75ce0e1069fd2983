"""`likewise.embed` compared with the bare encoder on prepared tensors: images per second, and memory.

    python -m benchmarks.embed [images.npy]            # speed
    python -m benchmarks.embed memory [images.npy]     # for 10,000 images and for 100,000

The images, (n, h, w, 3) uint8, are repeated with a little noise as often as needed; without a file, random ones are
used, because the content does not change the time. The bare encoder gets tensors that are prepared beforehand, in the
same batches on the same threads, and its vectors are not stored. `embed` opens an .npy file, prepares the images and
writes a file of vectors. The command runs as a separate process and is timed from start to end.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import likewise
from benchmarks.measure import (
    MIB,
    describe_machine,
    peak_memory,
    resident,
    run_process,
    table,
    take_turns,
    write_section,
)
from likewise.data.parts import ROWS_AT_ONCE
from likewise.encoders.features import for_inference
from likewise.training.encoder import load

SIZE, ENCODER = 32, "resnet_tiny"
FEW, SUSTAINED, MANY = 10_000, 50_000, 100_000
PREPARED = 20 * ROWS_AT_ONCE  # fixed tensors; they go round as often as it takes, to need less memory
KINDS = ("npy", "npz", "parquet")
ROUNDS = 5
WANTED = 1.05  # of the rate on fixed tensors; the command's own start is not part of it
FIXED = "fixed tensors"
COMMAND = "the command, to .parquet"
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


def seconds_of(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def measure(run: Path, few: Path, path: Path, folder: Path) -> dict[str, float]:
    """Return the median seconds of each contestant for all images of `path`."""
    encoder = load(run)
    items = encoder.open(path, progress=False)
    views = encoder.augmentation.plain(torch.from_numpy(items[np.arange(min(PREPARED, len(items)))]))
    batches = views.split(ROWS_AT_ONCE)

    @torch.no_grad()
    def fixed(network: nn.Module) -> None:
        for number in range(len(items) // ROWS_AT_ONCE):
            network(batches[number % len(batches)])
        if rest := len(items) % ROWS_AT_ONCE:
            network(views[:rest])

    def embed(source: Path, kind: str) -> None:
        likewise.embed(encoder, source, out=folder / f"vectors.{kind}", progress=False).unlink()

    def command() -> float:
        out = folder / "command.parquet"
        finished = run_process("-m", "likewise", "embed", str(run), str(path), "--out", str(out))
        out.unlink()
        return finished.seconds

    for kind in KINDS:  # warm up
        embed(few, kind)
    fast_network = for_inference(encoder.backbone)
    contestants = {
        FIXED: lambda: seconds_of(lambda: fixed(encoder.backbone)),
        f"{FIXED}, as embed runs it": lambda: seconds_of(lambda: fixed(fast_network)),
    }
    contestants |= {f"embed to .{kind}": lambda kind=kind: seconds_of(lambda: embed(path, kind)) for kind in KINDS}
    contestants[COMMAND] = command
    return {name: median(seconds) for name, seconds in take_turns(contestants, ROUNDS).items()}


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


def peak(run: Path, path: Path, kind: str, folder: Path) -> float:
    out = folder / f"memory.{kind}"
    found = peak_memory("benchmarks.embed", "once", str(run), str(path), str(out))
    out.unlink()
    return found


def trained(folder: Path, given: Images) -> tuple[Path, Path]:
    """A run of a few steps, and the file of few images that it saw."""
    few = folder / "few.npy"
    write(few, given, FEW)
    asked = {"data.size": SIZE}
    run = likewise.train(
        few, method="simclr", encoder=ENCODER, steps=3, out=folder / "run", settings=asked, progress=False
    )
    return run.folder, few


def speed(given: Images) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, few = trained(folder, given)
        path = folder / "sustained.npy"
        write(path, given, SUSTAINED)
        seconds = measure(run, few, path, folder)
    rows = []
    for name, took in seconds.items():
        ratio = seconds[FIXED] / took
        is_short = name.startswith("embed") and ratio < WANTED
        rows.append([name, f"{took:.1f} s", f"{SUSTAINED / took:,.0f}", f"{ratio:.2f}×{', **short**' * is_short}"])
    text = "\n\n".join(
        [
            describe_machine(["pyarrow"]),
            f"{SUSTAINED:,} images, {ENCODER} at {SIZE} pixels, backbone, batches of {ROWS_AT_ONCE}, from an .npy of "
            f"{given.shape[1]} × {given.shape[2]} pixels; medians of {ROUNDS} rounds in turns, {WANTED:.2f}× wanted of "
            "embed. Fixed tensors: the network alone as it was trained, in evaluation mode and without gradients, on "
            "as many views that were made before; as embed runs it: its copy for inference, on the same views. The "
            "command is the wall clock of `likewise embed` as a process of its own, with starting Python, loading the "
            "libraries and opening the run.",
            table(["", "time", "images/s", "of fixed tensors"], rows),
        ]
    )
    write_section("Embed", text)
    print(text)


def memory(given: Images) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, few = trained(folder, given)
        many = folder / "many.npy"
        write(many, given, MANY)
        for kind in KINDS:
            first, second = (peak(run, path, kind, folder) for path in (few, many))
            rows.append([f".{kind}", *(f"{each / MIB:,.1f} MiB" for each in (first, second))])
            rows[-1].append(f"{100 * (second / first - 1):+.1f}%")
            print(rows[-1], flush=True)
    text = "\n\n".join(
        [
            describe_machine(["pyarrow"]),
            f"{ENCODER} at {SIZE} pixels. The highest anonymous memory (RssAnon, sampled every 2 ms) of a process of "
            "its own while it embeds, above what it was with the encoder loaded. Pages of the mapped input are not "
            "counted. As elsewhere here malloc is told to give back what is freed; left alone it keeps some tens of "
            "MiB more, by chance. Flat is wanted.",
            table(["to", f"{FEW:,} images", f"{MANY:,} images", "grown"], rows),
        ]
    )
    write_section("Embed: memory", text)
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["once"]:
        embed_once(*sys.argv[2:])
    else:
        measured, *files = (memory, *sys.argv[2:]) if sys.argv[1:2] == ["memory"] else (speed, *sys.argv[1:])
        measured(np.load(files[0]) if files else made_up())
