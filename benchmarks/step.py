"""Where the time of a training step goes: reading, views, encoder passes, loss, optimizer, momentum copy, dictionary.

    python -m benchmarks.step

Each case is a whole `likewise.train` in a separate process. The learner's methods are wrapped with timers from outside,
so the code that is measured is the code that users run. A hook on the embeddings splits the backward pass: when the
first embedding gets its gradient, the loss's part has ended and the encoder's part begins.
"""

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor, nn

import likewise
from benchmarks import sequences
from benchmarks.captions import WORDS
from benchmarks.measure import describe_machine, run_process, table, write_section
from benchmarks.training import BATCH, SIZE, images
from likewise import encoders
from likewise.training import trainer
from likewise.training.batches import Batch
from likewise.training.learner import Learner

STEPS = 60  # measured
PAIRS = 64  # of CLIP's batch: its encoders are many times slower than the others
WANTED = 0.10  # of a step, outside the encoder's passes, at most
PARTS = ("reading", "views", "encoder", "loss", "optimizer", "copy", "dictionary", "rest")


@dataclass(frozen=True)
class Case:
    """One method with its setting."""

    words: str
    source: Callable[[], Any]
    settings: dict[str, Any]
    warm_up: int = 8  # steps that are not measured


def windows() -> dict[str, np.ndarray]:
    """Noise as sound, 512 recordings of one window each."""
    count, window = 512, sequences.FRAMES * encoders.build("audio_8k", samples=1).hop
    noise = np.random.default_rng(0).standard_normal(count * window) * 3000
    return {"audio": noise.astype(np.int16), "offsets": np.arange(count + 1) * window, "rate": np.array(8000)}


def captioned() -> dict[str, Any]:
    """The images, each with a caption of its own."""
    rng = np.random.default_rng(0)
    pixels = images()
    return {"x": pixels, "captions": [f"{' '.join(rng.choice(WORDS, size=8))} {i}" for i in range(len(pixels))]}


OF_IMAGES = {"encoder.name": "resnet_tiny", "training.batch_size": BATCH, "data.size": SIZE}
CASES = {
    "simclr": Case(f"resnet_tiny at {SIZE} pixels, batch {BATCH}", images, OF_IMAGES),
    # An epoch fills the queue; before that a look-up has fewer keys and costs less.
    "moco": Case(f"resnet_tiny at {SIZE} pixels, batch {BATCH}, its queue full", images, OF_IMAGES, warm_up=40),
    "cpc": Case(
        f"audio_8k, {sequences.BATCH} windows of {sequences.FRAMES} frames, {sequences.HORIZON} steps ahead, "
        f"{sequences.CANDIDATES} candidates",
        windows,
        {
            "encoder.name": "audio_8k",
            "pairs.window": sequences.FRAMES * encoders.build("audio_8k", samples=1).hop,
            "pairs.horizon": sequences.HORIZON,
            "pairs.candidates": sequences.CANDIDATES,
            "training.batch_size": sequences.BATCH,
        },
    ),
    "clip": Case(
        f"vit_tiny and text_tiny at {SIZE} pixels, batch {PAIRS}",
        captioned,
        {"encoder.name": "vit_tiny", "text.name": "text_tiny", "training.batch_size": PAIRS},
    ),
}


