"""Two ranks of n/2 items are one process of n: every parameter, hence every gradient, and every dictionary."""

import contextlib
import functools
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise
from likewise import clock, ranks
from likewise.cli import app
from likewise.encoders import build
from likewise.pairs.future import Future
from likewise.recipe import RecipeError
from likewise.training import checkpoint, learner
from likewise.training.batches import Batches
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.signals import Interrupted
from likewise.training.trainer import Trainer
from tests.maps import plain_maps
from tests.sentences import sentences
from tests.training import plain_encoder
from tests.training.conftest import ENVIRONMENT, PATIENCE, ROOT, assert_same, rows, whole
from tests.training.test_captions import pictures
from tests.waves import series

# Plain SGD at a constant rate: what the parameters moved by is the gradient.
COMMON = {
    "encoder.name": "tests.training.plain_encoder:plain",
    "encoder.head": "mlp",
    "encoder.dim": 8,
    "encoder.bn_splits": 1,
    "training.precision": "64-true",
    "training.steps": 4,
    "training.batch_size": 12,
    "training.log_every": 2,
    "training.evaluate_every": 2,
    "optimizer.name": "sgd",
    "optimizer.lr": 0.5,
    "optimizer.momentum": 0.0,
    "optimizer.weight_decay": 0.0,
    "optimizer.schedule": "constant",
    "optimizer.warmup": 0.0,
    "data.workers": 0,
}
LEARNABLE = {"loss.learnable": True, "loss.temperature": 0.3}
QUEUE = {"dictionary.size": 40, "keys.momentum": 0.5}  # the fourth batch crosses its end
# Of a few frames or of many, so that one rank has more queries than the other, and at some steps ahead one has none.
LENGTHS = np.random.default_rng(5).choice([5, 9, 14, 40], 60)
WINDOW, HORIZON = 32, 4
AHEAD = {"pairs.kind": "future", "pairs.window": WINDOW, "pairs.horizon": HORIZON, "pairs.candidates": 30}
AHEAD |= {"encoder.name": "sensors", "encoder.head": "steps", "loss.learnable": True, "optimizer.lr": 0.1}
WORDS = {"pairs.kind": "captions", "optimizer.lr": 0.05}
READ = {"encoder.name": "bert_tiny", "pairs.preset": "text", "text.vocabulary": 300, "optimizer.lr": 0.05}
PREDICTOR = {"encoder.head": "mlp", "encoder.predictor": "linear"}
CASES = {
    "cpc": ("cpc", AHEAD),
    "cpc, negatives of others": ("cpc", AHEAD | {"pairs.negatives": "others"}),
    "cpc, negatives of the same": ("cpc", AHEAD | {"pairs.negatives": "same"}),
    "cpc, transformer": ("cpc", AHEAD | {"encoder.context": "transformer"}),
    "moco, future": ("moco", AHEAD | QUEUE | {"dictionary.size": 250}),
    "simclr, sequences": ("simclr", LEARNABLE | {"encoder.name": "sensors", "pairs.window": WINDOW}),
    "moco": ("moco", LEARNABLE | QUEUE),
    "moco, symmetric": ("moco", LEARNABLE | QUEUE | {"pairs.symmetric": True}),
    "moco, groups": ("moco", LEARNABLE | QUEUE | {"pairs.kind": "groups"}),
    "moco, keys shuffled": ("moco", LEARNABLE | QUEUE | {"encoder.name": "tests.training.plain_encoder:frozen_norm"}),
    "simclr": ("simclr", LEARNABLE | {"encoder.head": "mlp"}),
    "simclr, groups": ("simclr", LEARNABLE | {"pairs.kind": "groups"}),
    "simclr, hard-weighted": ("simclr", LEARNABLE | {"loss.policy": "hard_weighted:0.5:0.1"}),
    "instdisc": ("instdisc", LEARNABLE | {"dictionary.negatives": 50}),
    "bank": ("bank", LEARNABLE | {"dictionary.negatives": 50}),
    "supcon": ("supcon", LEARNABLE),
    "e2e": ("e2e", LEARNABLE),
    "e2e, symmetric": ("e2e", LEARNABLE | {"pairs.symmetric": True}),
    "pair": ("pair", {}),
    "triplet": ("triplet", {}),
    "symmetric InfoNCE": ("e2e", LEARNABLE | {"loss.kind": "symmetric_info_nce"}),
    "sigmoid": ("e2e", LEARNABLE | {"loss.kind": "sigmoid", "pairs.kind": "groups"}),
    "moco, batch norm": ("moco", LEARNABLE | QUEUE | {"encoder.name": "tests.training.plain_encoder:batch_normed"}),
    "clip": ("clip", WORDS),
    "clip, groups": ("clip", WORDS | {"text.vocabulary": 300}),
    "clip, sigmoid": ("clip", WORDS | {"loss.kind": "sigmoid", "loss.temperature": 0.3}),
    "clip, a queue": ("clip", WORDS | {"loss.kind": "info_nce", "dictionary.kind": "queue", "dictionary.size": 40}),
    "clip, in chunks": ("clip", WORDS | {"training.chunk": 5}),
    "simclr, in chunks": ("simclr", LEARNABLE | {"encoder.head": "mlp", "training.chunk": 5}),
    "simclr, texts": ("simclr", LEARNABLE | READ),
    "moco, texts": ("moco", LEARNABLE | QUEUE | READ),
    "clipped": ("simclr", LEARNABLE | {"optimizer.clip": 0.05}),
    "dcl": ("dcl", LEARNABLE | {"encoder.head": "mlp"}),
    "dcl, weighted": ("dcl", LEARNABLE | {"encoder.head": "mlp", "loss.sigma": 0.5}),
    "nnclr": ("nnclr", LEARNABLE | PREDICTOR | {"dictionary.size": 50}),
    "moco_v3": ("moco_v3", LEARNABLE | PREDICTOR),
}


