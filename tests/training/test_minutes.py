"""`minutes`: the number of steps follows from a measured speed, and from then on nothing depends on a clock."""

import itertools
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise import clock
from likewise.cli import app
from likewise.recipe import RecipeError, Training
from likewise.training import pace, plan_lines
from likewise.training.pace import Limit, Pace, UsualLimit
from likewise.training.plan import make_plan, with_steps
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from tests.training.conftest import assert_same

SETTINGS = {"encoder.name": "mlp", "encoder.dim": 8, "training.batch_size": 16, "training.log_every": 4}


class Ear(Observer):
    """Hears the plan and the notes."""

    def __init__(self):
        self.lines, self.said = [], []

    def plan(self, lines):
        self.lines += lines

    def say(self, sentence):
        self.said.append(sentence)


@pytest.fixture
def ticks(monkeypatch):
    """A clock on which a second passes between any two looks at it."""
    seconds = itertools.count()
    monkeypatch.setattr(clock, "now", lambda: float(next(seconds)))


def vectors(n=80):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    return {"x": (rng.normal(size=(n, 6)) + 2 * y[:, None]).astype(np.float32), "y": y}


def trained(folder, method="moco", **options):
    settings = SETTINGS | options.pop("settings", {})
    return likewise.train(vectors(), method=method, out=folder, settings=settings, progress=False, **options)


@pytest.mark.parametrize("method", ["moco", "nnclr", "instdisc", "simclr", "supcon"])
def test_a_run_by_minutes_is_the_run_of_its_steps_to_the_bit(tmp_path, ticks, method):
    by_time = trained(tmp_path / "minutes", method, minutes=1.5)
    steps = by_time.recipe.training.steps
    assert 4 < steps < 90, "a step takes one second on this clock"
    by_steps = trained(tmp_path / "steps", method, steps=steps)
    assert_same(by_time.folder, by_steps.folder)
    assert by_time.recipe == by_steps.recipe


def test_more_minutes_are_more_steps_and_each_run_stays_within_its_time(tmp_path, monkeypatch):
    steps = []
    for minutes in (2, 4):
        seconds = itertools.count()
        monkeypatch.setattr(clock, "now", lambda seconds=seconds: float(next(seconds)))
        steps.append(trained(tmp_path / str(minutes), minutes=minutes).recipe.training.steps)
    # On this clock a step and a row of metrics take a second each, and there is a row every four steps.
    assert steps[1] - steps[0] == pytest.approx(0.97 * 120 / 1.25, abs=8)


def test_the_time_before_the_call_counts_for_a_command(tmp_path, monkeypatch):
    steps = []
    for began in (None, -60.0):
        seconds = itertools.count()
        monkeypatch.setattr(clock, "now", lambda seconds=seconds: float(next(seconds)))
        monkeypatch.setattr(clock, "command_began", began)
        steps.append(trained(tmp_path / str(began), minutes=3).recipe.training.steps)
    assert steps[0] - steps[1] == pytest.approx(60 / 1.25, abs=2)


def test_the_momentum_of_the_keys_suits_the_steps_that_fit():
    limit = Limit(5, clock.now())
    ready = make_plan(vectors(), "moco", SETTINGS, limit=limit, progress=False)
    assert not any("momentum" in text for text in ready.chosen), "the number of steps is not known yet"
    for seconds, momentum in ((0.1, 0.99), (0.001, 0.999)):
        measured = Pace(seconds, 0.0, 0.0, 0.0, 0.0)
        done = with_steps(ready, limit.choice(measured, 200.0, ready.recipe.training, 4))
        assert done.recipe.keys.momentum == momentum
        assert done.recipe.training.steps == round((200 - pace.UNMEASURED) / seconds)
    asked = make_plan(vectors(), "moco", SETTINGS | {"keys.momentum": 0.5}, limit=limit, progress=False)
    assert with_steps(asked, limit.choice(measured, 200.0, asked.recipe.training, 4)).recipe.keys.momentum == 0.5


def test_the_plan_says_what_the_steps_were_chosen_for(tmp_path, ticks):
    limit = Limit(2, clock.now())
    ear = Ear()
    trainer = Trainer(make_plan(vectors(), "moco", SETTINGS, limit=limit, progress=False), tmp_path, ear)
    trainer.choose_length(limit, 80)
    trainer.run()
    steps = trainer.total
    assert f"chosen\ttraining.steps = {steps}: 2 minutes at 1.0 steps a second" in ear.lines
    (training,) = (line for line in ear.lines if line.startswith("training\t"))
    assert training.startswith(f"training\t{steps:,} steps of 16 ")
    assert training.endswith(", chosen so that the whole command takes 2 minutes")
    report = plan_lines.lines(trainer.plan, steps, 1, None, "cpu")
    assert not any("whole command" in line for line in report), "the report is read when the time is over"


def test_everything_that_takes_time_is_counted():
    options = Training(log_every=10, evaluate_every=500, checkpoint_every=200)
    measured = Pace(step=0.1, log=0.2, evaluation=3.0, checkpoint=1.0, report=7.0)
    # 1,001 steps: 101 rows, 3 evaluations, 6 checkpoints and the weights, one report.
    assert measured.seconds(1001, options) == pytest.approx(100.1 + 20.2 + 9 + 7 + 7 + pace.UNMEASURED)
    for seconds in (20.0, 60.0, 61.0, 3600.0):
        steps = measured.steps_within(seconds, options)
        assert measured.seconds(steps, options) <= seconds < measured.seconds(steps + 1, options)
    assert measured.steps_within(15.0, options) == 0


