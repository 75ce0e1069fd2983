"""What does a network that predicts sound learn of words and voices, and how far ahead should it look?

    python -m studies.speech fsdd.npz

van den Oord et al., 2018 (CPC). The Free Spoken Digit Dataset: 3,000 clips of ten digits by six speakers. A network
is trained without labels to tell which frames come next. Then a linear probe reads digits and speakers from the mean
of its contexts, on test recordings, and digits on a speaker that is not in the training data.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure import describe_machine, table
from likewise import data, modalities
from likewise.encoders.features import features
from likewise.evaluation.linear import linear_probe
from likewise.pairs.catalog import build_tower
from likewise.training.about import fitted
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from studies.page import COLOURS, grid, measured_once, picture, print_row, write_section
from studies.sweep import Runs, cell, mean

STUDY = "speech"
SEEDS = (0, 1, 2)
UNHEARD = (0, 2, 4)  # a speaker for each seed
HORIZONS = (1, 2, 4, 8, 12)
STEPS = 500
FIGURES = {"digit": "digits", "speaker": "speakers", "unheard": "digits, a speaker never heard"}
SETTINGS: dict[str, Any] = {
    "optimizer.lr": 0.002,
    "training.steps": STEPS,
    "training.checkpoint_every": 1_000_000,
    "training.evaluate_every": 1_000_000,
}

Arrays = dict[str, NDArray[Any]]


def main() -> None:
    (path,) = sys.argv[1:]
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    print(table(["", "steps ahead", "seed", *FIGURES.values()], []))
    known = {name: [reference(arrays, name, seed) for seed in SEEDS] for name in ("MFCC statistics", "untrained")}
    for name, runs in known.items():
        for seed, run in zip(SEEDS, runs, strict=True):
            show(name, "", seed, run)
    learned = [learn(arrays, max(HORIZONS), seed) | learn_unheard(arrays, seed) for seed in SEEDS]
    line = {horizon: [learn(arrays, horizon, SEEDS[0])] for horizon in HORIZONS}
    write(known, learned, line)


def learn(arrays: Arrays, horizon: int, seed: int) -> dict[str, Any]:
    """Train on all takes but those for testing: digits and speakers on these, accuracy ahead, and the time it took."""

    def measurement() -> dict[str, Any]:
        vectors, found = train(arrays, arrays["is_test"], horizon, seed)
        return found | {name: probe(vectors, arrays[name], arrays["is_test"]) for name in ("digit", "speaker")}

    run = measured_once(STUDY, {"horizon": horizon, "seed": seed} | SETTINGS, measurement)
    show("cpc", str(horizon), seed, run)
    return run


def learn_unheard(arrays: Arrays, seed: int) -> dict[str, Any]:
    """Train, and fit the probe, without one speaker: digits on that one."""
    unheard = arrays["speaker"] == UNHEARD[SEEDS.index(seed)]

    def measurement() -> dict[str, Any]:
        vectors, _ = train(arrays, unheard, max(HORIZONS), seed)
        return {"unheard": probe(vectors, arrays["digit"], unheard)}

    settings = {"unheard": UNHEARD[SEEDS.index(seed)], "seed": seed} | SETTINGS
    run = measured_once(STUDY, settings, measurement)
    show("cpc", str(max(HORIZONS)), seed, run)
    return run


def train(arrays: Arrays, test: NDArray[Any], horizon: int, seed: int) -> tuple[Tensor, dict[str, Any]]:
    """The vectors of all clips by a network trained on those not for testing, and what the run says of itself."""
    asked = SETTINGS | {"pairs.horizon": horizon, "seed": seed}
    ready = make_plan(source(arrays, test), "cpc", asked, progress=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(ready, Path(folder), Observer())
        encoder = trainer.run().encoder
        seconds = time.monotonic() - began
        ahead = trainer.measure_held_out(ready.test).get("accuracy", [])
    vectors = features(encoder.backbone, encoder.augmentation, ready.items, np.arange(len(ready.items)))
    return vectors, {"seconds": seconds, "ahead": ahead}


def reference(arrays: Arrays, name: str, seed: int) -> dict[str, Any]:
    """The same figures without learning: of cepstra, or of the network before its training."""

    def measurement() -> dict[str, Any]:
        unheard = arrays["speaker"] == UNHEARD[SEEDS.index(seed)]
        asked = SETTINGS | {"seed": seed}
        ready = make_plan(source(arrays, arrays["is_test"]), "cpc", asked, progress=False)
        everything, modality = np.arange(len(ready.items)), modalities.of(ready.items.main)
        if name == "untrained":
            about = fitted(ready.recipe, ready.items, ready.train)
            encoder = build_tower(ready.recipe, about).encoder
            vectors = features(encoder, modality.augmentation(ready.recipe, about), ready.items, everything)
        else:
            vectors = modality.baseline(ready.items.main, everything)
        found = {label: probe(vectors, arrays[label], arrays["is_test"]) for label in ("digit", "speaker")}
        return found | {"unheard": probe(vectors, arrays["digit"], unheard)}

    return measured_once(STUDY, {"reference": name, "seed": seed}, measurement)


def source(arrays: Arrays, test: NDArray[Any]) -> data.Items:
    clips = {key: arrays[key] for key in ("audio", "offsets", "rate")}
    items = data.open(clips | {"y": arrays["digit"], "is_test": test}, progress=False)
    assert not items.skipped, "labels are taken by place"
    return items


def probe(vectors: Tensor, labels: NDArray[Any], test: NDArray[Any]) -> float:
    rows, classes, held = vectors, torch.from_numpy(labels), torch.from_numpy(test)
    return linear_probe(rows[~held], classes[~held], rows[held], classes[held]).accuracy


def show(name: str, horizon: str, seed: int, run: dict[str, Any]) -> None:
    print_row(name, horizon, str(seed), *(f"{run[key]:.3f}" if key in run else "" for key in FIGURES))


def write(known: dict[str, Runs], learned: Runs, line: dict[int, Runs]) -> None:
    rows = [[name, *(cell(runs, key) for key in FIGURES)] for name, runs in {**known, "cpc": learned}.items()]
    ahead = [
        [str(horizon), *(f"{runs[0][key]:.3f}" for key in ("digit", "speaker")), *_ends(runs[0]["ahead"])]
        for horizon, runs in line.items()
    ]
    cepstra = known["MFCC statistics"]
    best = max(line, key=lambda horizon: line[horizon][0]["digit"])
    seconds = [run["seconds"] for run in learned]
    gain = mean(learned, "digit") - mean(known["untrained"], "digit")
    far = learned[0]["ahead"]  # of seed 0
    parts = [
        "What does a network that predicts sound learn of words and voices, and how far ahead should it look? "
        "(van den Oord et al., 2018.)",
        "The Free Spoken Digit Dataset, 3,000 clips at 8 kHz. `cpc` with its defaults but for the learning rate: "
        "audio_8k (a frame every 10 ms), "
        f"GRU, windows of half a second, {STEPS} steps of 64 clips, 128 candidates a step ahead, AdamW at 0.002. "
        "Linear probes on the mean of the contexts, l2 chosen on a fifth of the training clips: digits and speakers "
        "on the 300 official test takes; digits of a speaker who was in neither training nor the probe's clips: "
        f"{', '.join(map(str, UNHEARD))} for the seeds {', '.join(map(str, SEEDS))}. Mean over the seeds, and each. "
        f"Training took {min(seconds):.0f} to {max(seconds):.0f} s a run. {describe_machine([])}",
        table(["", *FIGURES.values()], rows),
        "And by how far it looks ahead, seed 0; accuracy is that of finding the frame that came among 128 others, on "
        "held-out takes, one frame ahead and at the horizon:",
        table(["frames ahead", "digits", "speakers", "accuracy at 1", "accuracy at the horizon"], ahead),
        picture(STUDY, "Probes over the horizon, and accuracy by frames ahead", 9.6, 4.2, lambda f: draw(f, line, far)),
        f"Predicting lifts digits by {100 * gain:.1f} points over the untrained network. Digits are read best with a "
        f"horizon of {best} ({line[best][0]['digit']:.3f}); one frame ahead, 10 ms, gives {line[1][0]['digit']:.3f}. "
        "The horizons are of one seed, and 300 test takes have a standard error of about "
        f"{100 * (0.05 * 0.95 / 300) ** 0.5:.1f} points at 0.95: smaller differences say nothing.",
        f"Cepstra by hand are hard to beat on clean digits: their statistics reach {mean(cepstra, 'digit'):.3f} and "
        f"{mean(cepstra, 'speaker'):.3f}, where `cpc` reaches {mean(learned, 'digit'):.3f} and "
        f"{mean(learned, 'speaker'):.3f}; on speakers never heard {mean(cepstra, 'unheard'):.3f} against "
        f"{mean(learned, 'unheard'):.3f}. They are probed as they are, where `evaluate` standardises them.",
    ]
    write_section("Speech", parts)
    print("\n" + "\n\n".join(parts[2:]))


def _ends(accuracies: list[float]) -> tuple[str, str]:
    return f"{accuracies[0]:.3f}", f"{accuracies[-1]:.3f}"


def draw(figure: Figure, line: dict[int, Runs], ahead: list[float]) -> None:
    left, right = figure.subplots(1, 2)
    for colour, key in zip(COLOURS, ("digit", "speaker"), strict=False):
        left.plot(list(line), [runs[0][key] for runs in line.values()], "o-", color=colour, label=FIGURES[key])
    left.set(xlabel="horizon, frames of 10 ms", ylabel="linear probe, test takes", xticks=list(line))
    left.legend(frameon=False)
    right.plot(range(1, len(ahead) + 1), ahead, "o-", color=COLOURS[2])
    right.set(xlabel="frames ahead", ylabel="future found among 129", ylim=(0, 1))
    grid(left)
    grid(right)


if __name__ == "__main__":
    main()
