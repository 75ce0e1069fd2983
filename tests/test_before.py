"""Runs, recipes, checkpoints, indexes and exports that likewise 0.1.0 wrote still open.

The fixture was written by 0.1.0 on made-up series, digits and shapes, in a few steps; most weights were then set to 0,
and the others to powers of 2, so that the file is small. `figures.json` has what 0.1.0's `evaluate` said of the runs.
"""

import json
import shutil
import tarfile
import tomllib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import likewise
from likewise import methods
from likewise.commands.report import report
from likewise.recipe import FORMAT, RecipeError, read_format
from likewise.search.files import AGAIN

FIXTURE = Path(__file__).parent / "fixtures" / "runs_0_1_0.tar.xz"
RUNS = ("series-cpc", "digits-moco", "shapes-clip")
STANDARDISED = "channel statistics"  # 0.1.0 compared these features as they were


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(autouse=True)
def here(before, monkeypatch):
    monkeypatch.chdir(before)  # where the runs name their data


def compare(got, expected, where=""):
    """Expect the same names, words and counts, and about the same numbers: few weights are left, so rounding shows.

    Names may have been added since.
    """
    if isinstance(expected, dict):
        named = {str(key): value for key, value in got.items()}
        assert set(named) >= set(expected), where
        for key, value in expected.items():
            compare(named[key], value, f"{where}/{key}")
    elif where.startswith(f"/{STANDARDISED}/") and isinstance(expected, float | str):
        assert type(got) is type(expected), where  # the items and the protocol are the same, the figures are not
    elif where.endswith("/verdict"):  # what it found is compared; how the sentence explains it may be said better
        assert got.split(":")[0] == expected.split(":")[0], where
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=0.1, abs=0.1), where
    else:
        assert got == expected, where


@pytest.mark.parametrize("name", RUNS)
def test_figures_are_those_of_before(name, before):
    expected = json.loads((before / "figures.json").read_text())[name]
    compare(likewise.evaluate(name, progress=False), expected)


@pytest.mark.parametrize("name", RUNS)
def test_a_report_can_be_written(name):
    assert report(name, progress=False).stat().st_size > 10_000


def test_a_run_that_was_killed_goes_on(before, tmp_path):
    killed = shutil.copytree(before / "series-cpc-killed", tmp_path / "killed")
    run = likewise.train("series.npz", method="cpc", out=killed, resume=True, progress=False)
    assert [row["step"] for row in run.metrics][-1] == 4
    assert run.encoder.about["modality"] == "series"
    assert tomllib.loads((killed / "recipe.toml").read_text())["format"] == FORMAT


def test_an_index_is_taken_as_it_is(before):
    (kept,) = (before / "series-cpc" / "search").glob("*/index.json")
    stamp = kept.stat().st_mtime_ns
    found = likewise.Searcher.open("series-cpc", progress=False).like(0, 3)
    assert len(found) == 3
    assert kept.stat().st_mtime_ns == stamp, AGAIN
    assert len(list((before / "series-cpc" / "search").iterdir())) == 1


def test_what_was_exported_still_gives_the_features_of_the_run(before):
    with np.load("series.npz") as archive:
        items = archive["x"]
    session = onnxruntime.InferenceSession("exported/series.onnx", providers=["CPUExecutionProvider"])
    (features,) = session.run(None, {"samples": items})
    vectors = likewise.load("series-cpc").embed("series.npz", progress=False).vectors
    np.testing.assert_allclose(features, vectors, rtol=1e-3, atol=1e-4 * np.abs(vectors).max())


def test_an_export_is_added_to_a_folder_of_before(before, tmp_path):
    folder = shutil.copytree(before / "exported", tmp_path / "exported")
    likewise.export("series-cpc", folder / "series.pt")
    card = (folder / "MODEL_CARD.md").read_text()
    assert all(f"`{name}`" in card for name in ("series.onnx", "series.safetensors", "series.pt"))


def test_a_recipe_of_before_loses_only_what_its_parts_have_no_use_for(before):
    number, values = read_format("digits-moco/recipe.toml")
    kept = methods.read_recipe("digits-moco/recipe.toml")
    assert number == 1
    # What 0.1.0 did; it had no such keys.
    assert kept.pop("data.gaps") == "skip"
    assert kept.pop("data.apart") == "items"
    assert kept.pop("data.early_size") == 0
    assert {key: values[key] for key in kept} == kept
    lost = {key: values[key] for key in values if key not in kept}
    assert set(lost) == {
        *("pairs.horizon", "pairs.candidates", "pairs.negatives", "dictionary.momentum", "dictionary.negatives"),
        *("loss.proximal", "loss.margin", "text.name", "text.vocabulary", "text.dropout"),
    }


def test_a_recipe_of_a_later_format_is_refused(tmp_path):
    (tmp_path / "later.toml").write_text(f"format = {FORMAT + 1}\nmethod = 'moco'\n")
    with pytest.raises(RecipeError, match=f"must have format 1 to {FORMAT}, got {FORMAT + 1}"):
        methods.read_recipe(tmp_path / "later.toml")