def arguments(case):
    """The source, the method and the settings of a case."""
    method, settings = CASES[case]
    settings = COMMON | settings
    source = series(60, t=40, lengths=LENGTHS) if "pairs.window" in settings else "digits"
    if settings.get("pairs.preset") == "text":
        source = sentences(60)
    if settings.get("pairs.kind") == "captions":
        source = pictures(60, groups="groups" in case)
    return source, method, settings


def run(folder, case, *, resume=False):
    source, method, settings = arguments(case)
    return likewise.train(
        source, method=method, out=Path(folder) / case, settings=settings, resume=resume, progress=False
    ).folder


def before_the_first_step(folder, case):
    """The tensors that a checkpoint of the case would hold if it were written before any step."""
    trainer = Trainer(make_plan(*arguments(case), progress=False), Path(folder), Observer())
    return checkpoint.flatten(trainer.learner.state())[0]


# What each of the two processes does


def train_all(folder):
    """Every case in turn, in one process group; the numbers that cannot be seen from outside go to a file."""
    torch.set_num_threads(1)
    with plain_maps():
        train_each(folder)


def train_each(folder):
    for case in CASES:
        run(folder, case)
    assert ranks.count() == 2
    found = {"gather": gathered_gradient(), "mean": float(ranks.mean(torch.tensor(float(ranks.index()))))}
    # One of the two is told to end, after the rehearsals; both must, at the same step, and go on together.
    if ranks.index() == 1:
        plain_encoder.at_call[9] = lambda: signal.raise_signal(signal.SIGTERM)
    try:
        run(Path(folder) / "told", "moco, batch norm")
    except Interrupted as sentence:
        found["told"] = str(sentence)
    run(Path(folder) / "told", "moco, batch norm", resume=True)
    learner.has_batch_norm = lambda tower: False  # type: ignore[assignment]
    run(Path(folder) / "unshuffled", "moco, batch norm")
    found["idle"] = idle_parameter(Path(folder) / "idle")
    found["minutes"] = by_minutes(Path(folder) / "minutes")
    found["not a number"] = not_a_number(Path(folder) / "not a number")
    (Path(folder) / f"rank {ranks.index()}.json").write_text(json.dumps(found))


