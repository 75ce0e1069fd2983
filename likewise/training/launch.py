"""Devices, precision and ranks of a run, by Lightning Fabric; and what becomes of a run when one of its ranks dies.

A rank that dies ends the others with one sentence that names it. Most notice by themselves, because their connection
to it breaks. Where Fabric started the ranks they also watch over each other's processes: before they have met, and
under NCCL, a rank waits for the others without noticing anything.
"""

import atexit
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from lightning_fabric.utilities.exceptions import MisconfigurationException

from likewise import ranks
from likewise.recipe import Recipe, RecipeError

PERIOD = 1.0  # seconds between two looks at the processes of other ranks
PATIENCE = 10.0  # seconds in which a rank should have noticed by itself that another has died
FIRST_RANK = "LIKEWISE_FIRST_RANK"  # its process id, in the environment of ranks that it started

# A process belongs to one process group of torch.distributed, so it has one of each.
_processes: list[tuple[str, int]] = []  # host and process id by rank, once the ranks have met
_together = threading.Event()  # set while this rank cannot go on without the others


class RankDiedError(ConnectionError):
    """A rank is gone, and the others cannot go on without it."""


def launch(recipe: Recipe) -> Fabric:
    """Build the recipe's Fabric, start its ranks if nobody has, and let them tell each other who they are."""
    fabric = build_fabric(recipe)
    if FIRST_RANK in os.environ and not ranks.is_first():
        first = int(os.environ[FIRST_RANK])  # it may be dead already, and its children somebody else's
        _watch(lambda: [0] if os.getppid() != first else [])
    fabric.launch()
    if ranks.count() > 1:
        found: list[tuple[str, int]] = [("", 0)] * ranks.count()
        dist.all_gather_object(found, (socket.gethostname(), os.getpid()))
        _processes[:] = found
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """Leave the other ranks before the interpreter ends, which threads of gloo that still run would abort."""
    if dist.is_initialized():
        dist.destroy_process_group()


def build_fabric(recipe: Recipe) -> Fabric:
    """Devices, ranks and precision; under torchrun or SLURM those that were launched."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its banner
    # A 1 × 1 convolution's gradient has its own strides; copying them costs nothing that can be measured.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    found = ranks.launched()
    devices = found.on_this_machine if found else recipe.training.devices
    nodes = found.world // devices if found else 1
    ddp = _DDP(process_group_backend=None if torch.cuda.is_available() else "gloo")
    try:
        return Fabric(
            accelerator="auto",
            devices=devices,
            num_nodes=nodes,
            strategy=ddp if devices * nodes > 1 else "auto",
            precision=recipe.training.precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise RecipeError(f"{devices} devices on {nodes} machines cannot be used: {error}") from None


class _DDP(DDPStrategy):
    """Fabric's, with a launcher of our own."""

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = _Launcher(self.cluster_environment, self.num_processes, self.num_nodes)


class _Launcher(_SubprocessScriptLauncher):
    """Starts the other ranks, and watches over them."""

    def _call_children_scripts(self) -> None:
        os.environ[FIRST_RANK] = str(os.getpid())
        super()._call_children_scripts()
        del os.environ[FIRST_RANK]  # it is for these processes only
        started: list[subprocess.Popen[bytes]] = self.procs
        _watch(lambda: [rank for rank, process in enumerate(started, 1) if process.poll()])
        # Fabric's own observer would kill every rank, this one included, without a word, and even after the training.
        # It is given the processes that are listed here: with none it ends at its first look.
        self.procs = []


@contextmanager
def together() -> Iterator[None]:
    """Run what ranks need each other for. If one has died, say which, and end the others without a word."""
    _together.set()
    try:
        yield
    except RuntimeError as error:
        if ranks.count() == 1 or not _is_broken_connection(error):
            raise
        dead = _dead_ranks()
        if ranks.index() != min(set(range(ranks.count())) - set(dead)):
            raise SystemExit(1) from None
        raise RankDiedError(sentence(dead)) from None
    finally:
        _together.clear()


def sentence(dead: Sequence[int]) -> str:
    """What has happened, and what to do about it; of ranks on other machines nothing is known."""
    who = " and ".join(f"rank {rank}" for rank in dead)
    what = f"{who} died, which ended the others too" if dead else "another rank does not answer any more"
    return f"{what}: look above for its last words, and whether memory ran out; --resume goes on with the run"


def _is_broken_connection(error: RuntimeError) -> bool:
    # Gloo's errors have no type of their own, but name the file of its source that raised them.
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def _dead_ranks() -> list[int]:
    """The ranks of this machine whose processes are gone, which is a moment after their connections broke."""
    here, end = socket.gethostname(), time.monotonic() + PATIENCE
    while True:
        dead = [rank for rank, (host, process) in enumerate(_processes) if host == here and _is_gone(process)]
        if dead or time.monotonic() > end:
            return dead
        time.sleep(0.05)


def _is_gone(process: int) -> bool:
    """Whether a process has ended, even if nobody has asked for its exit code yet."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to somebody else, or the system has no /proc
        return False
    return state in ("Z", "X")


def _watch(find_dead: Callable[[], list[int]]) -> None:
    """In a thread, end this process where others are dead and it does not notice by itself."""

    def run() -> None:
        since = time.monotonic()
        while True:
            time.sleep(PERIOD)
            dead = find_dead()
            if not dead or not _together.is_set():
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                print(f"likewise: {sentence(dead)}", file=sys.stderr, flush=True)
                os._exit(1)

    threading.Thread(target=run, name="likewise-watch", daemon=True).start()
