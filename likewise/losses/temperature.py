"""A temperature that a module owns: a number, or a parameter that is learned."""

import math

import torch
from torch import Tensor, nn

from likewise.losses.inputs import check_temperature

MIN_TEMPERATURE = 0.01


class Tempered(nn.Module):
    """The part that all modules with a temperature share.

    A learnable temperature is kept as its logarithm, so that it stays positive, and is held at 0.01 or
    above after each step: what the optimizer left below is moved back before the temperature is next
    used. That is CLIP's limit of 100 on the logit scale.
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
        """The number, or the learned one as a tensor with gradient."""
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