def by_minutes(folder):
    """Train for a time by clocks of which one is three times as fast as the other; return the number of steps."""
    source, method, settings = arguments("moco")
    tenths = itertools.count(step=1 + 2 * ranks.index())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: next(tenths) / 10)
        settings = settings | {"training.steps": 0}
        trained = likewise.train(source, method=method, out=folder, settings=settings, minutes=0.6, progress=False)
    return trained.recipe.training.steps


def example_rows(rank):
    return torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def example_loss(rank, rows):
    """A loss of its own for each rank, in which every row of every rank has a part."""
    weights = torch.arange(1.0, 25.0, dtype=torch.float64).reshape(6, 4) * (rank + 1)
    return (rows.tanh() * weights).sum() ** 2 / 100


def gathered_gradient():
    mine = example_rows(ranks.index()).requires_grad_()
    rows = ranks.gather(mine)
    assert torch.equal(rows, torch.cat([example_rows(0), example_rows(1)])), "in rank order"
    assert not ranks.gather(mine.detach()).requires_grad
    example_loss(ranks.index(), rows).backward()
    return mine.grad.tolist()


# What is made of it


def free_port():
    """A port that stays free until the ranks take it: below those that systems hand out to whoever asks for any."""
    ports = list(range(20_000, 30_000))
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder in which two processes have trained every case."""
    folder = tmp_path_factory.mktemp("two")
    port = free_port()
    code = f"from tests.training.test_ranks import train_all; train_all({str(folder)!r})"
    launched = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=ENVIRONMENT | launched | {"RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        errors = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Train a case in this process, which never shuffles its keys, and return the folder; each case once."""
    parent = tmp_path_factory.mktemp("one")

    @functools.cache
    def of(case):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learner, "has_batch_norm", lambda tower: False)
            return run(parent, case)

    return of


def assert_close(folder, reference):
    ours, theirs = whole(folder), whole(reference)
    assert ours.step == theirs.step
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, value in theirs.tensors.items():
        found = ours.tensors[name]
        torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", [case for case in CASES if case != "moco, batch norm"])
def test_fault_4_two_ranks_have_the_gradient_of_one_process(two, one, tmp_path, case):
    """Neither off by 1/ranks nor in another direction; the temperature too, and what is written to queue and bank."""
    assert_close(two / case, one(case))
    start, end = before_the_first_step(tmp_path, case), whole(one(case)).tensors
    # What is fitted at the end, such as the whitening, is not there at the start.
    learned = [name for name in start if name.startswith("tower.") or name == "loss.log_temperature"]
    moved = {name: (end[name] - start[name]).abs().max() for name in learned if end[name].is_floating_point()}
    still = {name for name, distance in moved.items() if distance < 1e-5}  # a gradient of nothing would be equal too
    # Distances do not change when all rows move together, nor attention when all keys do, or all queries of equal keys.
    without_effect = {"tower.head.2.bias"} if case == "pair" else {n for n in moved if ".attention.self." in n}
    assert still <= {name for name in moved if "running" in name} | without_effect
    assert case in ("pair", "triplet") or "loss.log_temperature" in moved


@pytest.mark.parametrize("case", ["moco", "cpc", "cpc, negatives of the same", "moco, future"])
def test_two_ranks_write_down_what_one_process_does(two, one, case):
    """Loss, candidates, accuracy, temperature, consistency, k-NN: of all ranks' rows, not of the first rank's."""
    for row, expected in zip(rows(two / case), rows(one(case)), strict=True):
        assert row.pop("health", None) == expected.pop("health", None)
        assert row.pop("accuracy", None) == pytest.approx(expected.pop("accuracy", None), abs=1e-4)
        assert row == pytest.approx(expected, rel=1e-6)


