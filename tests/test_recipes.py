"""The recipes of published results: each is whole, builds what its paper has, takes a step, and claims no figure."""

import math
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, RecipeError, read_toml
from likewise.training import plan
from likewise.training.about import fitted

FOLDER = Path(__file__).parents[1] / "recipes"
FILES = sorted(FOLDER.iterdir())
FEATURES = {"resnet18": 512, "resnet50": 2048}
# Small enough for a core and a second; what is left as it is decides the run.
CUT = {
    "encoder.name": "resnet_tiny",
    "encoder.bn_splits": 2,
    "dictionary.size": 24,
    "training.batch_size": 16,
    "training.steps": 1,
}

each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path / ".cache"))
    return tmp_path


def stand_in(file, here):
    """A few images as the recipe's data has them: arrays of 32 pixels, or a folder of photos of any shape."""
    rng = np.random.default_rng(0)
    if "cifar10" in file.stem:
        x, x_test = (rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for n in (1100, 20))
        np.savez(here / "cifar.npz", x=x, y=np.arange(1100) % 10, x_test=x_test, y_test=np.arange(20) % 10)
        return here / "cifar.npz"
    for part, count in {"train": 12, "val": 2}.items():
        for name in ("n01440764", "n01443537"):
            (here / "imagenet" / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(here / "imagenet" / part / name / f"{i}.png")
    return here / "imagenet"


def opening(file):
    """The comment that a file opens with, its lines joined; and its commands, one each."""
    lines = [line.removeprefix("#") for line in re.match(r"(#.*\n)+", file.read_text())[0].splitlines()]
    shown = "\n".join(line.strip() for line in lines if line.startswith("     "))
    return " ".join(" ".join(lines).split()), shown.replace("\\\n", "").splitlines()


def test_there_is_one_for_each_published_result():
    names = ["moco_v2_cifar10", "moco_v2_imagenet", "simclr_cifar10", "simclr_imagenet"]
    assert [file.name for file in FILES] == [f"{name}.toml" for name in names]


@each
def test_every_key_is_known_and_another_is_refused(file, here):
    assert Recipe().with_values(read_toml(file)).method in ("moco", "simclr")
    (here / "recipe.toml").write_text(file.read_text() + "batchsize = 8\n")
    with pytest.raises(RecipeError, match=r"unknown recipe key 'training.batchsize'; did you mean training.batch_size"):
        read_toml(here / "recipe.toml")


@each
def test_the_figure_is_named_as_others(file):
    words, _ = opening(file)
    assert re.search(r"arXiv:\d{4}\.\d{5}", words)
    assert re.search(r"The (paper's|authors' notebook's) figure, not measured by us: \d\d\.\d %", words)
    assert ("no figure for CIFAR-10" in words) == (file.stem == "moco_v2_cifar10")
    assert "What a recipe cannot say, and what stands in its place" in words


@each
def test_its_commands_are_taken(file, here):
    """Up to the data, or the run, which is not there."""
    shutil.copytree(FOLDER, "recipes")
    _, commands = opening(file)
    trains = [line.partition("likewise ")[2] for line in commands if "likewise train" in line]
    assert [line.split()[0] for line in commands] == ["likewise", "torchrun", "likewise"]
    assert len(trains) == 2
    for line in trains:
        assert f"--recipe recipes/{file.name} " in line
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 1
        assert line.split()[1] in result.stderr
    result = CliRunner().invoke(app, shlex.split(commands[-1])[1:])
    assert result.exit_code == 1
    assert trains[0].endswith(shlex.split(commands[-1])[2])  # the same run
    assert result.stderr.count("\n") == 1


@each
def test_nothing_is_left_to_be_chosen_and_the_network_is_the_papers(file, here):
    asked = read_toml(file)
    of_cifar = "cifar10" in file.stem
    fits = {} if of_cifar else {"training.batch_size": CUT["training.batch_size"]}  # the stand-in has no million images
    ready = plan.make_plan(stand_in(file, here), None, asked | fits, progress=False)
    assert ready.chosen == ()
    assert {key: ready.recipe.value(key) for key in asked} == asked | fits
    about = fitted(ready.recipe, ready.items, ready.train)
    modality = MODALITIES[about["modality"]]
    backbone = modality.build(ready.recipe, about)
    assert (modality.name, about["channels"]) == ("image", 3)
    assert about["size"] == (32 if of_cifar else 224)
    assert backbone.dim == FEATURES[asked["encoder.name"]]
    assert (backbone.conv1.kernel_size, backbone.conv1.stride) == (((3, 3), (1, 1)) if of_cifar else ((7, 7), (2, 2)))
    head = PAIRS[ready.recipe.pairs.kind].build_head(ready.recipe, backbone)
    linear = [tuple(layer.weight.shape) for layer in head if hasattr(layer, "in_features")]
    assert linear == ([(128, 512)] if file.stem == "moco_v2_cifar10" else [(2048, 2048), (128, 2048)])
    views = modality.augmentation(ready.recipe, about)
    strength = 0.8 if file.stem == "simclr_imagenet" else 0.4
    assert views.crop.scale == ((0.2, 1.0) if file.stem == "moco_v2_imagenet" else (0.08, 1.0))
    assert (views.jitter.brightness, views.jitter.hue, views.jitter.p) == (strength, strength / 4, 0.8)
    assert (views.blur is None) == of_cifar


@each
def test_it_takes_a_step(file, here):
    settings = [f"{key}={value}" for key, value in CUT.items()]
    run = likewise.train(stand_in(file, here), recipe=file, settings=settings, out="run", progress=False)
    assert math.isfinite(run.metrics[-1]["loss"])
    as_written = {key: value for key, value in read_toml(file).items() if key not in CUT}
    assert {key: run.recipe.value(key) for key in as_written} == as_written