class Clock:
    """The seconds of every step by part. A part that is called by another one is subtracted from it."""

    def __init__(self) -> None:
        self.steps: list[Counter[str]] = []
        self._now: Counter[str] = Counter()
        self._running: list[str] = []  # the part that runs now comes last, before it those that wait for it
        self._since = 0.0
        self._thread = threading.get_ident()

    def enter(self, part: str) -> None:
        self._charge()
        self._running.append(part)

    def leave(self) -> None:
        self._charge()
        self._running.pop()

    def switch(self, part: str) -> None:
        """Charge the part that runs now to another name from here on."""
        self.leave()
        self.enter(part)

    def timed(self, part: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function. What other threads do is not a part of the step; only waiting for them is."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return run(*args, **kwargs)
            self.enter(part)
            try:
                return run(*args, **kwargs)
            finally:
                self.leave()

        return wrapped

    def begin_step(self) -> None:
        self._now = Counter()

    def end_step(self) -> None:
        self.steps.append(self._now)

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._running:
            self._now[self._running[-1]] += now - self._since
        self._since = now


def watch(learner: Learner, clock: Clock) -> None:
    """Time the parts of every step that this learner takes, from waiting for its batch to its end."""
    methods = [
        (learner, "views", "views"),
        (learner.dictionary, "lookup", "loss"),
        (learner, "look_ups", "loss"),
        (learner.loss, "forward", "loss"),
        (learner.optimizer, "zero_grad", "optimizer"),
        (learner.fabric, "clip_gradients", "optimizer"),
        (learner.optimizer, "step", "optimizer"),
        (learner.copy, "follow", "copy"),
        (learner.dictionary, "update", "dictionary"),
    ]
    for owner, name, part in methods:
        if owner is not None:
            setattr(owner, name, clock.timed(part, getattr(owner, name)))
    in_backward = False

    def gradient_is_complete(gradient: Tensor) -> None:
        nonlocal in_backward
        if in_backward:  # the first embedding of this step; the others are the encoder's own matter
            clock.switch("encoder")
            in_backward = False

    def passed(module: nn.Module, inputs: Any, outputs: Any) -> None:
        clock.leave()
        for embeddings in outputs if isinstance(outputs, tuple) else (outputs,):
            if embeddings.requires_grad:
                embeddings.register_hook(gradient_is_complete)

    for network in (learner.tower, learner.copy):
        if network is not None:
            network.register_forward_pre_hook(lambda module, inputs: clock.enter("encoder"))
            network.register_forward_hook(passed)
    backward, step, ahead = learner.fabric.backward, learner.step, learner.batches.ahead

    def timed_backward(*args: Any, **kwargs: Any) -> None:
        nonlocal in_backward
        in_backward = True
        clock.enter("loss")
        backward(*args, **kwargs)
        clock.leave()

    def timed_step(*args: Any, **kwargs: Any) -> Any:
        taken = clock.timed("rest", step)(*args, **kwargs)
        clock.end_step()
        return taken

    def timed_ahead(first: int, end: int) -> Iterator[Batch]:
        batches = ahead(first, end)
        wait = clock.timed("reading", lambda: next(batches, None))
        clock.begin_step()
        while (batch := wait()) is not None:
            yield batch
            clock.begin_step()

    learner.fabric.backward, learner.step = timed_backward, timed_step  # type: ignore[method-assign]
    learner.batches.ahead = timed_ahead  # type: ignore[method-assign]


def measure(method: str) -> None:
    """Train, and print the median milliseconds of a step and of its parts, and the share outside the encoder."""
    case, clock = CASES[method], Clock()

    def build(*args: Any) -> Learner:
        learner = Learner(*args)
        watch(learner, clock)
        return learner

    settings = case.settings | {"data.test": 0.0, "training.steps": case.warm_up + STEPS}
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(trainer, "Learner", build):
        likewise.train(case.source(), method=method, out=Path(folder) / "run", settings=settings, progress=False)
    steps = clock.steps[case.warm_up :]
    totals = [sum(step.values()) for step in steps]
    result = {part: 1000 * median(step[part] for step in steps) for part in PARTS}
    result["step"] = 1000 * median(totals)
    result["outside"] = median(1 - step["encoder"] / total for step, total in zip(steps, totals, strict=True))
    print(json.dumps(result))


def main() -> None:
    measured = {}
    for method in CASES:
        measured[method] = json.loads(run_process("-m", "benchmarks.step", method).output.splitlines()[-1])
        print(method, measured[method], flush=True)
    words = {
        "reading": "waiting for the batch",
        "encoder": "encoder: forward, backward, and the copy's forward",
        "loss": "loss: look-up, forward, backward to the embeddings",
        "copy": "the copy follows",
        "dictionary": "dictionary update",
    }
    rows = [[words.get(part, part), *(f"{measured[method][part]:,.1f}" for method in CASES)] for part in PARTS]
    rows.append(["whole step", *(f"{measured[method]['step']:,.1f}" for method in CASES)])
    shares = [measured[method]["outside"] for method in CASES]
    rows.append(["outside the encoder", *(f"{share:.1%}{', **short**' if share > WANTED else ''}" for share in shares)])
    settings = "; ".join(f"{method}: {case.words}" for method, case in CASES.items())
    text = "\n\n".join(
        [
            describe_machine([]),
            f"Milliseconds, medians over {STEPS} steps in a row of a whole run with its default readers; as they are "
            "medians, the parts need not add up to the step. Logging, which happens every ten steps, and evaluation "
            f"are not in it. At most {WANTED:.0%} of a step are wanted outside the encoder. {settings}.",
            table(["", *CASES], rows),
        ]
    )
    write_section("Training: the parts of a step", text)
    print(text)


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()
