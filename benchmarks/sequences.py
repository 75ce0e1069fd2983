"""How much of a CPC step is its loss? 64 windows of 128 frames, 12 steps ahead, 128 candidates each.

    python -m benchmarks.sequences

The loss is everything between the encodings and their gradients: look-up, drawing candidates and 12 InfoNCE losses,
forward and backward. The step is everything: windows, encoder, context, heads, loss and optimizer.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import describe_machine, race, table, write_section
from likewise import encoders
from likewise.losses.catalog import LOSSES
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

BATCH, FRAMES, HORIZON, CANDIDATES = 64, 128, 12, 128
RATES = {"audio_8k": 8000, "audio_16k_small": 16_000, "audio_16k": 16_000}
REPEATS = {"audio_8k": 9, "audio_16k_small": 7, "audio_16k": 3}


def contestants(name: str, folder: Path) -> dict[str, Callable[[], object]]:
    """The whole step, and the loss alone on the same encodings."""
    hop = encoders.build(name, samples=1).hop
    window = FRAMES * hop
    noise = np.random.default_rng(0).standard_normal(BATCH * window) * 3000
    clips = {
        "audio": noise.astype(np.int16),
        "offsets": np.arange(BATCH + 1) * window,
        "rate": np.array(RATES[name]),
    }
    asked = {
        "encoder.name": name,
        "pairs.window": window,
        "pairs.horizon": HORIZON,
        "pairs.candidates": CANDIDATES,
        "training.batch_size": BATCH,
        "training.steps": 1000,
    }
    trainer = Trainer(make_plan(clips, "cpc", asked, progress=False), folder, Observer())
    learner, batch = trainer.learner, trainer.batches.at(0)
    query, key, ids = learner.encode(batch)
    query, key = query.detach().requires_grad_(), key.detach().requires_grad_()

    def loss() -> None:
        query.grad = key.grad = None
        found = learner.dictionary.lookup(key, ids)
        look_ups = learner.look_ups(query, found, ids, batch)
        values = [LOSSES["info_nce"].score(learner.loss, look_up) for look_up in look_ups]
        torch.stack(values).mean().backward()

    return {"step": lambda: learner.step(trainer.batches.at(0), 1000), "loss": loss}


def main() -> None:
    rows = []
    for name, repeats in REPEATS.items():
        with tempfile.TemporaryDirectory() as folder:
            best = race(contestants(name, Path(folder)), repeats)
        share = best["loss"] / best["step"]
        rows.append([name, f"{1000 * best['step']:,.0f}", f"{1000 * best['loss']:,.0f}", f"{share:.1%}"])
        print(name, rows[-1], flush=True)
    found = table(["encoder", "step, ms", "loss, ms", "share of the step"], rows)
    text = (
        f"{BATCH} windows of {FRAMES} frames, {HORIZON} steps ahead, {CANDIDATES} candidates each; GRU context; best "
        f"of {min(REPEATS.values())} to {max(REPEATS.values())}, step and loss in turns. {describe_machine([])}"
    )
    write_section("CPC: the loss in the step", f"{text}\n\n{found}")


if __name__ == "__main__":
    main()
