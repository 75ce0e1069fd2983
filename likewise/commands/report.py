"""`likewise report`: write the report of a finished run again, from the files in its folder."""

from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from likewise import methods
from likewise.locks import LOCK, only_writer
from likewise.malloc import keep_freed_memory
from likewise.recipe import Recipe
from likewise.report.contents import contents
from likewise.report.page import render
from likewise.training.encoder import check_there
from likewise.training.metrics import write_whole
from likewise.training.plan import make_plan
from likewise.training.progress import Observer, Screen
from likewise.training.run import FINE_TUNED, Run, RunError, read_about
from likewise.training.trainer import Trainer
from likewise.training.trust import check_trust

# Settings that only matter for training: the tower is rebuilt in one process, with the weights of the run's files.
REBUILT_WITH = {
    "encoder.init": "",
    "encoder.frozen": False,
    "training.devices": 1,
    "training.precision": "32",
    "training.compile": False,
}


def report(run: str | Path, source: Any = None, *, trust: bool = False, progress: bool = True) -> Path:
    """Write the report of a finished run again, without training, and return the path of the page.

    `source` says where the data is now, if it was moved. `trust` allows the run to name an encoder (`module:callable`)
    even if it was not made under this account.
    """
    keep_freed_memory()
    folder, observer = Path(run), Screen() if progress else Observer()
    if not (folder / "recipe.toml").exists():
        raise RunError(f"{folder} is not a run: expected a folder with recipe.toml")
    required = ("encoder.safetensors", "metrics.jsonl")
    if (folder / FINE_TUNED).exists() or not all((folder / name).exists() for name in required):
        raise RunError(
            f"{folder} is not a finished training run; `likewise train --resume` continues an interrupted one"
        )
    recipe = Run(folder).recipe
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    if source is None:
        check_there(recipe)
    with only_writer(folder, folder / LOCK), observer.waiting_for("writing the report"):
        trainer = rebuilt(folder, recipe, source, trust)
        page = Run(folder).report
        write_whole(page, render(contents(trainer, Run(folder).metrics, recipe)))
    return page


def rebuilt(folder: Path, recipe: Recipe, source: Any, trust: bool) -> Trainer:
    """Return a trainer in the state in which the run ended: its data, its pairs, and its tower with trained weights."""
    values = methods.read_recipe(folder / "recipe.toml") | REBUILT_WITH
    values.pop("method", None)
    plan = make_plan(
        recipe.data.source if source is None else source, recipe.method, values, progress=False, trust=trust
    )
    if plan.items.fingerprint != read_about(folder)["fingerprint"]:
        raise RunError(f"{plan.items.name} is not the data that {folder} was trained on, or it has changed since")
    trainer = Trainer(plan, folder, Observer(), resume=True)
    for name, module in trainer.learner.tower.saved.items():
        load_into(module, folder / f"{name}.safetensors")
    return trainer


def load_into(module: Any, path: Path) -> None:
    """Load the weights in a run's file into a module."""
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except (OSError, RuntimeError, safetensors.SafetensorError):
        raise RunError(
            f"{path} must hold weights that fit recipe.toml, but they are missing, damaged or different"
        ) from None
