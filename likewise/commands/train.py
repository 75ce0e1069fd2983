"""`likewise train`: train an encoder on a source, and write it to a run's folder with a report."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from likewise import clock, methods, ranks
from likewise.locks import LOCK, only_writer
from likewise.malloc import keep_freed_memory
from likewise.recipe import Recipe, RecipeError, parse_settings
from likewise.report.contents import contents, embedded_items
from likewise.report.page import render
from likewise.training import plan
from likewise.training.launch import together
from likewise.training.metrics import write_whole
from likewise.training.pace import USUAL_MINUTES, Limit, UsualLimit
from likewise.training.progress import Observer, Screen
from likewise.training.run import FINE_TUNED, TRIAL, Run, RunError
from likewise.training.signals import NOT_BEGUN, end_at_once_on_signal
from likewise.training.trainer import Trainer
from likewise.training.trust import check_trust

MAY_CHANGE = (
    "data.source",
    "data.workers",
    "data.cache",
    "training.devices",
)  # settings that may differ when a run is resumed


def train(
    source: Any,
    *,
    method: str | None = None,
    pairs: str | None = None,
    keys: str | None = None,
    dictionary: str | None = None,
    loss: str | None = None,
    encoder: str | None = None,
    columns: Mapping[str, str] | None = None,
    init: str | Path | None = None,
    frozen: bool | None = None,
    out: str | Path | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    devices: int | None = None,
    precision: str | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | list[str] | None = None,
    resume: bool = False,
    trust: bool = False,
    progress: bool = True,
) -> Run:
    """Train an encoder on images, captions, audio, sensor data or vectors, and write it to the folder `out`.

    Values that are not given come from the recipe file, then from the method, and are else chosen for the data.

    - `settings`: values for any recipe key, such as {"dictionary.size": 4096}.
    - `epochs`, `steps`, `minutes`: the length of the run, by one of them. `minutes` is the time for the whole call; the
      speed is measured first, and the number of steps that fit is written into the recipe. Without any of them, a run
      takes about ten minutes, or less if there are few items.
    - `columns`: names of arrays or columns in the data, such as {"y": "digit"}.
    - `resume`: continue an interrupted run from its last checkpoint, exactly as if it had not been interrupted.
    - `trust`: allow a recipe or run that was not made under this account to name an encoder (`module:callable`). An
      encoder given as `encoder` needs no consent.
    """
    began = clock.began()
    keep_freed_memory()
    written: dict[str, Any] = methods.read_recipe(recipe) if recipe is not None else {}
    named = {
        "pairs.kind": pairs,
        "keys.by": keys,
        "dictionary.kind": dictionary,
        "loss.kind": loss,
        "encoder.name": encoder,
        "data.columns": None if columns is None else ",".join(f"{role}={name}" for role, name in columns.items()),
        "encoder.init": None if init is None else str(init),
        "encoder.frozen": frozen,
        "training.epochs": epochs,
        "training.steps": steps,
        "training.batch_size": batch_size,
        "optimizer.lr": lr,
        "loss.temperature": temperature,
        "seed": seed,
        "training.devices": devices,
        "training.precision": precision,
    }
    given = {key: value for key, value in named.items() if value is not None}
    given |= parse_settings(settings) if isinstance(settings, list) else dict(settings or {})
    _check_length(epochs, steps, minutes, given)
    if method is not None and written.get("method", method) != method:
        raise RecipeError(f"the recipe {recipe} is for method {written['method']}, got method {method}")
    if minutes is not None or ("training.epochs" in given and "training.steps" not in given):
        written.pop("training.steps", None)  # what is given now takes precedence over the file
    if minutes is not None:
        written.pop("training.epochs", None)
    if "data.size" in given:
        written.pop("data.stored", None)
    asked = written | given
    whole = Recipe().with_values(asked)  # refuse unknown keys before opening the data
    if recipe is not None and "encoder.name" not in given:
        check_trust(Path(recipe), whole.encoder.name, trust)
    if isinstance(source, str | os.PathLike):
        asked["data.source"] = os.fspath(source)
    asked.pop("method", None)
    method = method if method is not None else whole.method or None
    observer = Screen() if progress and ranks.is_first() else Observer()
    folder = _folder(source, method, out)
    with _written_by_this_run(folder, resume):
        if resume and (folder / "recipe.toml").exists():
            method, asked = _resumed(folder, method, asked, trust)
            if minutes is not None:
                observer.say("the number of steps is in the run's recipe, so minutes has no effect on resuming")
        limit = _limit(minutes, began, asked)
        if limit is not None:
            asked.pop("training.steps", None)  # a 0, which asks for nothing
        if asked.get("training.devices", 1) > 1 and not ranks.launched() and sys.argv[0] in ("", "-", "-c"):
            raise RecipeError(
                "several devices start this program several times, so it must be a file: call train from a script, or "
                "use the command line"
            )
        made_plan = plan.make_plan(
            source, method, asked, limit=limit, progress=progress and ranks.is_first(), trust=trust
        )
        with together():
            trainer = Trainer(made_plan, folder, observer, resume=resume)
            if limit is not None:
                trainer.choose_length(limit, embedded_items(made_plan))
            run = trainer.run()
        if ranks.is_first():
            try:
                with observer.waiting_for("writing the report"):
                    write_whole(run.report, render(contents(trainer, run.metrics)))
            except ValueError as error:  # the run itself is complete
                observer.say(f"the report could not be written: {error}")
        return run


def _check_length(epochs: int | None, steps: int | None, minutes: float | None, given: Mapping[str, Any]) -> None:
    """Refuse two lengths for one run, and a length of nothing. `given` are the settings, by recipe key."""
    lengths = {"epochs": epochs, "steps": steps, "minutes": minutes}
    if minutes is not None:  # the recipe has no key for them that would say which of two counts
        lengths |= {name: given[key] for name in ("epochs", "steps") if given.get(key := f"training.{name}")}
    asked = [f"{value} {name}" for name, value in lengths.items() if value is not None]
    if len(asked) > 1:
        raise RecipeError(f"give only one of epochs, steps and minutes, got {' and '.join(asked)}")
    if steps is not None and steps < 1:
        raise RecipeError(f"steps must be at least 1, got {steps}")
    if minutes is not None and (isinstance(minutes, bool) or not 0 < minutes < math.inf):
        raise RecipeError(f"minutes must be a positive number, got {minutes}")


def _limit(minutes: float | None, began: float, asked: Mapping[str, Any]) -> Limit | None:
    """Return the time from which the number of steps follows, or None if `asked` says how many steps or epochs."""
    if asked.get("training.steps") or "training.epochs" in asked:
        return None
    return UsualLimit(USUAL_MINUTES, began) if minutes is None else Limit(minutes, began)


def _folder(source: Any, method: str | None, out: str | Path | None) -> Path:
    """Return the run's folder: `out`, or one named after the data and the method."""
    name = Path(os.fspath(source)).stem if isinstance(source, str | os.PathLike) else "run"
    folder = Path(out) if out is not None else Path("runs") / "-".join(filter(None, [name or "run", method]))
    if folder.exists() and not folder.is_dir():
        raise RunError(f"--out must be a folder, got the file {folder}")
    return folder


