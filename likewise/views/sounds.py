"""Augment windows of audio: mix in another recording, change speed and pitch, mask a band and a stretch of time.

The augmentations of spectra by Niizumi et al., 2021 (BYOL-A) and Park et al., 2019 (SpecAugment), applied to samples,
so that every encoder of audio can use them. A view is (n, t, 1), standardised, with NaN after the end of a recording.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.augmentation import Draws
from likewise.views.crops import uniform
from likewise.views.windows import PlainWindows

GROUP = 4  # consecutive rows that are mixed with each other; a power of 2, so that XOR with 1 to 3 stays in the group


@dataclass(frozen=True)
class DisturbedSounds(PlainWindows):
    """Mix each window with another one of the batch, play it faster or slower, and mask a band and a stretch.

    Each window is mixed with one of the other three in its group of four consecutive windows, whose amplitude is
    multiplied by a number uniform up to `mix`. The speed is e^u, u uniform in ±`speed`; the pitch changes with it. The
    loudness changes by e^u, u uniform in ±`gain`. The masked band is up to the fraction `band` of all frequencies wide,
    the masked stretch up to the fraction `stretch` of the window long.
    """

    mix: float = 0.3
    speed: float = 0.15
    gain: float = 0.5
    band: float = 0.15
    stretch: float = 0.2

    @property
    def together(self) -> int:
        """The number of consecutive rows whose views depend on each other."""
        return GROUP if self.mix else 1

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        return Draws(
            {
                "mix": uniform(n, low=0.0, high=self.mix, rng=rng),
                "other": torch.randint(1, GROUP, (n,), generator=rng),
                "speed": uniform(n, low=-self.speed, high=self.speed, rng=rng).exp(),
                "gain": uniform(n, low=-self.gain, high=self.gain, rng=rng).exp(),
                "start": uniform(n, low=0.0, high=1.0, rng=rng),
                "band": uniform(n, low=0.0, high=self.band, rng=rng),
                "pitch": uniform(n, low=0.0, high=1.0, rng=rng),
                "stretch": uniform(n, low=0.0, high=self.stretch, rng=rng),
                "moment": uniform(n, low=0.0, high=1.0, rng=rng),
            }
        )

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Augment windows, (n, t, c) to (n, t, c) float32, on their device."""
        rows = super().apply(items, draws)
        values = {name: value.to(rows.device, torch.float32)[:, None] for name, value in draws.values.items()}
        length = (~rows.isnan().any(dim=2)).sum(dim=1, keepdim=True)  # (n, 1): samples before the padding
        filled = rows.nan_to_num(nan=0.0)
        mixed = filled + values["mix"][:, :, None] * filled[_others(draws.values["other"]).to(rows.device)]
        played, length = _played(mixed, length, values["speed"], values["start"])
        played = _without_band(played, values["band"], values["pitch"]) * values["gain"][:, :, None]
        times = torch.arange(rows.shape[1], device=rows.device)
        first = values["moment"] * (1 - values["stretch"]) * length
        hidden = (times >= first) & (times < first + values["stretch"] * length)
        return played.masked_fill_(hidden[:, :, None], 0).masked_fill_((times >= length)[:, :, None], torch.nan)


def _others(steps: Tensor) -> Tensor:
    """Return the index of the row that each row is mixed with, (n,): row i with i XOR steps[i], in its group of four.

    `steps` (n,) are 1 to 3. In an incomplete group at the end, a row may be mixed with itself.
    """
    rows = torch.arange(len(steps))
    others = rows ^ steps
    return torch.where(others < len(rows), others, rows)


def _played(rows: Tensor, length: Tensor, speed: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Play rows (n, t, c) at a speed (n, 1), by linear interpolation, and return them with their new lengths (n, 1).

    A slower row is an excerpt that begins at the fraction `start` of what must be left out. A faster one ends earlier.
    """
    t = rows.shape[1]
    first = start * (length - speed * length).clamp(min=0)
    position = first + speed * torch.arange(t, device=rows.device)
    below = position.long().clamp(max=t - 1)
    fraction = (position - below).clamp(0, 1)[:, :, None]
    low, high = (rows.take_along_dim(at[:, :, None], dim=1) for at in (below, (below + 1).clamp(max=t - 1)))
    return low.lerp(high, fraction), torch.minimum(length, (length / speed).long().clamp(min=1))


def _without_band(rows: Tensor, width: Tensor, place: Tensor) -> Tensor:
    """Remove a band of frequencies from rows (n, t, c): a fraction `width` of all, at a fraction `place`, (n, 1)."""
    spectrum = torch.fft.rfft(rows, dim=1)
    share = torch.linspace(0, 1, spectrum.shape[1], device=rows.device)
    low = place * (1 - width)
    hidden = (share >= low) & (share < low + width)
    filtered: Tensor = torch.fft.irfft(spectrum.masked_fill_(hidden[:, :, None], 0), n=rows.shape[1], dim=1)
    return filtered


PRESETS = {"sound": DisturbedSounds}
