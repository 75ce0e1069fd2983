"""Training on a table: the plan says what became of its columns, and the encoder keeps to the channels it learned."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.data import DataError
from likewise.recipe import RecipeError
from likewise.training.plan import make_plan, split
from likewise.training.plan_lines import lines
from tests.waves import series

QUICK = {"pairs.horizon": 2, "pairs.candidates": 8, "training.batch_size": 8, "data.workers": 0}


def walks(n=24, t=16, **columns):
    """Sequences of three channels, with what a logger and pandas write beside them."""
    a, b, c = series(n, t, channels=3)["x"].reshape(n * t, 3).T
    return {
        "": np.arange(n * t),
        "session": np.repeat(np.arange(n), t),
        "t_ms": np.tile(np.arange(t) * 20, n),
        "year": np.full(n * t, 2024),
        "a": a,
        "b": b,
        "c": c,
        "note": ["fine", "dry"] * (n * t // 2),
        **columns,
    }


def write(path, table):
    pa.csv.write_csv(pa.table(list(map(pa.array, table.values())), names=list(table)), path)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One step of CPC by the command: the run's folder, and what was printed."""
    folder = tmp_path_factory.mktemp("walks")
    source = write(folder / "x.csv", walks())
    changes = [f"--set={key}={value}" for key, value in QUICK.items()]
    result = CliRunner().invoke(app, ["train", str(source), "--steps", "1", "--out", str(folder / "run"), *changes])
    assert result.exit_code == 0, result.output
    return folder / "run", result.stderr


def told(source, **asked):
    ready = make_plan(source, None, {key.replace("__", "."): value for key, value in asked.items()}, progress=False)
    return dict(text.split("\t") for text in lines(ready, 30, 1, None, "cpu") if not text.startswith("chosen"))


def test_the_plan_names_channels_time_and_what_is_left_out(trained):
    printed = {line[:11].strip(): line[11:] for line in trained[1].splitlines()}
    assert printed["channels"] == "a, b, c"
    assert printed["time"] == "t_ms orders the rows"
    assert printed["left out"] == (
        "a column without a name (looks like an index), year (looks like a time), note (not numbers); "
        "--column channels=NAME+NAME takes other columns"
    )
    assert ": 24 sequences of 3 channels, 16 samples long (median), no labels" in printed["data"]


def test_a_plan_with_nothing_left_out_says_so_by_not_saying(tmp_path):
    table = {name: column for name, column in walks().items() if name in ("session", "a", "b")}
    words = told(write(tmp_path / "x.csv", table))
    assert words["channels"] == "a, b"
    assert words["time"] == "no column orders the rows: they keep their order"
    assert "left out" not in words
    assert "channels" not in told(series()), "arrays have no columns"


def test_of_many_channels_the_first_are_named(tmp_path):
    names = {f"c{place}": np.random.default_rng(place).normal(size=24 * 16) for place in range(40)}
    words = told(write(tmp_path / "x.csv", walks(**names)))
    assert words["channels"] == "a, b, c, c0, c1, c2, c3, c4, c5, c6, c7, c8 and 31 more"


def test_epochs_of_sequences_can_be_checked_by_hand():
    """50 sequences of 64 samples are two windows of 32 each, and 100 windows are six batches of 16."""
    words = told(series(50, t=64)["x"], pairs__window=32, pairs__horizon=2, training__batch_size=16)
    assert words["training"].startswith("30 steps of 16 (5.0 epochs of 6 steps over 100 windows), ")


def test_a_sensor_that_rests_or_stands_elsewhere_is_still_the_channel_it_was_in_training(trained, tmp_path):
    encoder, table = likewise.load(trained[0]), walks(4)
    again = {name: table[name] for name in ("session", "t_ms", "c", "b", "a")} | {"b": np.zeros(64), "d": table["a"]}
    items = encoder.open(write(tmp_path / "again.csv", again))
    assert items.channels == ("a", "b", "c")
    expected = np.stack([table["a"], np.zeros(64), table["c"]], axis=1)
    np.testing.assert_allclose(items.array, expected, rtol=1e-6)
    assert encoder.embed(tmp_path / "again.csv", progress=False).vectors.shape[0] == 4


