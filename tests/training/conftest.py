"""What a run left behind, to the bit, and the small runs that tests of training look at."""

import os
from pathlib import Path

import pytest
import torch

from likewise.training import checkpoint, metrics
from likewise.training.metrics import Metrics

ROOT = Path(__file__).parents[2]
WEIGHTS = ("encoder.safetensors", "head.safetensors", "text.safetensors", "text_head.safetensors", "tokenizer.json")
TIMINGS = ("items_per_second", "seconds_left")
PATIENCE = 1800  # seconds for a process of its own; they only bound a hang
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "COLUMNS": "500"}


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """As many threads here as in the processes that tests start: sums then have the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def whole(folder):
    """The newest checkpoint of a run, which must not be damaged."""

    def damaged(path, reason):
        raise AssertionError(f"{path}: {reason}")

    return checkpoint.newest(Path(folder) / "checkpoints", damaged)


def rows(folder):
    """The metrics of a run, timings aside."""
    found = metrics.read(Path(folder) / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name not in TIMINGS} for row in found]


def left_behind(folder):
    """Everything that a run leaves, to the bit: weights, queue, bank, optimizer, step, metrics."""
    last = whole(folder)
    tensors = {
        name: (value.dtype, tuple(value.shape), value.stride(), value.contiguous().flatten().view(torch.uint8).tolist())
        for name, value in last.tensors.items()
    }
    files = {name: (Path(folder) / name).read_bytes() for name in WEIGHTS if (Path(folder) / name).exists()}
    return {"step": last.step, "state": last.state, "metrics": rows(folder)} | files | tensors


def assert_same(folder, reference):
    """Two runs left the same behind; one thing at a time, so that a failure names it."""
    ours, theirs = left_behind(folder), left_behind(reference)
    assert sorted(ours) == sorted(theirs)
    for row, expected in zip(ours["metrics"], theirs["metrics"], strict=False):
        assert row == expected
    for name, value in theirs.items():
        assert ours[name] == value, name


class PowerCutError(Exception):
    pass


def power_cut():
    raise PowerCutError


def happening(patch, step, happens):
    """Let something happen to a run in this process, right after it wrote down a step."""
    write = Metrics.write

    def writing(metrics, row):
        write(metrics, row)
        if row["step"] == step:
            happens()

    patch.setattr(Metrics, "write", writing)


@pytest.fixture
def cut(monkeypatch):
    def at(step, happens=power_cut):
        happening(monkeypatch, step, happens)

    def undo():
        monkeypatch.setattr(Metrics, "write", WRITE)

    at.undo, at.error = undo, PowerCutError
    return at


WRITE = Metrics.write
