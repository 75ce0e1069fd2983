"""The rows of all ranks as one batch, their gradient included.

The rule that everything here serves: the gradient of every parameter with r ranks of n/r items equals
that of one process with n items. A rank's loss is a mean over its own queries (or over all of them),
and the gradients of ranks are averaged; so what other ranks' losses say of this rank's rows has to
come home summed.
"""

import os
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Launched(NamedTuple):
    """What a launcher says of this process, before ranks have met."""

    rank: int
    world: int
    on_this_machine: int


def launched() -> Launched | None:
    """Where torchrun or SLURM's srun started this process; None where nobody did."""
    here = os.environ
    if "RANK" in here and "WORLD_SIZE" in here:
        world = int(here["WORLD_SIZE"])
        return Launched(int(here["RANK"]), world, int(here.get("LOCAL_WORLD_SIZE", world)))
    # In a shell inside an allocation SLURM's variables are there too, but nobody started ranks.
    if "SLURM_PROCID" in here and "SLURM_NTASKS" in here and here.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        world = int(here["SLURM_NTASKS"])
        return Launched(int(here["SLURM_PROCID"]), world, world // int(here.get("SLURM_NNODES", 1)))
    return None


def is_first() -> bool:
    """Whether this process is, or will be, rank 0; Fabric's own launcher tells its children by LOCAL_RANK."""
    found = launched()
    return (found.rank if found else int(os.environ.get("LOCAL_RANK", 0))) == 0


def device() -> torch.device:
    """Where this process computes before ranks have met: a machine's ranks take its accelerators in turn."""
    found, there = torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    if found is None or not there:
        return torch.device("cpu")
    rank = launched()
    if rank is None:
        return found
    local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or rank.rank
    return torch.device(found.type, int(local) % there)


def count() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def index() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather(rows: Tensor) -> Tensor:
    """Rows (n, ...) of every rank, in rank order (r · n, ...); every rank brings equally many."""
    if count() == 1:
        return rows
    return _Gather.apply(rows) if rows.requires_grad else _all_gather(rows)  # type: ignore[no-untyped-call]


def mean(number: Tensor) -> Tensor:
    """The mean over ranks of a number that carries no gradient."""
    if count() == 1:
        return number
    total = number.detach().clone()
    dist.all_reduce(total)
    return total / count()


def any_of(flag: bool, device: torch.device) -> bool:
    """Whether any rank says yes; all ranks must ask."""
    if count() == 1:
        return flag
    raised = torch.tensor(float(flag), device=device)
    dist.all_reduce(raised)
    return bool(raised.item())


def _all_gather(rows: Tensor) -> Tensor:
    rows = rows.contiguous()
    gathered = [torch.empty_like(rows) for _ in range(count())]
    dist.all_gather(gathered, rows)
    return torch.cat(gathered)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, rows: Tensor) -> Tensor:
        return _all_gather(rows)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total.chunk(count())[index()]
