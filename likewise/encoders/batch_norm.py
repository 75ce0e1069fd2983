"""Batch norm whose statistics are those of parts of the batch, as if each part were on a device of its own.

MoCo (He et al., 2020) shuffles its keys across devices, so that a query and its key do not
share batch statistics and the encoder cannot find the pair by them. On one device a shuffle
changes nothing: the statistics of a batch do not depend on its order. Split statistics do.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

SMALL = 2**17  # numbers in a batch up to which, on a CPU, copying it costs less than a call for every group


class _SplitBatchNorm(_BatchNorm):
    """In training, `splits` groups of consecutive rows, each normalised by its own mean and variance.

    A batch that cannot be divided evenly makes groups as even as possible (`torch.tensor_split`).
    The running mean and variance move once a batch, by `momentum`, towards the mean over the
    groups of their means and of their unbiased variances, every group counting the same: what
    the mean over as many devices' buffers would be. In evaluation it is torch's batch norm.
    Parameters and buffers have batch norm's names.
    """

    splits: int

    def __init__(
        self,
        features: int,
        splits: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        check_splits(splits)
        super().__init__(features, eps, momentum, affine, track_running_stats)
        self.splits = splits

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # batch norm's own name for it
        if not self.training or self.splits == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        n = len(input)
        if n < self.splits or n // self.splits * input[0, 0].numel() < 2:
            got = f"shape {tuple(input.shape)}"
            raise ValueError(f"{self.splits} groups need more than one value a channel each, got a batch of {got}")
        means, variances = torch.zeros(2, self.splits, self.num_features, dtype=self._dtype(input), device=input.device)
        if input.device.type == "cpu" and input.numel() > SMALL and not torch.compiler.is_compiling():
            output = _group_by_group(input, self.weight, self.bias, means, variances, self.eps)
        else:
            output = _groups_as_channels(input, self.weight, self.bias, means, variances, self.eps)
        self._follow(means.mean(dim=0), variances.mean(dim=0))
        return output

    def _dtype(self, batch: Tensor) -> torch.dtype:
        """Statistics are as wide as the buffers, where there are any."""
        kept = self.running_mean if self.running_mean is not None else self.weight
        return batch.dtype if kept is None else kept.dtype

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        # Without a momentum the buffers are the mean over all batches so far, as in torch's.
        step = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, step)
        self.running_var.lerp_(variance, step)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, splits={self.splits}"  # type: ignore[no-untyped-call]


def _groups_as_channels(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, means: Tensor, variances: Tensor, eps: float
) -> Tensor:
    """Normalise all groups in one call, in which every group has channels of its own.

    `means` and `variances` (splits, c) are filled with the groups' statistics. The batch is copied before the call and
    after it, which is cheap on an accelerator, where the number of kernels counts, and for a small batch on a CPU.
    """
    splits = len(means)
    if longer := len(batch) % splits:  # the first groups have one row more than the others
        first = longer * (len(batch) // splits + 1)
        parts = [
            (batch[:first], means[:longer], variances[:longer]),
            (batch[first:], means[longer:], variances[longer:]),
        ]
        return torch.cat([_groups_as_channels(part, weight, bias, mean, var, eps) for part, mean, var in parts])
    # Where channels come last in memory, they stay last, because changing the order would slow down convolutions.
    last = batch.movedim(1, -1)
    is_last = last.is_contiguous()
    rows = last.flatten(0, -2) if is_last else batch  # (n · h · w, c) or (n, c, h, w)
    grouped = rows.reshape(splits, -1, *rows.shape[1:]).transpose(0, 1)  # (n / splits, splits, c, …)
    weights, biases = (None if each is None else each.repeat(splits) for each in (weight, bias))
    # With momentum 1 the running statistics of a group are its own mean and unbiased variance.
    wide = functional.batch_norm(
        grouped.flatten(1, 2), means.view(-1), variances.view(-1), weights, biases, True, 1.0, eps
    )
    rows = wide.view(grouped.shape).transpose(0, 1).flatten(0, 1)
    return rows.view(last.shape).movedim(-1, 1) if is_last else rows


def _group_by_group(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, means: Tensor, variances: Tensor, eps: float
) -> Tensor:
    """`_groups_as_channels` without copies: one call for each group, which writes where its rows belong."""
    output: Tensor = _SplitNorm.apply(batch, weight, bias, means, variances, eps)  # type: ignore[no-untyped-call]
    return output


class _SplitNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        batch: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        means: Tensor,
        variances: Tensor,
        eps: float,
    ) -> Tensor:
        splits = len(means)
        output = torch.empty_like(batch)
        centres, scales = torch.empty_like(means), torch.empty_like(means)  # kept for backward
        groups = zip(batch.tensor_split(splits), output.tensor_split(splits), strict=True)
        for i, (group, place) in enumerate(groups):
            kept = {"out": place, "save_mean": centres[i], "save_invstd": scales[i]}
            torch.ops.aten.native_batch_norm.out(group, weight, bias, means[i], variances[i], True, 1.0, eps, **kept)
        ctx.save_for_backward(batch, weight, centres, scales)
        ctx.eps = eps
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        batch, weight, centres, scales = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        groups = (batch.tensor_split(len(centres)), d_output.tensor_split(len(centres)), centres, scales)
        d_groups = [
            torch.ops.aten.native_batch_norm_backward(
                d_group, group, weight, None, None, centre, scale, True, ctx.eps, wanted
            )
            for group, d_group, centre, scale in zip(*groups, strict=True)
        ]
        d_batches, d_weights, d_biases = zip(*d_groups, strict=True)
        return (
            torch.cat(d_batches) if wanted[0] else None,
            torch.stack(d_weights).sum(dim=0) if wanted[1] else None,
            torch.stack(d_biases).sum(dim=0) if wanted[2] else None,
            None,
            None,
            None,
        )


class SplitBatchNorm1d(_SplitBatchNorm, nn.BatchNorm1d):
    """Split batch norm of (n, d) or (n, d, t)."""


class SplitBatchNorm2d(_SplitBatchNorm, nn.BatchNorm2d):
    """Split batch norm of (n, c, h, w)."""


class SplitBatchNorm3d(_SplitBatchNorm, nn.BatchNorm3d):
    """Split batch norm of (n, c, t, h, w)."""


SPLIT: dict[type[nn.Module], type[_SplitBatchNorm]] = {
    nn.BatchNorm1d: SplitBatchNorm1d,
    nn.BatchNorm2d: SplitBatchNorm2d,
    nn.BatchNorm3d: SplitBatchNorm3d,
}


def split_batch_norm(module: nn.Module, splits: int) -> nn.Module:
    """Give every batch norm in `module`, itself included, `splits` groups; in place, and returned.

    A module split before takes the new number; one without batch norm stays as it is.
    """
    check_splits(splits)
    norms = [(name, norm) for name, norm in module.named_modules() if isinstance(norm, _BatchNorm)]
    for name, norm in norms:
        if type(norm) not in SPLIT and not isinstance(norm, _SplitBatchNorm):
            got = f"{type(norm).__name__} at {name!r}"
            raise ValueError(f"only torch's BatchNorm1d, BatchNorm2d and BatchNorm3d can be split, got {got}")
    for _, norm in norms:
        # The object stays the same one, and with it its hooks, its name, and whoever else holds it.
        norm.__class__ = SPLIT.get(type(norm), type(norm))
        norm.splits = splits  # type: ignore[assignment]
    return module


def has_batch_norm(module: nn.Module) -> bool:
    """Whether rows of one batch see each other through batch statistics anywhere in `module`, in its present mode."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    return any(part.training or part.running_mean is None for part in norms)


def check_splits(splits: int) -> None:
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splits must be a whole number >= 1, got {splits!r}")
