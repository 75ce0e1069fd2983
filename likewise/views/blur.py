"""Gaussian blur with a width of its own for every image.

A kernel of about a tenth of the view's side, σ drawn for each row, edges reflected without
repeating the last pixel, as in torchvision. It is linear and separable, a matrix B (size, size) on
both sides, B X Bᵀ, and so it multiplies into the matrices that crop and resize. Of 224 × 224 most
of B is zeros, but leaving them out by tiles was measured to gain nothing on a CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.crops import chance, uniform


@dataclass(frozen=True)
class Blur:
    """With probability `p`, a Gaussian of σ uniform in `sigma` (pixels of the view), as in SimCLR and MoCo v2.

    Weights are e^{−k²/2σ²} for |k| <= `radius`, scaled to sum to 1.
    """

    radius: int
    sigma: tuple[float, float] = (0.1, 2.0)
    p: float = 0.5

    def draw(self, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        sigma = uniform(n, low=self.sigma[0], high=self.sigma[1], rng=rng)
        return {"sigma": sigma.where(chance(n, self.p, rng), 0)}  # 0: as it is

    def kernels(self, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Which rows are blurred (k,), and their kernels (k, 2·radius + 1) in float32, both on the CPU."""
        rows = draws["sigma"].nonzero().squeeze(1)
        distance = torch.arange(-self.radius, self.radius + 1, dtype=torch.float64) / draws["sigma"][rows, None]
        kernels = (distance**2 / -2).softmax(1)
        # Below a float's last digit, and products of two would be denormal, which take a CPU ten times as long.
        return rows, kernels.where(kernels > 1e-10, 0).float()


def radius_for(size: int) -> int:
    """Of the odd kernel nearest above a tenth of the side, 3 at least: 1 at 32 pixels, 11 at 224."""
    return max(1, size // 10 // 2)


def blur_matrices(kernels: Tensor, size: int) -> Tensor:
    """(n, taps) -> (n, size, size): B x is the blur of a line of pixels x."""
    n, taps = kernels.shape
    place = torch.arange(size, device=kernels.device)[:, None] + torch.arange(taps, device=kernels.device) - taps // 2
    place = place.abs()
    place = torch.where(place >= size, 2 * (size - 1) - place, place)  # (size, taps), reflected
    matrices = kernels.new_zeros(n, size, size)
    return matrices.scatter_add_(2, place.expand(n, size, taps), kernels[:, None].expand(n, size, taps))


def blur_weights(weights: Tensor, chosen: Tensor, kernels: Tensor) -> None:
    """Multiply the blur into the `chosen` of the weights (2n, size, span), n for rows and n for columns."""
    twice = torch.cat([chosen, chosen + len(weights) // 2]).to(weights.device)
    blurs = blur_matrices(kernels.to(weights.device), weights.shape[1])
    weights[twice] = torch.bmm(blurs.repeat(2, 1, 1), weights[twice])
