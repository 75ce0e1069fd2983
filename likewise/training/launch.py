"""Devices, precision and ranks of a run, by Lightning Fabric; and what happens when a rank dies.

When a rank dies, the others end too, with one sentence that names it. Usually they notice because their connection to
it breaks. Before the ranks are connected, and under NCCL, a rank would wait for the others forever, so ranks that
Fabric started also watch each other's processes.
"""

import atexit
import gc
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
from likewise.guide import see
from likewise.recipe import Recipe, RecipeError

PERIOD = 1.0  # seconds between two checks of the other ranks' processes
PATIENCE = 10.0  # seconds that a rank has to notice by itself that another has died
FIRST_RANK = "LIKEWISE_FIRST_RANK"  # environment variable: process id of the first rank, for the ranks it starts

# Global, because a process belongs to one default process group of torch.distributed.
_processes: list[tuple[str, int]] = []  # host and process id by rank, once the ranks are connected
_together = threading.Event()  # set while this rank cannot go on without the others
_has_lost_a_rank = threading.Event()  # set once the connection to another rank has broken


class RankDiedError(ConnectionError):
    """A rank has died, and the others cannot continue without it."""


def launch(recipe: Recipe) -> Fabric:
    """Build the recipe's Fabric, start its ranks unless a launcher has, and exchange their process ids."""
    fabric = build_fabric(recipe)
    if FIRST_RANK in os.environ and not ranks.is_first():
        first = int(os.environ[FIRST_RANK])  # if it is dead, this process has another parent by now
        _watch(lambda: [0] if os.getppid() != first else [])
    fabric.launch()
    if ranks.count() > 1:
        processes: list[tuple[str, int]] = [("", 0)] * ranks.count()
        dist.all_gather_object(processes, (socket.gethostname(), os.getpid()))
        _processes[:] = processes
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """Leave the process group before the interpreter ends, or running gloo threads would abort it.

    If a rank has died, the group cannot be left, so the process is ended here, after its output has been flushed.
    """
    if _has_lost_a_rank.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    if dist.is_initialized():
        gc.collect()  # garbage, such as models of finished runs, may still hold the group and keep its threads running
        dist.destroy_process_group()


def build_fabric(recipe: Recipe) -> Fabric:
    """Build a Fabric with the recipe's devices and precision, or with the ranks that torchrun or SLURM launched."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # hide its banner
    # The gradient of a 1 × 1 convolution has other strides; copying it costs no measurable time.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    launched = ranks.launched()
    devices = launched.on_this_machine if launched else recipe.training.devices
    nodes = launched.world // devices if launched else 1
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
    """Fabric's strategy with our own launcher."""

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = _Launcher(self.cluster_environment, self.num_processes, self.num_nodes)


class _Launcher(_SubprocessScriptLauncher):
    """Starts the other ranks and watches their processes."""

    def _call_children_scripts(self) -> None:
        os.environ[FIRST_RANK] = str(os.getpid())
        super()._call_children_scripts()
        del os.environ[FIRST_RANK]  # only for the processes just started
        started: list[subprocess.Popen[bytes]] = self.procs
        _watch(lambda: [rank for rank, process in enumerate(started, 1) if process.poll()])
        # Fabric's own observer would kill every rank, this one included, without a message, even after the training.
        # It watches the processes in this list, and ends at once if the list is empty.
        self.procs = []


@contextmanager
def together() -> Iterator[None]:
    """Run a block in which ranks need each other. If one has died, one rank reports it and the others end silently."""
    _together.set()
    try:
        yield
    except RuntimeError as error:
        if ranks.count() == 1 or not _is_broken_connection(error):
            raise
        _has_lost_a_rank.set()
        dead = _dead_ranks()
        if ranks.index() != min(set(range(ranks.count())) - set(dead)):
            raise SystemExit(1) from None
        raise RankDiedError(sentence(dead)) from None
    finally:
        _together.clear()


def sentence(dead: Sequence[int]) -> str:
    """Say which ranks died, and what to do. `dead` is empty if the rank was on another machine."""
    who = " and ".join(f"rank {rank}" for rank in dead)
    what = f"{who} died, so the others ended too" if dead else "another rank no longer answers"
    advice = "look above for its error, and check whether memory ran out; --resume continues the run"
    return f"{what}: {advice} {see('rank')}"


def _is_broken_connection(error: RuntimeError) -> bool:
    # Gloo's errors are plain RuntimeErrors, but their message names the source file.
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def _dead_ranks() -> list[int]:
    """Return the ranks of this machine whose processes have ended, which happens just after their connections break."""
    here, end = socket.gethostname(), time.monotonic() + PATIENCE
    while True:
        dead = [rank for rank, (host, process) in enumerate(_processes) if host == here and _is_gone(process)]
        if dead or time.monotonic() > end:
            return dead
        time.sleep(0.05)


def _is_gone(process: int) -> bool:
    """Return whether a process has ended, also if it is still a zombie."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return True
    except OSError:  # another user's process, or a system without /proc
        return False
    return state in ("Z", "X")


def _watch(find_dead: Callable[[], list[int]]) -> None:
    """Start a thread that ends this process if other ranks have died and it does not notice by itself."""

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
