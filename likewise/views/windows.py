"""Augment windows of sequences: scale channels, add noise, mask a stretch of time and drop channels.

A view is (n, t, c), standardised by channel, with NaN after the end of a sequence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.augmentation import PLAIN, Draws
from likewise.views.crops import uniform


@dataclass(frozen=True)
class PlainWindows:
    """Return every window itself, normalised by channel: (x − mean) / std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        return Draws({"row": torch.arange(n)})  # no random numbers; only keeps the number of rows

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        if len(draws) != len(items):
            raise ValueError(f"draws must have {len(items)} rows like the sequences, got {len(draws)}")
        return self.plain(items)

    @torch.no_grad()
    def plain(self, items: Tensor) -> Tensor:
        """Normalise windows, (n, t, c) to (n, t, c) float32."""
        if items.ndim != 3 or items.shape[2] != len(self.mean):
            raise ValueError(f"sequences must be of shape (n, t, {len(self.mean)}), got {tuple(items.shape)}")
        mean, std = (torch.tensor(x, dtype=items.dtype, device=items.device) for x in (self.mean, self.std))
        return ((items - mean) / std).float()


@dataclass(frozen=True)
class DisturbedWindows(PlainWindows):
    """Scale each channel, add noise, and set a stretch of time and some channels to their mean, 0.

    Scales are e^u, u uniform in ±`scale`. `noise` is a fraction of the channel's standard deviation. The length of the
    stretch is uniform up to the fraction `mask` of the window. Each channel is dropped with probability `drop`, but
    never all of them.
    """

    scale: float = 0.5
    noise: float = 0.1
    mask: float = 0.3
    drop: float = 0.1

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        channels = len(self.mean)
        dropped = torch.rand(n, channels, generator=rng, dtype=torch.float64) < self.drop
        return Draws(
            {
                "scale": torch.exp(torch.rand(n, channels, generator=rng, dtype=torch.float64) * 2 - 1) ** self.scale,
                "masked": uniform(n, low=0.0, high=self.mask, rng=rng),
                "place": uniform(n, low=0.0, high=1.0, rng=rng),
                "dropped": dropped & ~dropped.all(dim=1, keepdim=True),
                "noise": torch.randint(2**31, (n,), generator=rng),  # seeds: the noise itself is large
            }
        )

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Augment windows, (n, t, c) to (n, t, c) float32, on their device."""
        out = super().apply(items, draws)
        values = {name: value.to(out.device) for name, value in draws.values.items()}
        out *= values["scale"].float()[:, None]
        for row, seed in zip(out, draws.values["noise"].tolist(), strict=True):
            rng = torch.Generator().manual_seed(seed)
            row += self.noise * torch.randn(row.shape, generator=rng, dtype=torch.float32).to(out.device)
        length = (~out.isnan().any(dim=2)).sum(dim=1)  # samples of each row before the padding
        masked = values["masked"] * length
        first = values["place"] * (length - masked)
        times = torch.arange(out.shape[1], device=out.device)
        hidden = (times >= first[:, None]) & (times < (first + masked)[:, None])
        hidden = hidden[:, :, None] | values["dropped"][:, None]
        return out.masked_fill_(hidden & ~out.isnan(), 0)


PRESETS = {"sequence": DisturbedWindows, PLAIN: PlainWindows}
