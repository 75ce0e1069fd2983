"""Code that a run or recipe from elsewhere names is not run without consent; runs of one's own need none."""

import hashlib
import hmac
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.search.searcher import Searcher
from likewise.training import trust
from likewise.training.encoder import load
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from likewise.training.trust import TrustError

OURS = "tests.training.plain_encoder:plain"
SETTINGS = {"encoder.dim": 8, "training.batch_size": 8, "training.steps": 1, "data.workers": 0}
HOSTILE = """
from pathlib import Path

Path("hurt").touch()
from tests.training.plain_encoder import plain as make
"""
# What each command is given besides the run, which is called `run`.
COMMANDS = {
    "evaluate": ["run"],
    "finetune": ["run", "--epochs", "1", "--labels", "1"],
    "embed": ["run", "--out", "vectors.npy"],
    "export": ["run", "--out", "encoder.safetensors"],
    "search": ["run", "3"],
    "explore": ["run", "--port", "0"],
    "train": ["images.npz", "--init", "run", "--batch-size", "8", "--steps", "1", "--out", "other"],
    "train --recipe": ["images.npz", "--recipe", "run/recipe.toml", "--out", "other"],
    "train --resume": ["images.npz", "--resume", "--out", "run"],
}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "images.npz"
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    return path


@pytest.fixture(scope="module")
def made_here(images, tmp_path_factory):
    """A run with an encoder of one's own."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = SETTINGS | {"data.source": str(images)}
    return likewise.train(images, method="simclr", encoder=OURS, out=folder, settings=settings, progress=False).folder


@pytest.fixture
def handed_over(made_here, images, tmp_path, monkeypatch):
    """A folder as somebody else may hand it over: a run that names a module, and the module beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    shutil.copy(images, tmp_path / "images.npz")
    shutil.copytree(made_here, tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(OURS, "hostile:make"))
    (tmp_path / "hostile.py").write_text(HOSTILE)
    yield tmp_path
    sys.modules.pop("hostile", None)


def command(name, *options):
    return CliRunner().invoke(app, [name.split()[0], *COMMANDS[name], *options])


@pytest.mark.parametrize("name", COMMANDS)
def test_code_from_elsewhere_is_run_with_consent_only(handed_over, monkeypatch, name):
    def looked_into(run, make_scene, warn):
        """In this thread, and not in one that may outlive the test."""
        make_scene(lambda words, share: None)

    monkeypatch.setattr("likewise.explorer.explorer.Explorer", looked_into)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    result = command(name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "likewise: run/recipe.toml names the encoder hostile:make, whose code would be run, and was not made under "
        "this account: use --trust (trust=True in Python) if you trust its author\n"
    )
    assert not (handed_over / "hurt").exists()
    assert not (handed_over / "other").exists()
    result = command(name, "--trust")
    assert result.exit_code == 0, result.output
    assert (handed_over / "hurt").exists()


def test_python_asks_for_the_same_consent(handed_over):
    for opened in (load, Searcher.open):
        with pytest.raises(TrustError, match="names the encoder hostile:make"):
            opened("run")
    assert not (handed_over / "hurt").exists()
    load("run", trust=True)
    assert (handed_over / "hurt").exists()


@pytest.mark.parametrize("options", [["--recipe", "run/recipe.toml", "--out", "other"], ["--resume", "--out", "run"]])
def test_naming_the_encoder_oneself_is_consent(handed_over, options):
    result = CliRunner().invoke(app, ["train", "images.npz", *options, "--encoder", "hostile:make"])
    assert result.exit_code == 0, result.output
    assert (handed_over / "hurt").exists()


def test_a_run_of_ones_own_needs_no_consent_wherever_it_is(made_here, tmp_path):
    moved = shutil.copytree(made_here, tmp_path / "moved")
    assert load(moved).recipe.encoder.name == OURS
    likewise.finetune(moved, labels=1, epochs=1, out=tmp_path / "finetuned", progress=False)
    assert load(tmp_path / "finetuned").recipe.encoder.name == OURS


def test_a_run_of_another_account_needs_consent(made_here, tmp_path, monkeypatch):
    for account in ("new", "old"):
        monkeypatch.setenv("LIKEWISE_CONFIG", str(tmp_path / account))
        if account == "old":
            trust.mark(tmp_path, OURS)  # it has a secret, and not the one of the run
        with pytest.raises(TrustError):
            load(made_here)


def test_an_encoder_that_is_built_in_needs_no_consent(tmp_path):
    assert trust.check_trust(tmp_path / "recipe.toml", "resnet18", False) is None


def test_the_secret_is_for_nobody_else_and_stays_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("LIKEWISE_CONFIG", str(tmp_path / "config"))
    (tmp_path / "run").mkdir()
    assert trust.mark(tmp_path / "run", OURS) is None
    secret, first = tmp_path / "config" / "secret", (tmp_path / "run" / trust.MARK).read_text()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert len(secret.read_bytes()) == 32
    trust.mark(tmp_path / "run", OURS)
    assert (tmp_path / "run" / trust.MARK).read_text() == first
    trust.check_trust(tmp_path / "run" / "recipe.toml", OURS, False)
    with pytest.raises(TrustError):
        trust.check_trust(tmp_path / "run" / "recipe.toml", "another:one", False)


def test_a_secret_that_everybody_knows_is_none(tmp_path, monkeypatch):
    """A full disk may have left an empty file."""
    monkeypatch.setenv("LIKEWISE_CONFIG", str(tmp_path))
    (tmp_path / "secret").touch()
    forged = hmac.new(b"", f"encoder {OURS}".encode(), hashlib.sha256).hexdigest()
    (tmp_path / trust.MARK).write_text(forged)
    with pytest.raises(TrustError):
        trust.check_trust(tmp_path / "recipe.toml", OURS, False)
    assert trust.mark(tmp_path, OURS) is None
    assert len((tmp_path / "secret").read_bytes()) == 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    trust.check_trust(tmp_path / "recipe.toml", OURS, False)


def test_where_no_secret_can_be_kept_a_run_is_made_and_that_is_said(images, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LIKEWISE_CONFIG", str(tmp_path / "file"))
    said = []

    class Ear(Observer):
        def say(self, sentence):
            said.append(sentence)

    ready = make_plan(images, "simclr", SETTINGS | {"encoder.name": OURS}, progress=False)
    run = Trainer(ready, tmp_path / "run", Ear()).run()
    assert said[0].startswith(
        "other commands will ask for --trust, because this run could not be marked as made here: "
    )
    with pytest.raises(TrustError):
        load(run.folder)
    assert load(run.folder, trust=True).recipe.encoder.name == OURS


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "os:system",
            r"os:system must take channels, size, features, samples, context by name, or some of them, got \(",
        ),
        ("os:getcwd", "os:getcwd must return an nn.Module, got str"),
        ("torch.nn:Linear", "torch.nn:Linear must take channels, size, features, samples, context by name, or some"),
        ("pathlib:Path", "pathlib:Path must return an nn.Module, got "),
    ],
)
def test_a_callable_that_makes_no_encoder_is_one_sentence(name, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        likewise.encoders.build(name)


def test_the_mark_is_no_way_to_read_without_end(tmp_path):
    (tmp_path / trust.MARK).symlink_to(Path("/dev/zero"))
    with pytest.raises(TrustError):
        trust.check_trust(tmp_path / "recipe.toml", OURS, False)
