"""Threads that read data or answer requests while another thread trains, each on a single core.

A large PyTorch operator shares its work with a team of OpenMP threads, and every thread that calls one gets a team of
its own. Once there are more threads in teams than cores, libgomp no longer lets any team wait actively: each parallel
loop of the training thread then ends with its team asleep, which makes training about half as fast. So only the thread
that computes may have a team; readers and the explorer's server use one core each.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def single_core_pool(workers: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of threads in which PyTorch operators use only the calling thread."""
    with restored_thread_count(), ThreadPoolExecutor(workers, name, initializer=use_one_core) as pool:
        yield pool


def use_one_core() -> None:
    """Run the PyTorch operators that this thread calls in this thread alone."""
    torch.set_num_threads(1)


@contextmanager
def restored_thread_count() -> Iterator[None]:
    """Restore the number of threads at the end, so that `use_one_core` does not affect threads that are started later.

    `torch.set_num_threads` acts on the calling thread, and on every thread that calls its first operator afterwards.
    """
    try:
        yield
    finally:
        torch.set_num_threads(torch.get_num_threads())