def test_a_table_without_a_channel_of_the_encoder_is_refused(trained, tmp_path):
    encoder = likewise.load(trained[0])
    other = write(tmp_path / "other.csv", {{"a": "x"}.get(name, name): column for name, column in walks(4).items()})
    with pytest.raises(DataError) as refused:
        encoder.open(other)
    assert str(refused.value) == (
        f"the encoder needs the channels a, b, c: expected a column of {other} as channels, "
        "one of b, c, note, session, t_ms, x, year, got 'a'"
    )
    assert encoder.open(other, columns={"channels": "x+b+c"}).channels == ("x", "b", "c")


# Gaps


def gappy(n=24, t=16):
    """The table of `walks` in which every third sequence lacks one value."""
    table = walks(n, t)
    table["a"] = [None if row % (3 * t) == 5 else value for row, value in enumerate(table["a"].tolist())]
    return table


def test_gaps_are_filled_counted_and_said_and_the_encoder_keeps_to_it(tmp_path, capsys):
    source = write(tmp_path / "x.csv", gappy())
    words = told(source)
    assert ": 24 sequences of 3 channels, " in words["data"]
    assert words["note"] == (
        "8 missing values in 8 sequences were filled by linear interpolation, 0.69 % of all values; "
        "data.gaps=skip leaves such sequences out"
    )
    kept = {gaps: tmp_path / gaps for gaps in ("fill", "skip")}
    for gaps, folder in kept.items():
        asked = QUICK if gaps == "fill" else QUICK | {"data.gaps": gaps}
        likewise.train(source, steps=2, out=folder, settings=asked, progress=False)
        assert f'gaps = "{gaps}"' in (folder / "recipe.toml").read_text()
    assert (len(likewise.load(kept["fill"]).open()), len(likewise.load(kept["skip"]).open())) == (24, 16)
    other = write(tmp_path / "other.csv", gappy(6))
    capsys.readouterr()
    assert [len(likewise.load(folder).open(other)) for folder in kept.values()] == [6, 4]
    assert f"{other}: 2 missing values in 2 sequences were filled" in capsys.readouterr().err


def test_a_run_from_before_gaps_were_filled_goes_on_with_the_data_it_had(tmp_path):
    source, folder = write(tmp_path / "x.csv", gappy()), tmp_path / "run"
    asked = QUICK | {"data.gaps": "skip"}
    likewise.train(source, steps=2, out=folder, settings=asked, progress=False)
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('gaps = "skip"\n', ""))  # as it was written before
    (folder / "encoder.safetensors").unlink()
    assert likewise.train(source, out=folder, resume=True, progress=False).recipe.data.gaps == "skip"
    assert len(likewise.load(folder).open()) == 16
    again = likewise.train(source, recipe=recipe, out=tmp_path / "again", progress=False)
    assert len(likewise.load(again.folder).open()) == 16
    with pytest.raises(RecipeError, match=r"^data.gaps was 'skip' in .* and cannot become 'fill' on resuming$"):
        likewise.train(source, settings={"data.gaps": "fill"}, out=folder, resume=True, progress=False)
    (tmp_path / "own.toml").write_text("[pairs]\nhorizon = 2\n")  # written by hand: what is not said is chosen
    ready = likewise.train(source, recipe=tmp_path / "own.toml", steps=2, out=tmp_path / "new", progress=False)
    assert ready.recipe.data.gaps == "fill"


# One long log


def test_the_end_of_a_log_is_held_out_behind_a_gap_and_the_plan_says_so(tmp_path):
    a, b = np.random.default_rng(0).normal(size=(2, 2_000))
    source = write(tmp_path / "log.csv", {"time": np.arange(2_000), "a": a, "b": b})
    words = told(source)
    assert (
        ": 17 sequences of 2 channels, 100 samples long (median), 2 held out, 1 between these left out" in words["data"]
    )
    assert words["note"].startswith(
        "no column names the sequences, so the file is read as one log and cut into 20 stretches of 100 rows (median); "
    )
    run = likewise.train(source, steps=2, out=tmp_path / "run", settings=QUICK, progress=False)
    items = run.encoder.open(progress=False)
    train, test = split(items, run.recipe)
    np.testing.assert_allclose(run.encoder.about["mean"], items[train].reshape(-1, 2).mean(axis=0), atol=1e-6)
    assert (train.tolist(), test.tolist()) == ([*range(17)], [18, 19])
    assert ", 5 held out, 1 between" in told(source, data__test=0.25)["data"]
    assert ": 20 sequences of 2 channels, 100 samples long (median), no labels" in told(source, data__test=0)["data"]
