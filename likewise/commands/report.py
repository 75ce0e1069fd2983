"""`likewise report`: write the report of a finished run again, from what stands in its folder."""

from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from likewise import methods
from likewise.malloc import keep_freed_memory
from likewise.recipe import Recipe
from likewise.report.contents import contents
from likewise.report.page import render
from likewise.training.metrics import write_whole
from likewise.training.plan import make_plan
from likewise.training.progress import Observer, Screen
from likewise.training.run import FINE_TUNED, Run, RunError, read_about
from likewise.training.trainer import Trainer
from likewise.training.trust import check_trust


def report(run: str | Path, source: Any = None, *, trust: bool = False, progress: bool = True) -> Path:
    """Write a run's report again, and return the page: its data are opened, its weights loaded, and nothing is trained.

    `source` says where the data are now, if they are not where the run found them. `trust` allows the code of an
    encoder (`module:callable`) that a run from elsewhere names.
    """
    keep_freed_memory()
    folder, observer = Path(run), Screen() if progress else Observer()
    if not (folder / "recipe.toml").exists():
        raise RunError(f"{folder} is not a run: expected a folder with recipe.toml")
    if not (folder / "encoder.safetensors").exists() or (folder / FINE_TUNED).exists():
        raise RunError(f"{folder} has no finished training to report on")
    values = methods.read_recipe(folder / "recipe.toml")
    recipe = Recipe().with_values(values)
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    # The weights come from the run's files, whatever it started from, and one process is enough.
    values |= {"training.devices": 1, "encoder.init": "", "encoder.frozen": False}
    method = values.pop("method", None)
    plan = make_plan(recipe.data.source if source is None else source, method, values, progress=progress, trust=trust)
    if plan.items.fingerprint != read_about(folder)["fingerprint"]:
        raise RunError(f"the data in {plan.items.name} are not those of {folder}, or have changed since")
    with observer.waiting_for("writing the report"):
        trainer = Trainer(plan, folder, Observer(), resume=True)
        for name, module in trainer.learner.tower.saved.items():
            load_into(module, folder / f"{name}.safetensors")
        page = Run(folder).report
        write_whole(page, render(contents(trainer, Run(folder).metrics)))
    return page


def load_into(module: Any, path: Path) -> None:
    """Load the weights of a run's file into a module of the same recipe."""
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except (OSError, RuntimeError, safetensors.SafetensorError):
        raise RunError(f"{path} must hold the weights of its recipe.toml, got others or none") from None
