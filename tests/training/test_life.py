"""A run from its first moment to its last: alone in its folder, told to end at any time, its data as they were."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.commands import train as command_module
from likewise.training.metrics import Metrics
from likewise.training.run import RunError
from tests.training import plain_encoder
from tests.training.conftest import ENVIRONMENT, ROOT, assert_same, rows, whole

STEPS = 6
SHARP = ("--temperature", "0.001")  # of large gradients
WORDS = (
    *("--method", "simclr", "--encoder", "tests.training.plain_encoder:plain", "--batch-size", "8"),
    *("--steps", str(STEPS), "--set", "encoder.dim=8", "--set", "training.log_every=1"),
    *("--set", "training.checkpoint_every=2", "--set", "data.workers=0"),
)


def written(path):
    """A mapped file of more bytes than one page has."""
    np.save(path, np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32))
    return path


@pytest.fixture
def source(tmp_path):
    return written(tmp_path / "x.npy")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run on the same data that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    result = train(written(folder / "x.npy"), folder / "run")
    assert result.exit_code == 0, result.stderr
    return folder / "run"


@pytest.fixture
def at_step(monkeypatch):
    """Let something happen, once, to a run in this process, right after it wrote down a step."""

    def at(step, happens):
        write = Metrics.write

        def writing(metrics, row):
            write(metrics, row)
            if row["step"] == step:
                monkeypatch.setattr(Metrics, "write", write)
                happens()

        monkeypatch.setattr(Metrics, "write", writing)

    return at


def train(source, folder, *more):
    return CliRunner().invoke(app, ["train", str(source), "--out", str(folder), *WORDS, *more])


def last_line(result):
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


# Alone in its folder


def test_a_second_run_into_the_same_folder_is_refused_and_the_first_goes_on(source, tmp_path, undisturbed, at_step):
    folder, second = tmp_path / "run", []
    at_step(3, lambda: second.extend([train(source, folder, "--seed", "1"), train(source, folder, "--resume")]))
    first = train(source, folder)
    assert first.exit_code == 0, first.stderr
    for result in second:
        assert result.exit_code == 1
        assert result.stderr == (
            f"likewise: {folder} is in use: another likewise process writes to it; wait until it ends, "
            "or choose another --out\n"
        )
    assert len(second) == 2
    assert_same(folder, undisturbed)
    assert sorted(os.listdir(folder)) == sorted(os.listdir(undisturbed))
    assert ".lock" not in os.listdir(folder)


def test_it_is_alone_before_its_data_are_opened_and_until_its_report_is_written(source, tmp_path, monkeypatch):
    folder, second = tmp_path / "run", []
    make_plan, contents = command_module.plan.make_plan, command_module.contents

    def opening(*arguments, **options):
        monkeypatch.setattr(command_module.plan, "make_plan", make_plan)
        second.append(train(source, folder))
        return make_plan(*arguments, **options)

    def reporting(*arguments):
        second.append(train(source, folder, "--resume"))
        return contents(*arguments)

    monkeypatch.setattr(command_module.plan, "make_plan", opening)
    monkeypatch.setattr(command_module, "contents", reporting)
    assert train(source, folder).exit_code == 0
    assert ["is in use" in result.stderr for result in second] == [True, True]


def test_a_lock_that_a_killed_process_left_is_no_obstacle(source, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").touch()
    assert train(source, folder).exit_code == 0


def test_a_fine_tuned_encoder_is_not_written_over(source, tmp_path):
    """It has a recipe but no checkpoint, so that --resume would start afresh in its folder."""
    assert train(source, tmp_path / "run").exit_code == 0
    (tmp_path / "run" / "finetuned.json").write_text("{}")
    result = train(source, tmp_path / "run", "--resume")
    assert result.exit_code == 1
    assert result.stderr == (
        f"likewise: {tmp_path / 'run'} holds a fine-tuned encoder, which cannot be trained further: "
        "choose another --out\n"
    )


# Numbers that are none


def test_what_the_last_step_did_to_the_weights_is_looked_at_too(source, tmp_path):
    """No loss comes after it that would show it."""
    result = train(source, tmp_path / "run", "--steps", "1", "--lr", "3e38", "--set", "optimizer.name=sgd", *SHARP)
    assert result.exit_code == 1, result.stderr
    assert last_line(result).startswith("likewise: the weights were not finite after step 1, ")
    what_to_do = "lower optimizer.lr, or set optimizer.clip = 1.0"
    assert last_line(result).endswith(f"; {what_to_do} (see docs/guide/reading-a-run.md#not-finite)")
    assert not (tmp_path / "run" / "encoder.safetensors").exists()
    assert whole(tmp_path / "run") is None, "what is no number is in no checkpoint"


# Data that change


def overwrite(source):
    """Change a number in place, as a program that writes to a mapped array does."""
    with source.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    os.utime(source, ns=(1, 1))  # clocks may be too coarse to show that it was written just now


def test_data_that_change_in_the_midst_of_a_run_end_it_and_it_goes_on_when_they_are_restored(
    source, tmp_path, undisturbed, at_step
):
    before, folder = source.read_bytes(), tmp_path / "run"
    at_step(3, lambda: overwrite(source))
    result = train(source, folder)
    assert result.exit_code == 1
    assert last_line(result) == (
        f"likewise: the data changed during training: {source} was written to after it was opened; "
        "restore it, and --resume continues from the last checkpoint"
    )
    assert whole(folder).step == 2, "the last checkpoint of the data as they were"
    assert not (folder / "encoder.safetensors").exists()
    refused = train(source, folder, "--resume")
    assert last_line(refused) == (
        f"likewise: the data is not that of {folder}, or has changed since; start a new run on it"
    )
    source.write_bytes(before)
    assert train(source, folder, "--resume").exit_code == 0
    assert_same(folder, undisturbed)


def test_data_that_change_after_the_last_step_but_one_are_noticed(source, tmp_path, at_step):
    at_step(STEPS, lambda: overwrite(source))
    result = train(source, tmp_path / "run")
    assert result.exit_code == 1
    assert "the data changed during training" in last_line(result)
    assert not (tmp_path / "run" / "encoder.safetensors").exists()


def test_a_new_file_of_the_same_name_does_not_disturb_a_run(source, tmp_path, at_step):
    np.save(tmp_path / "new.npy", np.zeros((3, 5), dtype=np.float32))
    at_step(3, lambda: (tmp_path / "new.npy").replace(source))
    assert train(source, tmp_path / "run").exit_code == 0


# Told to end


SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_told_to_end_while_data_are_opened_it_leaves_nothing(source, tmp_path, monkeypatch, number):
    with monkeypatch.context() as patch:
        patch.setattr(command_module.plan, "make_plan", lambda *_, **__: signal.raise_signal(number))
        result = train(source, tmp_path / "run")
    assert result.exit_code == 75, result.stderr
    assert result.stderr == "likewise: stopped before the first step; run the same command to start again\n"
    assert not (tmp_path / "run").exists()
    assert train(source, tmp_path / "run").exit_code == 0


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_told_to_end_while_it_is_built_it_can_be_resumed(source, tmp_path, undisturbed, number):
    plain_encoder.at_call[0] = lambda: signal.raise_signal(number)  # in the rehearsal of a step
    result = train(source, tmp_path / "run")
    assert result.exit_code == 75, result.stderr
    assert last_line(result) == (
        "likewise: stopped; --resume continues from the last checkpoint, or from the start if there is none"
    )
    assert train(source, tmp_path / "run", "--resume").exit_code == 0
    assert_same(tmp_path / "run", undisturbed)


def test_told_to_end_while_its_report_is_made_it_is_finished_and_makes_it_on_resuming(source, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(command_module, "contents", lambda *_: signal.raise_signal(signal.SIGTERM))
        result = train(source, folder)
    assert result.exit_code == 75, result.stderr
    assert last_line(result) == "likewise: stopped; the training is finished, and --resume writes its report"
    assert len(likewise.load(folder).embed(source, progress=False).vectors) == 400
    assert not (folder / "report.html").exists()
    assert train(source, folder, "--resume").exit_code == 0
    assert (folder / "report.html").exists()


def test_told_twice_it_does_not_wait_for_the_step(source, tmp_path, at_step):
    def impatient():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it went on")

    at_step(3, impatient)
    result = train(source, tmp_path / "run")
    assert result.exit_code == 75, result.stderr
    assert whole(tmp_path / "run").step == 2
    assert [row["step"] for row in rows(tmp_path / "run")] == [1, 2, 3]


def test_signals_do_afterwards_what_they_did_before(source, tmp_path):
    before = [signal.getsignal(number) for number in SIGNALS]
    assert train(source, tmp_path / "run").exit_code == 0
    with pytest.raises(RunError):
        likewise.train(source, out=tmp_path / "run", progress=False)
    assert [signal.getsignal(number) for number in SIGNALS] == before


# TensorBoard


def test_a_disk_that_is_full_for_tensorboard_does_not_end_the_run(source, tmp_path, at_step, monkeypatch):
    """It is said once, and the curves go on in metrics.jsonl."""
    writer = pytest.importorskip("tensorboard.summary.writer.record_writer").RecordWriter

    def full(self, record):
        raise OSError(28, os.strerror(28))

    at_step(2, lambda: monkeypatch.setattr(writer, "write", full))
    result = train(source, tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    said = [line for line in result.stderr.splitlines() if "TensorBoard" in line]
    assert said == [
        "note  TensorBoard's curves end here: No space left on device; metrics.jsonl still has everything"
    ], result.stderr
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1, STEPS + 1))


IMPORTING = """
import builtins, signal, sys
importing = builtins.__import__
def told(name, *rest, **more):
    if name == "torch":
        signal.raise_signal(int(sys.argv[1]))
    return importing(name, *rest, **more)
builtins.__import__ = told
from likewise.cli import app
app(["train", "digits"])
"""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_told_to_end_while_torch_is_imported_it_ends_as_well(tmp_path, number):
    """That takes seconds, and torch does not survive an exception in the midst of it: so in a process of its own."""
    program = [sys.executable, "-c", IMPORTING, str(int(number))]
    ended = subprocess.run(program, cwd=tmp_path, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert ended.stderr.decode() == "likewise: stopped before the first step; run the same command to start again\n"
    assert ended.returncode == 75
    assert os.listdir(tmp_path) == []
