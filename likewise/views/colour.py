"""Apply the whole colour jitter and greyscale as one affine map per image.

Brightness, contrast, saturation, hue and greyscale are affine in (r, g, b). Only contrast also depends on the rest of
the image, through its mean. Written as the image's mean plus a deviation from it, a pixel changes linearly under
contrast too: the deviation is scaled, and the mean moves towards its grey. So two products of 3 × 3 matrices, one for
deviations and one for means, compose the whole chain exactly, in any order:  x' = D (x − m) + M m = D x + (M − D) m.

Differences from torchvision: values are clamped to [0, 1] once, at the end of the chain (and after the blur), not
after each step; the mean that contrast uses is not rounded to whole grey levels; and hue rotates the colour plane of
YIQ, which is linear, instead of HSV's hexagon, which is not. Both leave greys unchanged and rotate in the same
direction; YIQ preserves the luma, HSV the largest channel.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.views.crops import chance, uniform

LUMA = (0.299, 0.587, 0.114)  # Rec. 601, as in Pillow and torchvision
TO_YIQ = (LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


@dataclass(frozen=True)
class Jitter:
    """Jitter colours (Howard, 2013) with probability `p`: four changes in random order.

    Factors of brightness, contrast and saturation are uniform in [max(0, 1 − strength), 1 + strength],
    the hue's shift in ±`hue` turns:

        brightness  x' = f x
        contrast    x' = f x + (1 − f) · the mean grey of the image at that point of the chain
        saturation  x' = f x + (1 − f) · the pixel's grey
        hue         the colour plane rotated by the shift, from red towards green

    Only brightness and contrast change an image of one channel.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    p: float = 0.8

    def draw(self, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        def factor(strength: float) -> Tensor:
            return uniform(n, low=max(0.0, 1 - strength), high=1 + strength, rng=rng)

        return {
            "jitter": chance(n, self.p, rng),
            "brightness": factor(self.brightness),
            "contrast": factor(self.contrast),
            "saturation": factor(self.saturation),
            "hue": uniform(n, low=-self.hue, high=self.hue, rng=rng),
            # The index of the change that comes first, second, third and last.
            "order": torch.rand(n, 4, generator=rng, dtype=torch.float64).argsort(1),
        }


def colour_maps(draws: Mapping[str, Tensor], channels: int) -> tuple[Tensor, Tensor]:
    """Return D and M of x' = D (x − m) + M m for draws of `Jitter` and "grey": (n, c, c) each, float64."""
    grey = torch.tensor([LUMA] if channels == 3 else [[1.0]], dtype=torch.float64).expand(channels, channels)
    n = len(next(iter(draws.values())))
    deviation = mean = torch.eye(channels, dtype=torch.float64).expand(n, channels, channels)
    if "jitter" in draws:
        deviation, mean = _jitter_maps(draws, deviation, grey)
    if "grey" in draws:
        chosen = draws["grey"][:, None, None]
        deviation, mean = torch.where(chosen, grey @ deviation, deviation), torch.where(chosen, grey @ mean, mean)
    return deviation, mean


def _jitter_maps(draws: Mapping[str, Tensor], eye: Tensor, grey: Tensor) -> tuple[Tensor, Tensor]:
    brightness, contrast, saturation = (draws[name][:, None, None] for name in ("brightness", "contrast", "saturation"))
    brightened = brightness * eye
    saturated = saturation * eye + (1 - saturation) * grey
    rotated = hue_rotation(draws["hue"]) if len(grey) == 3 else eye
    deviations = torch.stack([brightened, contrast * eye, saturated, rotated], 1)
    means = torch.stack([brightened, contrast * eye + (1 - contrast) * grey, saturated, rotated], 1)
    rows = torch.arange(len(eye))[:, None]
    steps = torch.stack([deviations, means])[:, rows, draws["order"]]  # (2, n, 4, c, c), first to last
    halves = steps[:, :, 1::2] @ steps[:, :, ::2]
    chains = torch.where(draws["jitter"][:, None, None], halves[:, :, 1] @ halves[:, :, 0], eye)
    return chains[0], chains[1]


def hue_rotation(turns: Tensor) -> Tensor:
    """Return matrices (n, 3, 3) that rotate the I-Q plane by `turns` (n,), from red to yellow to green as HSV's hue."""
    angle = 2 * math.pi * turns
    cos, sin = angle.cos(), angle.sin()
    zeros, ones = torch.zeros_like(cos), torch.ones_like(cos)
    rotation = torch.stack([ones, zeros, zeros, zeros, cos, sin, zeros, -sin, cos], 1).view(-1, 3, 3)
    to_yiq = torch.tensor(TO_YIQ, dtype=torch.float64)
    to_rgb: Tensor = torch.linalg.inv(to_yiq)
    return to_rgb @ rotation @ to_yiq


@dataclass(frozen=True)
class Recolouring:
    """Colours and normalisation of n images in one affine map: y = A x + B m − constant, clamped to `bounds`.

    A (`pixel`) and B (`mean`), (n, c, c), take values of 0 to 255; m is an image's mean before its colours change.
    """

    pixel: Tensor
    mean: Tensor
    constant: Tensor  # (c, 1)
    bounds: tuple[tuple[float, float], ...]

    def apply(self, images: Tensor, means: Tensor, rows: slice, out: Tensor) -> None:
        """Write the result for images (k, c, h, w), which are these `rows`, with means (k, c, 1), into `out`."""
        k, c = images.shape[:2]
        out = out.view(k, c, -1)
        torch.bmm(self.pixel[rows], images.reshape(k, c, -1), out=out)
        out += torch.bmm(self.mean[rows], means).sub_(self.constant)  # baddbmm would first expand this to every pixel
        # One channel at a time, because clamping by tensors takes nine times as long on a CPU.
        for channel, (low, high) in enumerate(self.bounds):
            out[:, channel].clamp_(low, high)


def recolouring(
    draws: Mapping[str, Tensor], mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> Recolouring:
    """Return the map that applies the colours of `draws`, clamps to [0, 1] and normalises, (x − mean) / std."""
    deviations, means = colour_maps(draws, len(mean))
    scale = torch.tensor(std, dtype=torch.float64)[:, None]
    constant = torch.tensor(mean, dtype=torch.float64)[:, None] / scale
    bounds = tuple((-m / s, (1 - m) / s) for m, s in zip(mean, std, strict=True))
    of_pixel, of_mean = deviations / (255 * scale), (means - deviations) / (255 * scale)
    maps = [tensor.to(device, torch.float32) for tensor in (of_pixel, of_mean, constant)]
    return Recolouring(maps[0], maps[1], maps[2], bounds)


def solarise(images: Tensor, threshold: float, bounds: tuple[tuple[float, float], ...]) -> Tensor:
    """Return normalised images (n, c, h, w) with x replaced by 1 − x where x, in [0, 1], is at least the threshold."""
    low, high = torch.tensor(bounds, device=images.device)[:, :, None, None].unbind(1)
    return torch.where(images >= low + threshold * (high - low), low + high - images, images)