def test_the_first_rank_decides_how_many_steps_fit_into_a_time(two, tmp_path):
    first, second = (json.loads((two / f"rank {rank}.json").read_text())["minutes"] for rank in (0, 1))
    assert first == second > 1
    source, method, settings = arguments("moco")
    settings = settings | {"training.steps": first}
    assert_close(
        two / "minutes",
        likewise.train(source, method=method, out=tmp_path / "run", settings=settings, progress=False).folder,
    )


def test_ranks_have_unequally_many_queries_in_the_cases_of_sequences():
    """What these cases are about; a mean of the ranks' means would be another loss."""
    ready = make_plan(series(60, t=40, lengths=LENGTHS), "cpc", COMMON | AHEAD, progress=False)
    frames = build("sensors", channels=2, samples=WINDOW).frames
    batches = Batches(ready.items, ready.train, Future(), size=12, seed=0, workers=0, window=WINDOW)
    there = [frames.there(batches.at(step).data).chunk(2) for step in range(4)]
    counts = [[int(half[:, ahead:].sum()) for half in halves] for halves in there for ahead in range(1, HORIZON + 1)]
    assert all(one != other for one, other in counts)
    assert any(0 in pair for pair in counts), "one rank may have none at all"


def test_the_gradient_of_gather_is_that_of_the_concatenation(two):
    """Of the sum of all ranks' losses; each rank gets the part of its own rows."""
    mine = [example_rows(rank).requires_grad_() for rank in range(2)]
    all_rows = torch.cat(mine)
    expected = torch.autograd.grad(example_loss(0, all_rows) + example_loss(1, all_rows), mine)
    for rank in range(2):
        found = json.loads((two / f"rank {rank}.json").read_text())
        torch.testing.assert_close(torch.tensor(found["gather"], dtype=torch.float64), expected[rank])
        assert found["mean"] == 0.5


def test_keys_are_shuffled_over_ranks(two):
    """Their batch statistics are others than unshuffled. That they come back in order is fault 4's "keys shuffled"."""
    shuffled, not_shuffled = (whole(two / part / "moco, batch norm").tensors for part in ("", "unshuffled"))
    first = shuffled["dictionary.born"] == 0  # keys of the first batch, by the same weights
    assert first.any()
    assert torch.equal(shuffled["dictionary.ids"], not_shuffled["dictionary.ids"])
    difference = (shuffled["dictionary.keys"] - not_shuffled["dictionary.keys"])[first]
    assert difference.abs().max() > 1e-3


def test_a_signal_to_one_rank_ends_both_and_they_go_on_to_the_bit(two):
    for rank in range(2):
        told = json.loads((two / f"rank {rank}.json").read_text())["told"]
        assert told == "stopped after step 2 of 4; --resume continues from there"
    assert_same(two / "told" / "moco, batch norm", two / "moco, batch norm")


