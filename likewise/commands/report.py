"""`likewise report`: write the report of a finished run again, from what stands in its folder."""

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

# How the tower is built, whatever the run was trained with: its weights come from its files, in one process.
BUILT_AS = {
    "encoder.init": "",
    "encoder.frozen": False,
    "training.devices": 1,
    "training.precision": "32",
    "training.compile": False,
}


def report(run: str | Path, source: Any = None, *, trust: bool = False, progress: bool = True) -> Path:
    """Write a run's report again, and return the page: its data are opened, its weights loaded, and nothing is trained.

    `source` says where the data are now, if they are not where the run found them. `trust` allows the code of an
    encoder (`module:callable`) that a run from elsewhere names.
    """
    keep_freed_memory()
    folder, observer = Path(run), Screen() if progress else Observer()
    if not (folder / "recipe.toml").exists():
        raise RunError(f"{folder} is not a run: expected a folder with recipe.toml")
    wanted = ("encoder.safetensors", "metrics.jsonl")
    if (folder / FINE_TUNED).exists() or not all((folder / name).exists() for name in wanted):
        raise RunError(
            f"{folder} has no finished training to report on; `likewise train` goes on with a run, given --resume"
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
    """Return what a run had when it ended: its data, its pairs, and its tower with the weights of its files."""
    values = methods.read_recipe(folder / "recipe.toml") | BUILT_AS
    values.pop("method", None)
    named = recipe.data.source if source is None else source
    plan = make_plan(named, recipe.method, values, progress=False, trust=trust)
    if plan.items.fingerprint != read_about(folder)["fingerprint"]:
        raise RunError(f"the data in {plan.items.name} are not those of {folder}, or have changed since")
    trainer = Trainer(plan, folder, Observer(), resume=True)
    for name, module in trainer.learner.tower.saved.items():
        load_into(module, folder / f"{name}.safetensors")
    return trainer


def load_into(module: Any, path: Path) -> None:
    """Load the weights of a run's file into a module of the same recipe."""
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except (OSError, RuntimeError, safetensors.SafetensorError):
        raise RunError(f"{path} must hold the weights of its recipe.toml, got others or none") from None
