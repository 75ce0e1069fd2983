"""A run that was killed, told to end, or whose disk was full goes on as if nothing had happened: to the bit."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.recipe import RecipeError
from likewise.training import checkpoint
from likewise.training.metrics import Metrics
from likewise.training.run import RunError
from likewise.training.signals import Interrupted
from tests.training import plain_encoder
from tests.training.conftest import (
    ENVIRONMENT,
    PATIENCE,
    ROOT,
    PowerCutError,
    assert_same,
    happening,
    power_cut,
    rows,
    whole,
)
from tests.waves import series

STEPS, KEPT_EVERY = 40, 7
COMMON = {
    "encoder.name": "tests.training.plain_encoder:normed",
    "encoder.dim": 16,
    "training.steps": STEPS,
    "training.batch_size": 32,
    "training.log_every": 1,
    "training.checkpoint_every": KEPT_EVERY,
    "training.evaluate_every": 9,
    "loss.learnable": True,
}
SGD = {"optimizer.name": "sgd", "optimizer.lr": 0.03}
OWN = {
    # Ten batches fill the queue, and the tenth crosses its end.
    "moco": SGD | {"dictionary.size": 300, "keys.momentum": 0.9, "keys.schedule": "cosine"},
    "instdisc": SGD | {"dictionary.negatives": 200},
    "simclr": {"optimizer.name": "adamw", "optimizer.lr": 0.001},
}


def settings(method, **more):
    return COMMON | OWN[method] | more


def run(folder, method="moco", *, resume=False, source="digits", **more):
    return likewise.train(
        source, method=method, out=folder, settings=settings(method, **more), resume=resume, progress=False
    )


def words(folder, method, workers, *more):
    """The same run as a command."""
    values = settings(method) | {"data.workers": workers}
    changes = [part for key, value in values.items() for part in ("--set", f"{key}={str(value).lower()}")]
    return ["train", "digits", "--method", method, "--out", str(folder), *changes, *more]


def start(*arguments, **options):
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "likewise", *arguments],
        **{"cwd": ROOT, "env": ENVIRONMENT, "stderr": subprocess.PIPE, "text": True} | options,
    )


def said(result):
    return " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """For each method a run that nothing happened to."""
    folder, made = tmp_path_factory.mktemp("undisturbed"), {}

    def of(method="moco"):
        if method not in made:
            made[method] = run(folder / method, method).folder
        return made[method]

    return of


@pytest.fixture(scope="module")
def cut_off_once(tmp_path_factory):
    """A run of MoCo in this process that ended without warning after step 24; its checkpoints are of 14 and 21."""
    folder = tmp_path_factory.mktemp("cut-off") / "run"
    with pytest.MonkeyPatch.context() as patch:
        happening(patch, 24, power_cut)
        with pytest.raises(PowerCutError):
            run(folder)
    assert [path.name for path in sorted((folder / "checkpoints").glob("*.json"))] == [
        "step-000014.json",
        "step-000021.json",
    ]
    return folder


@pytest.fixture
def cut_off(cut_off_once, tmp_path):
    """A copy of it, to go on with."""
    return shutil.copytree(cut_off_once, tmp_path / "cut-off")


# Killed


KILLED = [(method, workers) for method in OWN for workers in (0, 2)]
TOLD = (signal.SIGTERM, signal.SIGINT)
SENT = [(*case, signal.SIGKILL) for case in KILLED] + [("moco", 2, number) for number in TOLD]


def in_its_folder(parent, case):
    """The folder of a run that is sent a signal, and the step after which it is."""
    between = [step for step in range(3, STEPS - 8) if step % KEPT_EVERY]
    return Path(parent) / "-".join(map(str, case)), random.Random(str(case)).choice(between)


def wait_for_signal(marker):
    """Stand still until SIGINT or SIGTERM was handled, or SIGKILL ends it all; the marker says that it stands."""
    came = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number, frame):
        handlers[number](number, frame)
        came.append(number)

    for number in handlers:
        signal.signal(number, handle)
    marker.touch()
    while not came:
        time.sleep(0.01)
    for number in handlers.keys() - came:
        signal.signal(number, handlers[number])


def send_all(parent):
    """Start every run as a process, send each its signal in the midst of a step, and write down how they ended.

    The processes are forks of this one, so that torch is imported once and not eight times. The same holds for
    everything that is imported only when a run needs it: a run of one step has imported it before the first fork.
    """
    ends = []
    run(Path(parent) / "warm-up", **{"training.steps": 1, "data.workers": 0})
    for case in SENT:
        folder, at = in_its_folder(parent, case)
        marker, stderr, write = folder.with_suffix(".held"), folder.with_suffix(".stderr"), Metrics.write
        child = os.fork()
        if child == 0:

            def writing(metrics, row, at=at, marker=marker, write=write):
                write(metrics, row)
                if row["step"] == at:
                    plain_encoder.at_call[0] = lambda: wait_for_signal(marker)  # in the next step's forward pass

            Metrics.write = writing
            with stderr.open("w") as file:
                os.dup2(file.fileno(), 2)
            app(words(folder, *case[:2]))  # raises SystemExit, so that this process ends as the command's does
        while not marker.exists():
            assert os.waitpid(child, os.WNOHANG) == (0, 0), stderr.read_text()
            time.sleep(0.01)
        os.kill(child, case[2])
        ends.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), stderr.read_text()))
    (Path(parent) / "ends.json").write_text(json.dumps(ends))


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Every run that was sent a signal, by (method, workers, signal): its folder, the step, exit code and stderr."""
    parent = tmp_path_factory.mktemp("sent")
    code = f"from tests.training.test_resume import send_all; send_all({str(parent)!r})"
    # The time only bounds a hang.
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, check=True, timeout=PATIENCE)
    ends = json.loads((parent / "ends.json").read_text())
    return {case: (*in_its_folder(parent, case), *end) for case, end in zip(SENT, ends, strict=True)}


