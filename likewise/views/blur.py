"""Blur each image of a batch by a Gaussian with its own σ.

As in torchvision, the kernel spans about a tenth of the view's side, and edges are reflected without repeating the
last pixel. The blur is linear and separable: it multiplies an image by a matrix B (size, size) from both sides,
B X Bᵀ, so B can be multiplied into the matrices that crop and resize. At 224 × 224 most of B is zeros, but skipping
them in tiles was measured to be no faster on a CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.crops import chance, uniform


@dataclass(frozen=True)
class Blur:
    """Blur with probability `p` by a Gaussian of σ uniform in `sigma` (pixels of the view), as SimCLR and MoCo v2 do.

    Weights are e^{−k²/2σ²} for |k| <= `radius`, scaled to sum to 1.
    """

    radius: int
    sigma: tuple[float, float] = (0.1, 2.0)
    p: float = 0.5

    def draw(self, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        sigma = uniform(n, low=self.sigma[0], high=self.sigma[1], rng=rng)
        return {"sigma": sigma.where(chance(n, self.p, rng), 0)}  # 0 means no blur

    def kernels(self, draws: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return which rows are blurred (k,), and their kernels (k, 2·radius + 1) in float32, both on the CPU."""
        rows = draws["sigma"].nonzero().squeeze(1)
        distance = torch.arange(-self.radius, self.radius + 1, dtype=torch.float64) / draws["sigma"][rows, None]
        kernels = (distance**2 / -2).softmax(1)
        # Smaller weights do not matter in float32, but their products would be denormal numbers, ten times as slow.
        return rows, kernels.where(kernels > 1e-10, 0).float()


def radius_for(size: int) -> int:
    """Return the radius of a kernel of about a tenth of the side, at least 3 wide: 1 at 32 pixels, 11 at 224."""
    return max(1, size // 10 // 2)


def blur_matrices(kernels: Tensor, size: int) -> Tensor:
    """Turn kernels (n, taps) into matrices B (n, size, size), such that B x is the blurred line of pixels x."""
    n, taps = kernels.shape
    pixel = torch.arange(size, device=kernels.device)[:, None] + torch.arange(taps, device=kernels.device) - taps // 2
    pixel = pixel.abs()
    pixel = torch.where(pixel >= size, 2 * (size - 1) - pixel, pixel)  # (size, taps), reflected
    matrices = kernels.new_zeros(n, size, size)
    return matrices.scatter_add_(2, pixel.expand(n, size, taps), kernels[:, None].expand(n, size, taps))


def blur_weights(weights: Tensor, chosen: Tensor, kernels: Tensor) -> None:
    """Multiply the blur into the weights (2n, size, span) of the `chosen` images; n for rows, then n for columns."""
    both = torch.cat([chosen, chosen + len(weights) // 2]).to(weights.device)
    blurs = blur_matrices(kernels.to(weights.device), weights.shape[1])
    weights[both] = torch.bmm(blurs.repeat(2, 1, 1), weights[both])