def test_a_slow_start_and_a_hiccup_do_not_decide_the_speed():
    assert pace.steady([30.0, 2.0, *[1.0] * 27, 60.0]) == pytest.approx(1.0)
    assert pace.steady([1.0] * 10 + [0.2, 1.8] * 10) == pytest.approx(0.97, abs=0.05), "two readers deliver together"
    assert pace.steady([9.0, 1.0, 3.0]) == 2.0


def test_too_little_time_is_refused_with_the_least_that_would_do(tmp_path, ticks):
    with pytest.raises(RecipeError) as error:
        trained(tmp_path / "run", minutes=0.2)
    least = re.fullmatch(
        r"minutes must leave time for a step besides starting, evaluation and report, which takes at least (.+) for "
        r"this run on this machine, got 0\.2",
        str(error.value),
    )
    assert trained(tmp_path / "run", minutes=float(least[1])).recipe.training.steps >= 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"minutes": 1, "steps": 2}, "give only one of epochs, steps and minutes, got 2 steps and 1 minutes"),
        ({"minutes": 0.5, "epochs": 3}, "give only one of epochs, steps and minutes, got 3 epochs and 0.5 minutes"),
        (
            {"minutes": 1, "settings": {"training.steps": 7}},
            "give only one of epochs, steps and minutes, got 7 steps and 1 minutes",
        ),
        ({"minutes": 0}, "minutes must be a positive number, got 0"),
        ({"minutes": float("nan")}, "minutes must be a positive number, got nan"),
        ({"minutes": True}, "minutes must be a positive number, got True"),
    ],
)
def test_two_lengths_or_no_time_are_refused(tmp_path, options, sentence):
    with pytest.raises(RecipeError) as error:
        trained(tmp_path / "run", **options)
    assert str(error.value) == sentence
    assert not (tmp_path / "run").exists()


def test_minutes_count_more_than_the_length_in_a_recipe_file(tmp_path, ticks):
    before = trained(tmp_path / "before", steps=3)
    run = likewise.train(
        vectors(), recipe=before.folder / "recipe.toml", minutes=1.5, out=tmp_path / "run", progress=False
    )
    assert run.recipe.training.steps > 3


def test_a_resumed_run_keeps_its_steps_whatever_the_minutes(tmp_path, ticks):
    source = tmp_path / "vectors.npz"
    np.savez(source, **vectors())
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words = ["train", str(source), "--method", "moco", "--out", str(tmp_path / "run"), *settings]
    assert CliRunner().invoke(app, [*words, "--minutes", "1.5"]).exit_code == 0
    steps = likewise.load(tmp_path / "run").recipe.training.steps
    again = CliRunner().invoke(app, [*words, "--minutes", "9", "--resume"])
    assert again.exit_code == 0
    assert "minutes has no effect on resuming" in again.stderr
    assert likewise.load(tmp_path / "run").recipe.training.steps == steps


# A run of which nobody said how long it should be


def usual(pace_of_a_step, per_epoch, **options):
    measured = Pace(pace_of_a_step, 0.0, 0.0, 0.0, 0.0)
    return UsualLimit(10, clock.now()).choice(measured, 590.0, Training(**options), per_epoch)


def test_without_a_length_a_run_takes_about_ten_minutes(tmp_path, ticks):
    chosen = usual(0.5, per_epoch=28)
    assert chosen.value == (590 - pace.UNMEASURED) / 0.5
    assert chosen.why == "about 10 minutes on this machine; --minutes, --epochs or --steps choose another length"
    run = trained(tmp_path / "run", settings={"training.steps": 0})
    assert 350 < run.recipe.training.steps < 600, "on this clock a step takes a second, and a row of metrics another"
    assert run.metrics[-1]["step"] == run.recipe.training.steps


def test_a_fast_run_has_no_more_epochs_than_the_recipe_says_and_a_tiny_one_a_thousand_steps():
    chosen = usual(0.001, per_epoch=28)
    assert (chosen.value, chosen.why.partition(";")[0]) == (5600, "200 epochs")
    chosen = usual(0.001, per_epoch=2)
    assert (chosen.value, chosen.why.partition(";")[0]) == (1000, "500 passes over few items")
    assert usual(3600.0, per_epoch=2).value == 1, "one step always is taken"


def test_a_recipe_file_that_names_epochs_means_them(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('method = "moco"\n[training]\nepochs = 3\nbatch_size = 16\n[encoder]\nname = "mlp"\n')
    run = likewise.train(vectors(), recipe=recipe, out=tmp_path / "run", progress=False)
    assert (run.recipe.training.epochs, run.recipe.training.steps) == (3, 0)
    assert run.metrics[-1]["step"] == 3 * (72 // 16)


def test_opening_the_data_does_not_shorten_a_run_of_the_usual_length(monkeypatch):
    began = clock.now()
    monkeypatch.setattr(clock, "now", lambda: began + 3600.0)  # the first decoding took an hour
    assert UsualLimit(10, began).left > 9 * 60 > Limit(10, began).left


def test_epochs_that_are_set_count_more_than_the_steps_in_a_recipe_file(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('method = "moco"\n[training]\nsteps = 50\nbatch_size = 16\n[encoder]\nname = "mlp"\n')
    settings = {"training.epochs": 1}
    run = likewise.train(vectors(), recipe=recipe, settings=settings, out=tmp_path / "run", progress=False)
    assert run.metrics[-1]["step"] == 72 // 16


def test_a_run_that_was_killed_while_its_speed_was_measured_does_not_block_its_folder(tmp_path):
    (tmp_path / "run" / ".trial").mkdir(parents=True)
    assert trained(tmp_path / "run", settings={"training.steps": 2}).metrics[-1]["step"] == 2