@pytest.mark.parametrize(("method", "workers"), KILLED)
def test_a_killed_run_goes_on_to_the_bit(sent, undisturbed, method, workers):
    """kill -9 at any step; weights, queue, bank and metrics are those of a run that nothing happened to."""
    folder, at, code, _ = sent[method, workers, signal.SIGKILL]
    assert code == -signal.SIGKILL
    assert not (folder / "encoder.safetensors").exists()
    assert len(rows(folder)) == at < STEPS
    # The other number of workers: it may change, and changes nothing.
    again = CliRunner().invoke(app, words(folder, method, 2 - workers, "--resume"))
    assert again.exit_code == 0, again.stderr
    assert_same(folder, undisturbed(method))


def test_every_place_to_be_cut_off_at_gives_the_same_run(tmp_path, undisturbed, cut):
    """One run, cut off again and again: before its first checkpoint, at one, and while its queue still fills."""
    folder = tmp_path / "unlucky"
    for at in (2, 8, 9, 14, 39):
        cut(at)
        with pytest.raises(cut.error):
            run(folder, resume=True)
        cut.undo()
    run(folder, resume=True)
    assert_same(folder, undisturbed())


AHEAD = {
    "cpc": {},
    "cpc, negatives of the same": {"pairs.negatives": "same"},
    # Three batches fill the queue, and the third crosses its end.
    "moco": {"pairs.kind": "future", "dictionary.size": 200, "keys.momentum": 0.9, "keys.schedule": "cosine"},
}


