"""Gather the rows of all ranks into one batch, with their gradient.

The rule behind everything here: the gradient of every parameter with r ranks of n/r items equals the
gradient in one process with n items. A rank's loss is a mean over its own queries (or over all of them),
and the gradients of the ranks are averaged. So the gradients that the losses of all ranks have for this
rank's rows must be summed in backward.
"""

import os
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Launched(NamedTuple):
    """What the launcher says about this process, known before the process group is initialised."""

    rank: int
    world: int
    on_this_machine: int


def launched() -> Launched | None:
    """Return what torchrun or SLURM's srun says about this process, or None if neither has started it."""
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        world = int(env["WORLD_SIZE"])
        return Launched(int(env["RANK"]), world, int(env.get("LOCAL_WORLD_SIZE", world)))
    # An interactive shell within a SLURM allocation has these variables too, although it is not a rank.
    if "SLURM_PROCID" in env and "SLURM_NTASKS" in env and env.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        world = int(env["SLURM_NTASKS"])
        return Launched(int(env["SLURM_PROCID"]), world, world // int(env.get("SLURM_NNODES", 1)))
    return None


def is_first() -> bool:
    """Return whether this process is, or will be, rank 0."""
    process = launched()
    # Processes that Lightning Fabric starts by itself have only LOCAL_RANK.
    return (process.rank if process else int(os.environ.get("LOCAL_RANK", 0))) == 0


def device() -> torch.device:
    """Return the device of this process, without a process group: the ranks of a machine take its devices in turn."""
    accelerator, devices = torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    if accelerator is None or not devices:
        return torch.device("cpu")
    process = launched()
    if process is None:
        return accelerator
    local_rank = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or process.rank
    return torch.device(accelerator.type, int(local_rank) % devices)


def count() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def index() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather(rows: Tensor) -> Tensor:
    """Return the rows (n, ...) of all ranks in rank order, (r · n, ...); every rank must have equally many."""
    if count() == 1:
        return rows
    return _Gather.apply(rows) if rows.requires_grad else _all_gather(rows)  # type: ignore[no-untyped-call]


def as_wide(rows: Tensor) -> Tensor:
    """Return tokens (n, t) padded with 0 to the largest t of all ranks; rows of floats are returned as they are."""
    if count() == 1 or rows.is_floating_point():
        return rows
    widest = torch.tensor(rows.shape[1], device=rows.device)
    dist.all_reduce(widest, dist.ReduceOp.MAX)
    return torch.nn.functional.pad(rows, (0, int(widest) - rows.shape[1]))


def mean(number: Tensor) -> Tensor:
    """Return the mean over ranks of a tensor, without gradient."""
    if count() == 1:
        return number
    total = number.detach().clone()
    dist.all_reduce(total)
    return total / count()


def any_of(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is set on any rank; all ranks must call this."""
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
