"""Validate the arguments of all losses. A wrong argument raises a `ValueError` of one sentence.

The checks look only at shapes, dtypes and numbers on the host. A temperature that lives on an
accelerator is not read back, so that a training step never waits for the device.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Literal, ParamSpec

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
Arguments = ParamSpec("Arguments")

REDUCTIONS = ("mean", "sum", "none")
WHOLE_NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_rows(**rows: Tensor) -> None:
    """Check that all are floating-point tensors (n, d) with n, d >= 1, and have the shape of the first."""
    first = next(iter(rows))
    for name, tensor in rows.items():
        check_floating(name, tensor)
        if tensor.ndim != 2 or 0 in tensor.shape:
            raise ValueError(f"{name} must be of shape (n, d) with n, d >= 1, got {_shape(tensor)}")
        if tensor.shape != rows[first].shape:
            raise ValueError(f"{name} must be of shape {_shape(rows[first])} like {first}, got {_shape(tensor)}")


def check_negatives(negatives: Tensor, query: Tensor, *, per_query: bool = True) -> None:
    """Check for a floating-point (k, d), shared by all queries, or, if `per_query`, (m, k, d) where m divides n."""
    check_floating("negatives", negatives)
    n, d = query.shape
    shared = negatives.ndim == 2 and negatives.shape[1] == d
    apart = per_query and negatives.ndim == 3 and negatives.shape[2] == d and negatives.shape[0] > 0
    if not shared and not (apart and n % negatives.shape[0] == 0):
        expected = f"(k, {d}) or (m, k, {d}) with m a divisor of {n}" if per_query else f"(k, {d})"
        raise ValueError(f"negatives must be of shape {expected}, got {_shape(negatives)}")


def check_floating(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {got}")


def check_temperature(temperature: float | Tensor) -> None:
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1 or not temperature.is_floating_point():
            got = f"{_shape(temperature)} of {temperature.dtype}"
            raise ValueError(f"temperature must be one floating-point number, got shape {got}")
        if temperature.device.type != "cpu":
            return
        temperature = temperature.item()
    check_number("temperature", temperature)
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature:g}")


def check_number(name: str, number: float) -> None:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise ValueError(f"{name} must be a number, got {number!r}")
    try:
        float(number)
    except OverflowError:
        raise ValueError(f"{name} must be a number that fits a float, got a larger one") from None


def as_scalar(number: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    """Return a checked number as a Python float, or a tensor as a 0-d tensor of `dtype`, so it is rounded only once."""
    return number.to(dtype).reshape(()) if isinstance(number, Tensor) else float(number)


def check_margin(margin: float) -> None:
    check_number("margin", margin)
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be finite and not negative, got {margin:g}")


def check_bias(bias: float | Tensor) -> None:
    if isinstance(bias, Tensor):
        if bias.numel() != 1 or not bias.is_floating_point():
            raise ValueError(f"bias must be one floating-point number, got shape {_shape(bias)} of {bias.dtype}")
        return
    check_number("bias", bias)
    if not math.isfinite(bias):
        raise ValueError(f"bias must be finite, got {bias:g}")


def check_items(items: int) -> None:
    if isinstance(items, bool) or not isinstance(items, int) or items < 1:
        raise ValueError(f"items must be a whole number >= 1, got {items!r}")


def check_log_partition(log_partition: float | Tensor) -> None:
    if isinstance(log_partition, Tensor):
        if log_partition.numel() != 1:
            raise ValueError(f"log_partition must be one number, got shape {_shape(log_partition)}")
        return
    check_number("log_partition", log_partition)
    if not math.isfinite(log_partition):
        raise ValueError(f"log_partition must be finite, got {log_partition:g}")


def check_noise(items: int | None, noise_log_prob: float | tuple[Tensor, Tensor] | None, n: int, k: int) -> None:
    """Check that either the number of items or the log-probabilities of the noise are given."""
    if (items is None) == (noise_log_prob is None):
        raise ValueError(f"one of items and noise_log_prob must be given, got {'neither' if items is None else 'both'}")
    if items is not None:
        check_items(items)
    elif isinstance(noise_log_prob, tuple):
        for noise in noise_log_prob:
            check_floating("noise_log_prob", noise)
        shapes = tuple(tuple(noise.shape) for noise in noise_log_prob)
        if shapes != ((n,), (k,)):
            raise ValueError(f"noise_log_prob must be a pair of shapes ({n},) and ({k},), got {shapes}")
    elif noise_log_prob is not None:
        check_number("noise_log_prob", noise_log_prob)


def check_proximal(proximal: float) -> None:
    check_number("proximal", proximal)
    if not 0 <= proximal < math.inf:
        raise ValueError(f"proximal must be finite and not negative, got {proximal:g}")


def check_labels(labels: Tensor, n: int) -> None:
    if not isinstance(labels, Tensor) or labels.dtype not in WHOLE_NUMBERS or labels.shape != (n,):
        got = f"{_shape(labels)} of {labels.dtype}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be an integer tensor of shape ({n},), got {got}")


def check_same(same: Tensor, n: int) -> None:
    if not isinstance(same, Tensor) or same.dtype is not torch.bool or same.shape != (n,):
        got = f"{_shape(same)} of {same.dtype}" if isinstance(same, Tensor) else type(same).__name__
        raise ValueError(f"same must be a bool tensor of shape ({n},), got {got}")


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")


def check_ids(name: str, ids: Tensor, shape: tuple[int, ...]) -> None:
    """Check for integer ids of `shape`, or of `shape` with one more axis for several columns of ids."""
    if not isinstance(ids, Tensor) or ids.dtype not in WHOLE_NUMBERS:
        got = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(f"{name} must be an integer tensor, got {got}")
    if ids.shape[: len(shape)] != shape or ids.ndim > len(shape) + 1 or 0 in ids.shape[len(shape) :]:
        expected = ", ".join(map(str, shape))
        raise ValueError(f"{name} must be of shape ({expected},) or ({expected}, g), got {_shape(ids)}")


def check_id_pair(
    query_ids: Tensor | None, key_ids: Tensor | None, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
) -> None:
    """Check for no ids at all, or ids of these shapes, either both with one more axis of g columns or both without."""
    if query_ids is None and key_ids is None:
        return
    if query_ids is None or key_ids is None:
        missing = "query_ids" if query_ids is None else "key_ids"
        raise ValueError(f"query_ids and key_ids must be given together, got no {missing}")
    check_ids("query_ids", query_ids, query_shape)
    check_ids("key_ids", key_ids, key_shape)
    if query_ids.shape[len(query_shape) :] != key_ids.shape[len(key_shape) :]:
        got = f"{_shape(query_ids)} and {_shape(key_ids)}"
        raise ValueError(f"query_ids and key_ids must have the same columns, got {got}")


def check_one_device(**tensors: Tensor | None) -> None:
    """Check that all tensors are on the device of the first one; other values are ignored here."""
    first = next(iter(tensors))
    device = tensors[first].device  # type: ignore[union-attr]
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(f"{name} must be on {device} like {first}, got {tensor.device}")


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 if any input has it, otherwise float32, the narrowest dtype in which a loss may sum."""
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def reduce(losses: Tensor, reduction: Reduction, valid: Tensor | None = None) -> Tensor:
    """Reduce (n,) losses; rows that are not `valid` count 0 and are left out of the mean."""
    if valid is not None:
        losses = losses.where(valid, 0)
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    return losses.mean() if valid is None else losses.sum() / valid.sum().clamp(min=1)


def full_precision(loss: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Run `loss` with autocast off: a similarity rounded to bfloat16's 8 bits and divided by 0.07 is noise."""

    @functools.wraps(loss)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        device = next((value.device.type for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), "cpu")
        with autocast_off(device):
            return loss(*args, **kwargs)

    return wrapped


def autocast_off(device: str) -> AbstractContextManager[object]:
    """Turn autocast off for a block, if it is on for this type of device."""
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