@pytest.mark.parametrize("case", AHEAD)
def test_a_run_on_the_future_of_sequences_goes_on_to_the_bit(tmp_path, cut, case):
    """Windows, candidates and the queue of frames are found again, whoever reads the batches."""
    source = series(40, t=40, lengths=np.arange(40) % 30 + 11)
    options = {"training.steps": 16, "training.batch_size": 8, "training.log_every": 1, "training.checkpoint_every": 3}
    options |= {"pairs.horizon": 3, "pairs.candidates": 16, "training.evaluate_every": 5, "loss.learnable": True}

    def train(folder, workers, *, resume=False):
        chosen = options | AHEAD[case] | {"data.workers": workers}
        method = case.partition(",")[0]
        return likewise.train(source, method=method, out=folder, settings=chosen, resume=resume, progress=False).folder

    undisturbed, folder = train(tmp_path / "undisturbed", 2), tmp_path / "unlucky"
    for at in (2, 5, 11):
        cut(at)
        with pytest.raises(cut.error):
            train(folder, 2, resume=True)
        cut.undo()
    assert whole(folder).step == 9
    train(folder, 0, resume=True)
    assert_same(folder, undisturbed)
    found = whole(folder).tensors
    assert "loss.log_temperature" in found
    assert ("dictionary.ids" in found) == (case == "moco")


def test_a_run_that_is_cut_off_before_its_views_grow_goes_on_to_the_bit(tmp_path, cut):
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    options = {"encoder.name": "resnet_tiny", "encoder.dim": 8, "data.early_size": 12, "training.steps": 7}
    options |= {"training.batch_size": 8, "training.checkpoint_every": 2, "training.log_every": 1}

    def train(folder, *, resume=False):
        return likewise.train(images, method="moco", out=folder, settings=options, resume=resume, progress=False).folder

    undisturbed, folder = train(tmp_path / "undisturbed"), tmp_path / "unlucky"
    cut(3)
    with pytest.raises(cut.error):
        train(folder, resume=True)
    cut.undo()
    assert whole(folder).step == 2
    train(folder, resume=True)
    assert_same(folder, undisturbed)


def test_a_run_that_was_cut_off_before_its_weights_were_written_writes_them(tmp_path, undisturbed):
    """Killed between its last checkpoint and the end."""
    folder = shutil.copytree(undisturbed(), tmp_path / "late")
    for name in ("encoder", "head"):
        (folder / f"{name}.safetensors").unlink()
    run(folder, resume=True)
    assert_same(folder, undisturbed())


# Told to end


@pytest.mark.parametrize("number", TOLD, ids=lambda number: number.name)
def test_a_run_that_is_told_to_end_keeps_its_last_step(sent, undisturbed, number):
    folder, _, code, stderr = sent["moco", 2, number]
    assert code == 75, stderr
    step = whole(folder).step
    assert f"likewise: stopped after step {step} of {STEPS}; --resume continues from there" in stderr.splitlines()
    assert "Traceback" not in stderr
    assert rows(folder)[-1]["step"] == step, "no step was taken in vain"
    if number == signal.SIGTERM:
        resumed = start(*words(folder, "moco", 0, "--resume"), stdout=subprocess.PIPE)
        stdout, stderr = resumed.communicate(timeout=PATIENCE)
        assert resumed.returncode == 0, stderr
        assert stdout.startswith(f"encoder in {folder}")
    else:
        run(folder, resume=True)
    assert_same(folder, undisturbed())


def test_told_to_end_at_its_last_step_a_run_ends_as_always(tmp_path, undisturbed, cut):
    cut(STEPS, lambda: signal.raise_signal(signal.SIGTERM))
    run(tmp_path / "run")
    assert_same(tmp_path / "run", undisturbed())


