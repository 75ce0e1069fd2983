"""`data.early_size`: smaller views in the first half of the steps."""

import numpy as np
import pytest

import likewise
from likewise.recipe import RecipeError
from likewise.training import plan_lines
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

SETTINGS = {
    "encoder.name": "resnet_tiny",
    "encoder.dim": 8,
    "data.early_size": 12,
    "training.steps": 7,
    "training.batch_size": 8,
    "training.checkpoint_every": 2,
    "training.log_every": 1,
}


def images(n=40, side=16):
    return {"x": np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8), "y": np.arange(n) % 4}


def plan(side=16, method="simclr", **settings):
    return make_plan(images(side=side), method, {k.replace("__", "."): v for k, v in settings.items()}, progress=False)


@pytest.mark.parametrize("method", ["simclr", "moco"])
def test_views_are_small_in_the_first_half_and_then_of_the_whole_size(tmp_path, method):
    trainer = Trainer(make_plan(images(), method, SETTINGS, progress=False), tmp_path, Observer())
    learner = trainer.learner
    sides = [
        learner.views(batch, side).shape[-1] for batch in trainer.batches.ahead(0, 7) for side in ("first", "second")
    ]
    assert sides == [12] * 2 * 3 + [16] * 2 * 4
    assert all(np.isfinite(learner.step(batch, 7).loss.item()) for batch in trainer.batches.ahead(0, 7))


def test_about_five_eighths_are_chosen_for_networks_that_take_any_size():
    ready = plan(32)
    assert ready.recipe.data.early_size == 20
    assert any(reason.startswith("data.early_size = 20: ") for reason in ready.chosen)
    assert "32 pixels, 20 in the first half of the steps" in "\n".join(plan_lines.lines(ready, 1, 1, 1.0, "cpu"))
    assert plan(64).recipe.data.early_size == 40
    assert plan(32, data__early_size=0).recipe.data.early_size == 0
    assert plan(28).recipe.data.early_size == 0, "too few pixels"
    assert plan(32, "moco").recipe.data.early_size == 0, "its queue would hold keys of smaller views"
    grey = np.zeros((40, 1, 32, 32), dtype=np.uint8)
    assert make_plan(grey, "simclr", {}, progress=False).recipe.data.early_size == 0, "there is no colour"
    assert plan(32, encoder__name="vit_tiny").recipe.data.early_size == 0, "its positions are for one size"


@pytest.mark.parametrize("early", [1, 33, -4])
def test_a_size_that_does_not_fit_is_refused(early):
    with pytest.raises(
        RecipeError, match=f"data.early_size must be 0, or from 2 to data.size, which is 32, got {early}"
    ):
        plan(32, data__early_size=early)


def test_networks_for_one_size_are_refused():
    with pytest.raises(
        RecipeError, match="an encoder that takes images of any size, such as resnet_tiny, got vit_tiny"
    ):
        plan(32, data__early_size=20, encoder__name="vit_tiny")


def test_the_time_of_a_step_is_the_mean_of_both_halves(tmp_path, monkeypatch):
    """`minutes` counts on as many fast steps as slow ones."""
    from likewise.training import trial

    asked = []

    def take_steps(learner, batches, seconds, first=0):
        asked.append((seconds, learner.augmentation_at(first).size))
        return (1.0 if first < learner.grows_at else 3.0), learner.step(batches.at(0), 1)

    monkeypatch.setattr(trial, "take_steps", take_steps)
    settings = SETTINGS | {"training.steps": 0}
    run = likewise.train(images(), method="simclr", minutes=2, settings=settings, out=tmp_path, progress=False)
    assert asked == [(0.02 * 120 / 2, 12), (0.02 * 120 / 2, 16)]
    assert 50 < run.recipe.training.steps <= 0.97 * 120 / 2
