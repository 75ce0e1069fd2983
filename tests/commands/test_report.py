"""`likewise report`: the page of a finished run once more, from its folder alone."""

import shutil

import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.commands.report import report
from likewise.recipe import RecipeError
from likewise.training.run import RunError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind of pairs that has a tower of its own, and one with a predictor."""
    folder = tmp_path_factory.mktemp("runs")
    for name, source, options in (
        ("views", "digits", {"method": "nnclr"}),
        ("future", "sounds", {}),
        ("captions", "shapes", {"settings": {"encoder.name": "resnet_tiny"}}),
    ):
        likewise.train(source, steps=2, batch_size=16, out=folder / name, progress=False, **options)
    return folder


@pytest.mark.parametrize("name", ["views", "future", "captions"])
def test_the_page_is_the_one_that_training_wrote(runs, name):
    page = runs / name / "report.html"
    before = page.read_text()
    page.unlink()
    assert report(runs / name, progress=False) == page
    assert page.read_text() == before


def test_the_command_says_where_the_page_is(runs):
    result = CliRunner().invoke(app, ["report", str(runs / "views")])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"report in {runs / 'views' / 'report.html'}\n"


def test_mistakes_end_in_one_sentence(runs, tmp_path):
    with pytest.raises(RunError, match=r"is not a run: expected a folder with recipe\.toml"):
        report(tmp_path, progress=False)
    broken = shutil.copytree(runs / "views", tmp_path / "unfinished")
    (broken / "head.safetensors").unlink()
    with pytest.raises(RunError, match=r"head.safetensors must hold weights that fit recipe.toml"):
        report(broken, progress=False)
    (broken / "encoder.safetensors").unlink()
    with pytest.raises(RunError, match="is not a finished training run"):
        report(broken, progress=False)
    with pytest.raises(RecipeError, match="greyscale does not go with items that are sequences"):
        report(runs / "views", "sounds", progress=False)
    with pytest.raises(RunError, match="mnist5k is not the data that"):
        report(runs / "views", "mnist5k", progress=False)