def test_after_the_run_signals_do_what_they_did_before(tmp_path, cut):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    cut(3, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        run(tmp_path / "run")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


# What is in a checkpoint


def test_fault_3_everything_is_in_the_checkpoint(undisturbed):
    """Queue, pointer, fill, ids, bank, log Z, temperature, momentum copy, optimizer, step."""
    moco, instdisc, simclr = (whole(undisturbed(method)) for method in OWN)
    names = {method: set(found.tensors) for method, found in zip(OWN, (moco, instdisc, simclr), strict=True)}
    assert moco.step == instdisc.step == simclr.step == STEPS
    assert {f"dictionary.{name}" for name in ("keys", "ids", "born", "rows", "_extra_state")} <= names["moco"]
    written, updates = moco.tensors["dictionary._extra_state"].tolist()
    assert (written, updates) == (STEPS * 32, STEPS)
    assert moco.tensors["dictionary.keys"].shape == (300, 16)
    assert (moco.tensors["dictionary.ids"] >= 0).all()
    assert {f"dictionary.{name}" for name in ("slots", "ids", "born", "rows", "_extra_state")} <= names["instdisc"]
    assert instdisc.tensors["dictionary.slots"].shape == (1617, 16)
    assert instdisc.tensors["loss.log_partition"].isfinite()
    for method in OWN:
        assert "loss.log_temperature" in names[method]
        # Also the statistics of batch norm, which no optimizer knows of.
        assert "tower.encoder.layers.2.running_var" in names[method]
    tower = {name.removeprefix("tower.") for name in names["moco"] if name.startswith("tower.")}
    assert {name.removeprefix("copy.copy.") for name in names["moco"] if name.startswith("copy.")} == tower
    for found, kept in ((moco, "momentum_buffer"), (instdisc, "momentum_buffer"), (simclr, "exp_avg_sq")):
        optimizer = checkpoint.unflatten(found.tensors, found.state["learner"])["optimizer"]
        assert all(kept in state for state in optimizer["state"].values())
        learned = [name for name in found.tensors if name.startswith(("tower.", "loss.log_temp"))]
        learned = [name for name in learned if not name.endswith(("running_mean", "running_var", "tracked"))]
        assert len(optimizer["state"]) == len(learned)


# Damage


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_damaged_checkpoint_is_told_of_and_the_one_before_it_used(cut_off, undisturbed, damage, kind):
    path = cut_off / "checkpoints" / f"step-000021.{kind}"
    content = bytearray(path.read_bytes())
    if damage == "torn":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 16
    path.write_bytes(content)
    result = CliRunner().invoke(app, words(cut_off, "moco", 2, "--resume"))
    assert result.exit_code == 0, result.stderr
    assert "note step-000021.json is skipped: its " in said(result)
    assert ("incomplete" if damage == "torn" else "altered") in said(result)
    assert_same(cut_off, undisturbed())


def test_with_no_whole_checkpoint_left_the_run_starts_afresh_and_says_so(cut_off, undisturbed):
    for path in (cut_off / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    result = CliRunner().invoke(app, words(cut_off, "moco", 2, "--resume"))
    assert result.exit_code == 0, result.stderr
    for name in ("step-000021.json", "step-000014.json"):
        assert f"{name} is skipped" in said(result)
    assert f"there is no checkpoint in {cut_off}: starting from the beginning" in said(result)
    assert_same(cut_off, undisturbed())


def test_resuming_where_there_is_nothing_starts_afresh_and_says_so(tmp_path, undisturbed):
    result = CliRunner().invoke(app, words(tmp_path / "new", "moco", 2, "--resume"))
    assert result.exit_code == 0, result.stderr
    assert f"note there is no checkpoint in {tmp_path / 'new'}: starting from the beginning" in said(result)
    assert_same(tmp_path / "new", undisturbed())


def test_a_torn_line_of_metrics_is_left_out(cut_off, undisturbed):
    with (cut_off / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "lo')
    run(cut_off, resume=True)
    assert_same(cut_off, undisturbed())


# Resuming what should not be


def test_resuming_a_finished_run_says_so_and_changes_nothing(undisturbed):
    folder = undisturbed()
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    result = CliRunner().invoke(app, words(folder, "moco", 2, "--resume"))
    assert result.exit_code == 0, result.stderr
    assert f"note the run in {folder} was already finished, after {STEPS} steps" in said(result)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_changed_data_is_refused(tmp_path, cut):
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    folder = tmp_path / "run"
    cut(12)
    with pytest.raises(cut.error):
        run(folder, source=images)
    cut.undo()
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    images[3, 4, 5] ^= 1
    with pytest.raises(RunError) as refused:
        run(folder, source=images, resume=True)
    assert str(refused.value) == f"the data is not that of {folder}, or has changed since; start a new run on it"
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before
    images[3, 4, 5] ^= 1
    run(folder, source=images.copy(), resume=True)
    assert whole(folder).step == STEPS


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"optimizer.lr": 0.5}, "optimizer.lr was 0.03 in {} and cannot become 0.5 on resuming"),
        ({"training.batch_size": 16}, "training.batch_size was 32 in {} and cannot become 16 on resuming"),
        ({"training.steps": 99}, "training.steps was 40 in {} and cannot become 99 on resuming"),
        ({"seed": 1}, "seed was 0 in {} and cannot become 1 on resuming"),
        ({"dictionary.size": 299}, "dictionary.size was 300 in {} and cannot become 299 on resuming"),
    ],
    ids=str,
)
def test_a_changed_recipe_is_refused(undisturbed, changed, sentence):
    with pytest.raises(RecipeError) as refused:
        run(undisturbed(), resume=True, **changed)
    assert str(refused.value) == sentence.format(undisturbed())


