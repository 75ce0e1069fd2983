"""Only the thread that computes has an OpenMP team: readers and the explorer's server use one core each."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from likewise.threads import single_core_pool

# More items than PyTorch indexes in one piece, so that drawing an epoch's order would make a team in a reader.
COUNTED = """
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer

EPOCHS = 3


class Counter(Observer):
    '''The number of threads of this process at each step.'''

    def __init__(self):
        self.threads = []

    def row(self, row, metrics=()):
        self.threads.append(len(os.listdir("/proc/self/task")))


def threads(readers, folder):
    vectors = np.random.default_rng(0).standard_normal((6000, 4)).astype(np.float32)
    settings = {
        "data.workers": readers,
        "data.test": 0.0,
        "training.batch_size": 1000,
        "training.epochs": EPOCHS,
        "training.log_every": 1,
    }
    counter = Counter()
    Trainer(make_plan(vectors, "simclr", settings, progress=False), folder, counter).run()
    return counter.threads


with tempfile.TemporaryDirectory() as name:
    alone, beside = threads(0, Path(name) / "alone"), threads(2, Path(name) / "beside")
    last_epoch = slice(-len(alone) // EPOCHS, -3)  # before the readers have nothing left to read
    print(max(beside[last_epoch]) - max(alone[last_epoch]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
def test_after_three_epochs_the_readers_are_all_the_threads_that_there_are_more():
    # Threads that spin while they wait take the cores from each other, and from the other tests, for most of a minute.
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-c", COUNTED]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["2"]


def threads_of_a_new_thread():
    """How many threads PyTorch uses in a thread that was just started."""
    counts = []
    thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return counts[0]


def test_a_pool_uses_one_core_each_and_leaves_other_threads_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with single_core_pool(2, "reader") as pool:
            assert list(pool.map(lambda _: torch.get_num_threads(), range(8))) == [1] * 8
            assert torch.get_num_threads() == 3
        assert threads_of_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)