@contextmanager
def _written_by_this_run(folder: Path, resume: bool) -> Iterator[None]:
    """Lock the folder for this run, from before its data is opened until its report is written.

    The first rank holds the lock for all ranks. SIGTERM and Ctrl-C end the block, except during training steps, when
    the trainer handles them itself.
    """

    def stopped() -> str:
        if (folder / "encoder.safetensors").exists():
            return "stopped; the training is finished, and --resume writes its report"
        if (folder / "recipe.toml").exists():
            return "stopped; --resume continues from the last checkpoint, or from the start if there is none"
        return NOT_BEGUN

    with end_at_once_on_signal(stopped):
        if not ranks.is_first():
            yield
            return
        with only_writer(folder, folder / LOCK):
            _check_folder(folder, resume)
            yield


def _check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that is neither empty nor a run to resume."""
    if all(path.name in (LOCK, TRIAL) for path in folder.iterdir()):  # a run may have been killed before it began
        return
    if not (folder / "recipe.toml").exists():
        raise RunError(f"--out must be a new folder or a run, got {folder}, which holds other files")
    if (folder / FINE_TUNED).exists():
        raise RunError(f"{folder} holds a fine-tuned encoder, which cannot be trained further: choose another --out")
    if not resume:
        raise RunError(
            f"{folder} already holds a run: use --resume to continue it, or another --out to start a new one"
        )


def _resumed(folder: Path, method: str | None, asked: Mapping[str, Any], trust: bool) -> tuple[str, dict[str, Any]]:
    """Return the method and values of the run in `folder`.

    Values that are asked for must be the same, except for those that do not change the result (`MAY_CHANGE`).
    """
    stored = methods.read_recipe(folder / "recipe.toml")
    before = Recipe().with_values(stored)
    if "encoder.name" not in asked:
        check_trust(folder / "recipe.toml", before.encoder.name, trust)
    used = methods.used_keys(before)
    for key, given in {**asked, "method": method or before.method}.items():
        value = Recipe().with_values({key: given}).value(key)
        if key not in MAY_CHANGE and key in used and before.value(key) != value:
            raise RecipeError(f"{key} was {before.value(key)!r} in {folder} and cannot become {value!r} on resuming")
    stored.pop("method", None)
    return before.method, stored | {key: value for key, value in asked.items() if key in MAY_CHANGE}
