"""The temperature of a loss module: a fixed number, or a learned parameter."""

import math

import torch
from torch import Tensor, nn

from likewise.losses.inputs import check_temperature

MIN_TEMPERATURE = 0.01


class Tempered(nn.Module):
    """Base class of all loss modules with a temperature.

    A learnable temperature is stored as its logarithm, so that it stays positive. It is clamped to 0.01
    or above whenever it is used, which is CLIP's limit of 100 on the logit scale.
    """

    def __init__(self, temperature: float, *, learnable: bool) -> None:
        super().__init__()
        check_temperature(temperature)
        if learnable and temperature < MIN_TEMPERATURE:
            raise ValueError(f"a learnable temperature must start at {MIN_TEMPERATURE:g} or above, got {temperature:g}")
        self.fixed_temperature = None if learnable else float(temperature)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature))) if learnable else None

    @property
    def temperature(self) -> float | Tensor:
        """The fixed number, or the learned temperature as a tensor with gradient."""
        if self.log_temperature is None:
            assert self.fixed_temperature is not None
            return self.fixed_temperature
        with torch.no_grad():
            self.log_temperature.clamp_(min=math.log(MIN_TEMPERATURE))
        return self.log_temperature.exp()

    def extra_repr(self) -> str:
        if self.log_temperature is None:
            return f"temperature={self.fixed_temperature}"
        return f"temperature={self.log_temperature.exp().item():g}, learnable=True"
