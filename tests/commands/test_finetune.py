"""`finetune`: encoder and classifier on a share of the labels, and the same from scratch."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.commands.finetune import pick_labelled
from likewise.data import DataError
from likewise.locks import only_writer
from likewise.training.run import RunError


def command(*arguments):
    return CliRunner().invoke(app, ["finetune", *map(str, arguments)])


def test_it_trains_both_networks_and_says_what_the_figures_depend_on(run, here):
    result = command(run.folder, "--labels", 0.05, "--epochs", 20, "--out", "tuned")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "180 test items" in words
    assert "accuracy with 80 labels" in words
    assert "0.05 of the labels, 10 classes, 20 epochs of 64, adamw at 0.001, cosine, seed 0" in words
    with safetensors.safe_open("tuned/classifier.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["classes"]) == list("0123456789")
        assert file.get_tensor("weight").shape == (10, 256)
    figures = json.loads((here / "tuned" / "finetuned.json").read_text())
    assert f"{figures['finetuned']:.3f}" in words
    assert (figures["labels"], figures["test"], figures["epochs"], figures["seed"]) == (80, 180, 20, 0)
    before, after = run.encoder.embed("digits", progress=False), likewise.load("tuned").embed("digits", progress=False)
    assert not np.allclose(before.vectors, after.vectors), "the encoder was trained too"


def test_learned_labels_are_better_than_guesses_and_the_same_again(run):
    found = likewise.finetune(run.folder, labels=0.1, epochs=25, progress=False)
    assert found.finetuned > 0.6
    assert found.labels == 161
    first, second = (likewise.finetune(run.folder, labels=0.1, epochs=3, progress=False) for _ in range(2))
    assert first == second


def test_json_is_json_and_nothing_else(run):
    result = command(run.folder, "--labels", 0.02, "--epochs", 1, "--json")
    assert json.loads(result.stdout)["epochs"] == 1
    assert result.stderr == ""


def test_from_scratch_is_the_same_network(tmp_path):
    """MoCo splits its batch norm while it trains; fine-tuning splits neither network's, and needs no large batches."""
    made = likewise.train("digits", method="moco", steps=2, batch_size=64, out=tmp_path / "run", progress=False)
    assert made.recipe.encoder.bn_splits > 1
    assert likewise.finetune(made.folder, labels=0.001, epochs=1, progress=False).labels == 10


def test_each_class_gives_its_share_and_at_least_one_item():
    labels = np.array([0] * 100 + [1] * 10 + [2] + [-1] * 5)
    picked = pick_labelled(labels, np.arange(len(labels)), 0.2, seed=0)
    assert np.bincount(labels[picked]).tolist() == [20, 2, 1]
    assert pick_labelled(labels, np.arange(len(labels)), 0.2, seed=1).tolist() != picked.tolist()
    assert pick_labelled(labels, np.arange(50, 105), 1.0, seed=0).tolist() == list(range(50, 105))


def test_mistakes_are_one_sentence(run, here):
    with pytest.raises(ValueError, match=r"^labels must be a share above 0 and at most 1, got 10$"):
        likewise.finetune(run.folder, labels=10)
    with pytest.raises(DataError, match=r"^fine-tuning needs labels, got none in an array of shape \(20, 8, 8\)$"):
        likewise.finetune(run.folder, np.zeros((20, 8, 8), dtype=np.uint8))
    (here / "full").mkdir()
    (here / "full" / "of.txt").write_text("mine")
    with pytest.raises(RunError, match=r"^--out must be a new folder, got full, which is not empty$"):
        likewise.finetune(run.folder, out="full")
    with pytest.raises(ValueError, match=r"^batch size must be at least 2, .* got 1, None, 0\.001$"):
        likewise.finetune(run.folder, batch_size=1)
    with pytest.raises(ValueError, match=r"^seed must not be negative, got -1$"):
        likewise.finetune(run.folder, seed=-1)


def test_a_second_one_into_the_same_folder_is_refused(run, here):
    with only_writer(here / "tuned", here / "tuned" / ".lock"):
        result = command(run.folder, "--epochs", 1, "--out", "tuned")
    assert result.exit_code == 1
    assert result.stderr == (
        "likewise: tuned is in use: another likewise process writes to it; wait until it ends, or choose another "
        "--out\n"
    )
    assert not (here / "tuned").exists()


def test_a_folder_that_could_not_be_written_is_no_run_and_nobody_is_told_to_resume(run, here, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = command(run.folder, "--labels", 0.01, "--epochs", 1, "--out", "tuned")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "likewise: tuned/encoder.safetensors could not be written: No space left on device"
    )
    assert not (here / "tuned").exists()


def test_an_unfinished_run_is_not_fine_tuned(run, here):
    (here / "run").mkdir()
    shutil.copy(run.folder / "recipe.toml", "run")
    result = command("run")
    assert result.stderr == (
        "likewise: run has no encoder.safetensors yet, because its training has not finished; run the same "
        "`likewise train` command with --resume to continue it\n"
    )


def test_a_rate_at_which_nothing_is_learned_is_one_sentence(run, here):
    result = command(run.folder, "--labels", 0.01, "--epochs", 1, "--lr", 1e38, "--out", "tuned")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("likewise: from scratch gave weights that are not finite, ")
    assert last.endswith("; lower --lr, which is 1e+38 (see docs/guide/reading-a-run.md#not-finite)")
    assert not (here / "tuned").exists()
