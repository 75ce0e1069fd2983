"""Augment vectors: standardise them, add noise and set some features to their mean."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.augmentation import Draws, check_draws, check_whole


@dataclass(frozen=True)
class VectorViews:
    """Standardise rows of features, (x − mean) / std, and disturb them.

    Gaussian noise of standard deviation `noise` is added to every feature, and each feature is replaced by its mean, 0,
    with probability `dropout`. `fitted` takes mean and std from data.
    """

    size: int  # number of features
    noise: float = 0.3
    dropout: float = 0.2
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_whole("size", self.size, 1)
        object.__setattr__(self, "mean", self.mean or (0.0,) * self.size)
        object.__setattr__(self, "std", self.std or (1.0,) * self.size)
        if not len(self.mean) == len(self.std) == self.size:
            got = f"{len(self.mean)} and {len(self.std)}"
            raise ValueError(f"mean and std must have {self.size} numbers each, got {got}")

    @classmethod
    def fitted(cls, vectors: Tensor, noise: float = 0.3, dropout: float = 0.2) -> "VectorViews":
        """Return views with the mean and standard deviation of vectors (n, f); 1 for a constant feature's deviation."""
        std, mean = torch.std_mean(vectors.double(), dim=0, correction=0)
        std = std.where(std > 0, 1)
        return cls(vectors.shape[1], noise, dropout, tuple(mean.tolist()), tuple(std.tolist()))

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        noise = torch.randn(n, self.size, generator=rng, dtype=torch.float32)
        dropped = torch.rand(n, self.size, generator=rng, dtype=torch.float32) < self.dropout
        return Draws({"noise": noise * self.noise, "dropped": dropped})

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Augment vectors, (n, f) to (n, f) float32, on their device."""
        out = self.plain(items)
        check_draws("vectors", items, draws)
        out += draws.values["noise"].to(out.device)
        return out.masked_fill_(draws.values["dropped"].to(out.device), 0)

    @torch.no_grad()
    def plain(self, items: Tensor) -> Tensor:
        if not isinstance(items, Tensor) or not items.is_floating_point():
            got = items.dtype if isinstance(items, Tensor) else type(items).__name__
            raise ValueError(f"vectors must be a floating-point tensor, got {got}")
        if items.ndim != 2 or items.shape[1] != self.size:
            raise ValueError(f"vectors must be of shape (n, {self.size}), got {tuple(items.shape)}")
        mean, std = (torch.tensor(x, dtype=items.dtype, device=items.device) for x in (self.mean, self.std))
        return ((items - mean) / std).float()


PRESETS = {"vector": VectorViews}
