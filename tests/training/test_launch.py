"""A rank that waits for another that has died is ended with one sentence."""

import os
import subprocess
import sys
import threading

import pytest

from likewise import ranks
from likewise.training import launch


@pytest.fixture
def ended(monkeypatch):
    """The exit code of a process that the watch ends, once it does; here the process goes on."""
    codes, happened = [], threading.Event()

    def end(code):
        codes.append(code)
        happened.set()

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(launch, "PERIOD", 0.01)
    monkeypatch.setattr(launch, "PATIENCE", 0.05)
    return happened, codes


def test_a_rank_that_does_not_notice_the_death_of_another_is_ended(ended, capsys):
    happened, codes = ended
    with launch.together():
        launch._watch(lambda: [] if happened.is_set() else [2])
        assert happened.wait(600)  # which only bounds a hang
    assert codes == [1]
    assert capsys.readouterr().err == (
        "likewise: rank 2 died, so the others ended too: look above for its error, and check whether memory ran "
        "out; --resume continues the run (see docs/guide/reading-a-run.md#a-rank-died)\n"
    )


def test_a_rank_that_needs_no_other_any_more_is_left_alone(ended):
    _, codes = ended
    looked, over = threading.Semaphore(0), threading.Event()

    def find_dead():
        looked.release()
        return [] if over.is_set() else [1]

    launch._watch(find_dead)
    for _ in range(20):
        assert looked.acquire(timeout=600)
    assert codes == []
    over.set()


def test_a_broken_connection_alone_is_an_error_like_any_other():
    """Where there is one rank, nobody else can have died; and other errors are nobody's death."""
    assert ranks.count() == 1
    with pytest.raises(RuntimeError, match=r"pair\.cc"), launch.together():
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:537] Connection reset by peer")


def test_a_process_that_has_ended_is_gone_even_before_it_is_waited_for():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not launch._is_gone(process.pid)
    process.stdin.close()
    while not launch._is_gone(process.pid):  # a zombie, as nobody has asked for its exit code
        os.sched_yield()
    process.wait()
    assert launch._is_gone(process.pid)


def test_what_is_said_of_several_and_of_nobody_known():
    assert launch.sentence([1, 3]).startswith("rank 1 and rank 3 died, so the others ended too: ")
    assert launch.sentence([]).startswith("another rank no longer answers: ")
