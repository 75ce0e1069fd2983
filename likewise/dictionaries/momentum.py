"""The momentum copy of an encoder, which produces keys that stay comparable from step to step.

He et al., 2020 (MoCo): `copy ← m · copy + (1 − m) · encoder` after every step, m close to 1.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from likewise.dictionaries.found import check_momentum


class MomentumEncoder(nn.Module):
    """A copy of `encoder` that follows it slowly and never gets a gradient.

    Only parameters follow. The copy has its own buffers (the running statistics of batch norm): it
    normalises with the statistics of the batches that it encodes, as a network in training does, and keeps
    running statistics of them. `momentum` is the share of the old parameters that is kept: with 0.999 the
    copy hardly moves.
    """

    def __init__(self, encoder: nn.Module, momentum: float = 0.999) -> None:
        super().__init__()
        check_momentum(momentum)
        self.momentum = momentum
        self.copy = copy.deepcopy(encoder).requires_grad_(False)
        self._followed = [encoder]  # in a list, so that it does not count as part of this module

    @torch.no_grad()
    def forward(self, *inputs: Any) -> Tensor:
        return self.copy(*inputs)  # type: ignore[no-any-return]

    @torch.no_grad()
    def follow(self, momentum: float | None = None) -> None:
        """Move all parameters one step towards the encoder's; `momentum` overrides the default if it is scheduled."""
        momentum = self.momentum if momentum is None else momentum
        check_momentum(momentum)
        own, followed = tuple(self.copy.parameters()), tuple(self._followed[0].parameters())
        torch._foreach_lerp_(own, followed, 1 - momentum)

    def extra_repr(self) -> str:
        return f"momentum={self.momentum:g}"
