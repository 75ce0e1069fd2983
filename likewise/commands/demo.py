"""`likewise demo`: train MoCo on 5,000 handwritten digits without labels, and evaluate the encoder."""

from pathlib import Path
from typing import Any

from likewise.commands.evaluate import evaluate
from likewise.commands.train import train
from likewise.training.run import Run

SOURCE, METHOD = "mnist5k", "moco"
SETTINGS: dict[str, Any] = {
    "data.test": 0.2,
    "encoder.head": "mlp_bn",
    "encoder.bn_splits": 4,
    "loss.temperature": 0.3,
    "optimizer.lr": 0.003,
    "training.batch_size": 64,
    "training.steps": 1100,
}


def demo(out: str | Path | None = None, steps: int | None = None, seed: int = 0) -> tuple[Run, dict[str, Any]]:
    """Train, then compare raw pixels, the untrained encoder and the trained one on images that it did not train on.

    Without `out`, the run is written to `runs/demo`, or to `runs/demo-2` and so on if that exists.
    """
    free = (Path(f"runs/demo{ending}") for ending in ("", *(f"-{count}" for count in range(2, 10_000))))
    folder = out if out is not None else next(path for path in free if not path.exists())
    settings = SETTINGS if steps is None else {**SETTINGS, "training.steps": steps}
    run = train(SOURCE, method=METHOD, out=folder, seed=seed, settings=settings)
    return run, evaluate(run.encoder, SOURCE)
