"""Define batch norm that computes its statistics over parts of the batch, as if each part were on its own device.

MoCo (He et al., 2020) shuffles its keys across devices, so that a query and its key do not share batch statistics, by
which the encoder could recognize the pair. On one device shuffling has no effect, because the statistics of a batch do
not depend on its order. Statistics of parts of the batch do.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

SMALL = 2**17  # numbers in a batch; up to here, on a CPU, copying the batch is faster than one call per group


class _SplitBatchNorm(_BatchNorm):
    """In training, normalise `splits` groups of consecutive rows, each by its own mean and variance.

    If the batch cannot be divided evenly, the groups are as even as possible (`torch.tensor_split`). The running mean
    and variance are updated once per batch, by `momentum`, with the averages of the groups' means and unbiased
    variances. All groups have the same weight, so the result equals the average of the buffers of as many devices. In
    evaluation this is torch's batch norm. Parameters and buffers have batch norm's names.
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

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        if not self.training or self.splits == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        n = len(input)
        if n < self.splits or n // self.splits * input[0, 0].numel() < 2:
            got = f"shape {tuple(input.shape)}"
            raise ValueError(f"{self.splits} groups need more than one value per channel each, got a batch of {got}")
        shape = (2, self.splits, self.num_features)
        means, variances = torch.zeros(shape, dtype=self._stored_dtype(input), device=input.device)
        if input.device.type == "cpu" and input.numel() > SMALL and not torch.compiler.is_compiling():
            output = _group_by_group(input, self.weight, self.bias, means, variances, self.eps)
        else:
            output = _groups_as_channels(input, self.weight, self.bias, means, variances, self.eps)
        self._update_running(means.mean(dim=0), variances.mean(dim=0))
        return output

    def _stored_dtype(self, batch: Tensor) -> torch.dtype:
        """Return the dtype of the statistics: that of the buffers or weights, if there are any."""
        stored = self.running_mean if self.running_mean is not None else self.weight
        return batch.dtype if stored is None else stored.dtype

    @torch.no_grad()
    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        # Without a momentum the buffers are the mean over all batches so far, as in torch.
        step = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, step)
        self.running_var.lerp_(variance, step)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, splits={self.splits}"  # type: ignore[no-untyped-call]


def _groups_as_channels(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, means: Tensor, variances: Tensor, eps: float
) -> Tensor:
    """Normalise all groups in one call, in which every group has its own channels.

    `means` and `variances` (splits, c) are filled with the groups' statistics. The batch is copied before and after
    the call. That is cheap on an accelerator, where the number of kernels matters, and for a small batch on a CPU.
    """
    splits = len(means)
    if longer_groups := len(batch) % splits:  # as in tensor_split, the first groups have one row more than the others
        first = longer_groups * (len(batch) // splits + 1)
        parts = [
            (batch[:first], means[:longer_groups], variances[:longer_groups]),
            (batch[first:], means[longer_groups:], variances[longer_groups:]),
        ]
        return torch.cat([_groups_as_channels(part, weight, bias, mean, var, eps) for part, mean, var in parts])
    # Channels that come last in memory stay last, because changing the order would slow down the next convolution.
    channels_last = batch.movedim(1, -1)
    is_channels_last = channels_last.is_contiguous()
    rows = channels_last.flatten(0, -2) if is_channels_last else batch  # (n · h · w, c) or (n, c, h, w)
    grouped = rows.reshape(splits, -1, *rows.shape[1:]).transpose(0, 1)  # (n / splits, splits, c, …)
    weights, biases = (None if tensor is None else tensor.repeat(splits) for tensor in (weight, bias))
    # With momentum 1 the running statistics of a group become its mean and unbiased variance.
    normalised = functional.batch_norm(
        grouped.flatten(1, 2), means.view(-1), variances.view(-1), weights, biases, True, 1.0, eps
    )
    rows = normalised.view(grouped.shape).transpose(0, 1).flatten(0, 1)
    return rows.view(channels_last.shape).movedim(-1, 1) if is_channels_last else rows


def _group_by_group(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, means: Tensor, variances: Tensor, eps: float
) -> Tensor:
    """Do the same as `_groups_as_channels` without copies: one call per group, which writes into the output."""
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
        centres, scales = torch.empty_like(means), torch.empty_like(means)  # saved for backward
        groups = zip(batch.tensor_split(splits), output.tensor_split(splits), strict=True)
        for i, (group, output_rows) in enumerate(groups):
            outputs = {"out": output_rows, "save_mean": centres[i], "save_invstd": scales[i]}
            torch.ops.aten.native_batch_norm.out(group, weight, bias, means[i], variances[i], True, 1.0, eps, **outputs)
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
    """Split every batch norm in `module`, itself included, into `splits` groups, in place, and return the module.

    If it was split before, the number changes; a module without batch norm stays the same.
    """
    check_splits(splits)
    norms = [(name, norm) for name, norm in module.named_modules() if isinstance(norm, _BatchNorm)]
    for name, norm in norms:
        if type(norm) not in SPLIT and not isinstance(norm, _SplitBatchNorm):
            got = f"{type(norm).__name__} at {name!r}"
            raise ValueError(f"only torch's BatchNorm1d, BatchNorm2d and BatchNorm3d can be split, got {got}")
    for _, norm in norms:
        # Change the class and not the object, so that hooks and other references to it stay valid.
        norm.__class__ = SPLIT.get(type(norm), type(norm))
        norm.splits = splits  # type: ignore[assignment]
    return module


def has_batch_norm(module: nn.Module) -> bool:
    """Return whether any part of `module`, in its present mode, uses batch statistics, which link rows of a batch."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    return any(part.training or part.running_mean is None for part in norms)


def check_splits(splits: int) -> None:
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splits must be a whole number >= 1, got {splits!r}")