def test_another_method_is_refused(undisturbed):
    with pytest.raises(RecipeError, match=r"^method was 'moco' in .* and cannot become 'simclr' on resuming$"):
        likewise.train("digits", method="simclr", out=undisturbed(), resume=True, progress=False)


def test_nothing_has_to_be_said_again(cut_off, undisturbed):
    """The run's own recipe is enough."""
    likewise.train("digits", out=cut_off, resume=True, progress=False)
    assert_same(cut_off, undisturbed())


# A full disk


def test_a_disk_that_fills_up_while_saving_is_one_sentence(tmp_path, undisturbed, cut, monkeypatch):
    folder, full = tmp_path / "run", []

    def fsync(descriptor, fsync=os.fsync):
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    cut(18, lambda: full.append(True))
    result = CliRunner().invoke(app, words(folder, "moco", 2))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"likewise: checkpoint of step 21 could not be written to {folder / 'checkpoints'}: "
        "No space left on device; earlier ones are kept"
    )
    assert "Traceback" not in result.stderr
    assert whole(folder).step == 14
    full.clear()
    cut.undo()
    run(folder, resume=True)
    assert_same(folder, undisturbed())


def limit_files(size):
    """Files of a process may not grow beyond `size` bytes: what a full disk is to the program."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_process_that_may_write_no_more_says_so_and_keeps_what_it_has(cut_off, undisturbed):
    """Files of a few bytes fit, a checkpoint does not."""
    kept = {path: path.read_bytes() for path in (cut_off / "checkpoints").iterdir()}
    size = max(path.stat().st_size for path in cut_off.iterdir() if path.is_file()) + 2000
    assert size < max(map(len, kept.values()))
    process = start(*words(cut_off, "moco", 2, "--resume"), preexec_fn=limit_files(size))
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    assert "File too large" in stderr.splitlines()[-1]
    assert {path: path.read_bytes() for path in (cut_off / "checkpoints").iterdir()} == kept
    run(cut_off, resume=True)
    assert_same(cut_off, undisturbed())


def test_a_disk_that_is_full_when_weights_are_written(tmp_path, undisturbed, cut):
    """The last checkpoint is there, so that what is missing can be made up."""
    folder = shutil.copytree(undisturbed(), tmp_path / "run")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("encoder", "head"):
        (folder / f"{name}.safetensors").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        result = CliRunner().invoke(app, words(folder, "moco", 2, "--resume"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 1, result.stderr
    assert result.stderr.splitlines()[-1].startswith("likewise: ")
    assert "Traceback" not in result.stderr
    assert not (folder / "encoder.safetensors").exists()
    run(folder, resume=True)
    assert_same(folder, undisturbed())
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in undisturbed().iterdir())