def likewise_command(*arguments, **environment):
    """The command in processes of its own; Fabric starts the second."""
    return subprocess.run(
        [sys.executable, "-m", "likewise", *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_the_command_starts_two_ranks_itself(one, tmp_path):
    method, own = CASES["moco"]
    changes = [f"--set={key}={str(value).lower()}" for key, value in (COMMON | own).items()]
    process = likewise_command(
        "train", "digits", "--method", method, "--devices", 2, "--out", tmp_path / "two", *changes
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("encoder in") == 1, "said once, not once a rank"
    assert "on 2 ranks of cpu: about" in process.stderr
    assert "Traceback" not in process.stderr
    assert_close(tmp_path / "two", one("moco"))


def not_a_number(folder):
    """The command on data of which one item, on one of the ranks, makes NaN: its exit code and what it said."""
    folder.mkdir(exist_ok=True)
    vectors = np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32)
    vectors[17] = 1e6
    source = folder / f"{ranks.index()}.npy"  # each rank writes its own
    np.save(source, vectors)
    settings = {"training.batch_size": 16, "training.steps": 5, "training.log_every": 1, "encoder.dim": 8}
    changes = [f"--set={key}={value}" for key, value in settings.items()]
    encoder = "tests.training.plain_encoder:fragile"
    arguments = ("train", source, "--method", "moco", "--encoder", encoder, "--out", folder / "run", *changes)
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stderr


def test_a_loss_that_is_no_number_on_one_rank_ends_both(two):
    """The other rank must neither wait for ever nor fail otherwise."""
    found = json.loads((two / "not a number" / "run" / "not_finite.json").read_text())
    assert 17 in found["ids"]
    for rank in range(2):
        code, stderr = json.loads((two / f"rank {rank}.json").read_text())["not a number"]
        assert code == 1, stderr
        assert f"likewise: the loss was not finite at step {found['step']}; " in stderr
        assert "Traceback" not in stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_the_other_with_one_sentence(tmp_path, rank):
    """As the system kills a process that takes too much memory: it has no time to say anything."""
    words = ("--method", "simclr", "--encoder", "tests.training.plain_encoder:mortal", "--batch-size", 16, "--steps", 9)
    process = likewise_command(
        "train", "digits", *words, "--devices", 2, "--out", tmp_path / "run", MORTAL_RANK=str(rank)
    )
    assert process.returncode == (-signal.SIGKILL if rank == 0 else 1), process.stderr
    assert "Traceback" not in process.stderr
    assert [line for line in process.stderr.splitlines() if line.startswith("likewise: ")] == [
        f"likewise: rank {rank} died, so the others ended too: look above for its error, and check whether "
        "memory ran out; --resume continues the run (see docs/guide/reading-a-run.md#a-rank-died)"
    ]
    assert not (tmp_path / "run" / "encoder.safetensors").exists()


def test_ranks_need_a_program_that_can_be_started_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["-c"])  # as in `python -c "import likewise; likewise.train(...)"`
    with pytest.raises(RecipeError) as refused:
        likewise.train("digits", devices=2, steps=2, out=tmp_path / "run", progress=False)
    assert str(refused.value) == (
        "several devices start this program several times, so it must be a file: call train from a script, or "
        "use the command line"
    )
    assert not (tmp_path / "run").exists()


def idle_parameter(folder):
    """The command on an encoder of which one layer has no part in the output: its exit code and what it said."""
    folder.mkdir(exist_ok=True)
    source = folder / f"{ranks.index()}.npy"  # each rank writes its own
    np.save(source, np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32))
    encoder = "tests.training.plain_encoder:idle"
    arguments = ("train", source, "--method", "simclr", "--encoder", encoder, "--batch-size", 16, "--steps", 3)
    result = CliRunner().invoke(app, [*map(str, arguments), "--out", str(folder / "run")])
    return result.exit_code, result.stderr


def test_a_parameter_without_a_part_in_the_output_is_named_where_ranks_would_wait_for_its_gradient(two, tmp_path):
    told = [json.loads((two / f"rank {rank}.json").read_text())["idle"] for rank in range(2)]
    for devices, (code, stderr) in ((1, idle_parameter(tmp_path)), (2, told[0]), (2, told[1])):
        assert code == (0 if devices == 1 else 1), stderr
        assert ("got none for encoder.fc.weight; remove it or set" in stderr) == (devices == 2)
        assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, (3, 8, 4)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "train"}, (5, 8, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_NAME": "bash"}, None),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, None),
    ],
    ids=["alone", "torchrun", "srun", "a shell in an allocation", "a child of Fabric's"],
)
def test_launchers_are_told_apart(monkeypatch, variables, expected):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks.launched() == expected
    assert ranks.is_first() == ((expected[0] if expected else int(variables.get("LOCAL_RANK", 0))) == 0)


@pytest.mark.parametrize(
    ("variables", "accelerators", "expected"),
    [
        ({}, 2, "meta"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 2, "meta:1"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}, 2, "meta:1"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}, 1, "meta:0"),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "2", "SLURM_JOB_NAME": "embed"}, 4, "meta:2"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 0, "cpu"),
    ],
)
def test_ranks_of_a_machine_take_its_accelerators_in_turn(monkeypatch, variables, accelerators, expected):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: accelerators)
    assert ranks.device() == torch.device(expected)
