"""One writer at a time: who comes second is refused, and a dead process holds nothing."""

import os
import signal
import subprocess
import sys

import pytest

from likewise.locks import InUseError, only_writer
from tests.training.conftest import ROOT

HOLDER = """
import sys
from pathlib import Path
from likewise.locks import only_writer
target = Path(sys.argv[1])
with only_writer(target, target / ".lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the folder `target`."""
    program = [sys.executable, "-c", HOLDER, str(tmp_path / "target")]
    with subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_comes_second_is_refused_in_one_sentence(tmp_path, holder):
    target = tmp_path / "target"
    with pytest.raises(InUseError) as refused, only_writer(target, target / ".lock"):
        raise AssertionError("two writers")
    assert str(refused.value) == (
        f"{target} is in use: another likewise process writes to it; wait until it ends, or choose another --out"
    )
    assert (target / ".lock").exists(), "the first one's lock is left alone"


def test_a_killed_process_holds_nothing(tmp_path, holder):
    target = tmp_path / "target"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with only_writer(target, target / ".lock"):
        pass
    assert os.listdir(tmp_path) == ["target"]
    assert os.listdir(target) == []


def test_the_same_process_is_refused_too(tmp_path):
    with (
        only_writer(tmp_path, tmp_path / ".lock"),
        pytest.raises(InUseError),
        only_writer(tmp_path, tmp_path / ".lock"),
    ):
        raise AssertionError("two writers")


def test_folders_that_were_made_for_nothing_go_again(tmp_path):
    target = tmp_path / "a" / "b"
    with only_writer(target, target / ".lock"):
        assert target.is_dir()
    assert os.listdir(tmp_path) == []
    with only_writer(target, target / ".lock"):
        (target / "kept").touch()
    assert os.listdir(target) == ["kept"]
