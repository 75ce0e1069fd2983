"""Optimizers by name, with the parameter groups that contrastive learning needs.

Weight decay is useful for weight matrices, but not for biases, gains of norms, positions and temperatures. Those are in
a separate group, without weight decay and, with LARS, without adaptation.
"""

import difflib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from likewise.losses.inputs import check_number

NAMES = ("sgd", "adam", "adamw", "lars")
# Parameters that are not weight matrices, although they have, or may have, more than one axis.
WITHOUT_DECAY = ("cls_token", "pos_embed", "log_temperature")


def build(
    name: str, model: nn.Module, *, lr: float, momentum: float = 0.9, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Build the optimizer `name` for the trainable parameters of `model`.

    `name` is sgd (momentum without Nesterov), adam (weight decay in the gradient), adamw (decoupled weight decay) or
    lars. For adam and adamw, `momentum` is β₁; β₂ is 0.999. Parameters on a CPU use torch's fused kernels, which take a
    third of the time and give the same bits in every run.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(str(name).lower(), NAMES, n=1, cutoff=0.5)
        nearest = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"optimizer must be one of {', '.join(NAMES)}; got {name!r}{nearest}")
    check_rates(lr, momentum, weight_decay)
    groups = parameter_groups(model, weight_decay)
    if name == "lars":
        for group in groups:
            group["adapt"] = group["decays"]
        return LARS(groups, lr=lr, momentum=momentum)
    optimizer: Optimizer
    if name == "sgd":
        optimizer = SGD(groups, lr=lr, momentum=momentum)
    else:
        adam = Adam if name == "adam" else AdamW
        optimizer = adam(groups, lr=lr, betas=(momentum, 0.999))
    optimizer.register_step_pre_hook(_fuse_on_cpu)
    return optimizer


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the trainable parameters in two groups, with and without weight decay; empty groups are left out.

    Parameters with at most one axis (biases, norms, temperatures, the bias of the sigmoid loss) and those with a name
    in `WITHOUT_DECAY` do not decay.
    """
    decaying: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            last = name.rpartition(".")[2]
            exempt = parameter.ndim <= 1 or any(part in last for part in WITHOUT_DECAY)
            (others if exempt else decaying).append(parameter)
    if not decaying and not others:
        raise ValueError(f"model must have a trainable parameter, got none in {type(model).__name__}")
    groups = [
        {"params": decaying, "weight_decay": weight_decay, "decays": True},
        {"params": others, "weight_decay": 0.0, "decays": False},
    ]
    return [group for group in groups if group["params"]]


class LARS(Optimizer):
    """SGD in which the step of every weight matrix is proportional to the norm of that matrix.

    You et al., 2017, as SimCLR uses it (Chen et al., 2020). For each parameter w with gradient g:

        u = g + weight_decay · w
        ratio = trust · ‖w‖ / ‖u‖      (1 where a norm is 0, and in groups with adapt=False)
        v = momentum · v + lr · ratio · u
        w = w − v

    v starts at 0. The learning rate is part of v, so a later change of the rate does not rescale earlier steps. You et
    al. divide by ‖g‖ + weight_decay · ‖w‖ instead of ‖u‖.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        adapt: bool = True,
    ) -> None:
        check_rates(lr, momentum, weight_decay)
        check_number("trust", trust)
        if not 0 < trust < math.inf:
            raise ValueError(f"trust must be positive and finite, got {trust:g}")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": adapt}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            # The foreach kernels need all tensors to share one dtype and device.
            by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_kind[parameter.device, parameter.dtype].append(parameter)
            for parameters in by_kind.values():
                self._step_together(parameters, group)
        return loss

    def _step_together(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        velocities = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        updates = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if group["weight_decay"]:
            updates = list(torch._foreach_add(updates, parameters, alpha=group["weight_decay"]))
        torch._foreach_mul_(velocities, group["momentum"])
        if group["adapt"]:
            weight, update = _norms(parameters), _norms(updates)  # (p,), one a parameter
            ratio = torch.where((weight > 0) & (update > 0), group["trust"] * weight / update, 1.0)
            torch._foreach_addcmul_(velocities, updates, list((group["lr"] * ratio).unbind()))
        else:
            torch._foreach_add_(velocities, updates, alpha=group["lr"])
        torch._foreach_sub_(parameters, velocities)


def check_rates(lr: float, momentum: float, weight_decay: float) -> None:
    for name, number in (("lr", lr), ("weight_decay", weight_decay)):
        check_number(name, number)
        if not 0 <= number < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {number:g}")
    check_number("momentum", momentum)
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1), got {momentum:g}")


def _norms(tensors: list[Tensor]) -> Tensor:
    """Return the norms (p,) of p tensors, in float32 for half-precision tensors, whose norm could overflow."""
    narrow = tensors[0].dtype in (torch.float16, torch.bfloat16)
    return torch.stack(list(torch._foreach_norm([t.float() for t in tensors] if narrow else tensors)))


def _fuse_on_cpu(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before each step, choose the fused kernels for parameters on a CPU, and make the memory layouts agree.

    This is decided at every step, because parameters may move, and state that was saved on a CPU may be loaded on an
    accelerator. The fused kernels treat parameter, gradient and state as flat memory and ignore strides (torch 2.13),
    so a channels-last weight with a contiguous momentum would silently be updated wrongly. So gradients and state are
    given the strides of their parameter.
    """
    for group in optimizer.param_groups:
        group["fused"] = all(map(_can_be_fused, group["params"])) or None  # None lets torch choose
        if not group["fused"]:
            continue
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.stride() != parameter.stride():
                parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
            for name, value in optimizer.state.get(parameter, {}).items():
                same_shape = isinstance(value, Tensor) and value.shape == parameter.shape
                if same_shape and value.stride() != parameter.stride():
                    optimizer.state[parameter][name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _can_be_fused(parameter: Tensor) -> bool:
    without_gaps = parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)
    return parameter.device.type == "cpu" and parameter.is_floating_point() and without_gaps
