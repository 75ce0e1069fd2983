"""Take views from images: a random resized crop, or a small affine transformation.

A crop, its flip and its resizing are linear, separable and the same for every channel. So a view is R X Cᵀ, with two
small matrices per image, R (size, h) for rows and C (size, w) for columns. The matrices hold the weights of
antialiased bilinear interpolation, so this is exact, and a blur can be multiplied into them at no further cost.
Products of that size suit accelerators and small images. For large images on a CPU the matrices are mostly zeros, and
`resample_one` interpolates image by image instead.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

TRIES = 10  # attempts to find a crop that fits


@dataclass(frozen=True)
class Crop:
    """Random resized crop (Szegedy et al., 2015), as in torchvision.

    Each attempt draws a fraction of the image's area uniformly from `scale` and an aspect ratio (width to height)
    log-uniformly from `ratio`, and rounds the sides. The first of ten attempts that fits into the image is used, at a
    uniformly random position. If none fits, the crop is the largest centred one whose ratio is nearest to the image's.
    With probability `flip` the view is mirrored left to right.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def draw(self, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        # All ten attempts are drawn, needed or not, so that drawing does not depend on the image's shape.
        return {
            "crop_area": uniform(n, TRIES, low=self.scale[0], high=self.scale[1], rng=rng),
            "crop_ratio": uniform(n, TRIES, low=math.log(self.ratio[0]), high=math.log(self.ratio[1]), rng=rng).exp(),
            "crop_place": uniform(n, 2, low=0.0, high=1.0, rng=rng),
            "flip": chance(n, self.flip, rng),
        }

    def boxes(self, draws: Mapping[str, Tensor], h: int, w: int) -> Tensor:
        """Return top, left, height and width of each row's crop: (n, 4), int64, on the CPU."""
        area = draws["crop_area"] * (h * w)
        height = (area / draws["crop_ratio"]).sqrt().round()
        width = (area * draws["crop_ratio"]).sqrt().round()
        fits = (height > 0) & (height <= h) & (width > 0) & (width <= w)
        first = fits.byte().argmax(1, keepdim=True)
        sides = torch.cat([height.gather(1, first), width.gather(1, first)], 1)
        room = torch.tensor([h, w]) - sides
        corner = torch.minimum((draws["crop_place"] * (room + 1)).floor(), room)
        boxes = torch.cat([corner, sides], 1).long()
        return boxes.where(fits.any(1, keepdim=True), torch.tensor(self._fallback(h, w)))

    def _fallback(self, h: int, w: int) -> tuple[int, int, int, int]:
        height, width = h, w
        if w / h < self.ratio[0]:
            height = max(1, round(w / self.ratio[0]))
        elif w / h > self.ratio[1]:
            width = max(1, round(h * self.ratio[1]))
        return (h - height) // 2, (w - width) // 2, height, width


@dataclass(frozen=True)
class Affine:
    """Transform a drawing slightly about its centre: zoom and aspect ratio, then shear, rotation and shift.

    Zoom is log-uniform (below 1 the drawing shrinks), the aspect ratio (width to height) log-uniform at constant area,
    rotation uniform in ±`rotation` degrees, shear uniform in ±`shear` (the horizontal offset per unit of height), and
    shift uniform in ±`shift` of the side, horizontally and vertically. Interpolation is bilinear without antialiasing;
    pixels beyond the edge repeat those at the edge.
    """

    rotation: float = 20.0
    zoom: tuple[float, float] = (0.8, 1.25)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    shear: float = 0.3
    shift: float = 0.07

    def draw(self, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        angle = math.radians(self.rotation)
        return {
            "rotation": uniform(n, low=-angle, high=angle, rng=rng),
            "zoom": uniform(n, low=math.log(self.zoom[0]), high=math.log(self.zoom[1]), rng=rng).exp(),
            "ratio": uniform(n, low=math.log(self.ratio[0]), high=math.log(self.ratio[1]), rng=rng).exp(),
            "shear": uniform(n, low=-self.shear, high=self.shear, rng=rng),
            "shift": uniform(n, 2, low=-self.shift, high=self.shift, rng=rng),
        }

    def inverse(self, draws: Mapping[str, Tensor]) -> Tensor:
        """Return maps (n, 2, 3) from a point (x, y) in the view to its point in the drawing, both in [-1, 1]."""
        cos, sin = draws["rotation"].cos(), draws["rotation"].sin()
        zeros, ones = torch.zeros_like(cos), torch.ones_like(cos)
        stretch = draws["ratio"].sqrt()
        unrotate = _two_by_two(cos, sin, -sin, cos)
        unshear = _two_by_two(ones, -draws["shear"], zeros, ones)
        unzoom = _two_by_two(1 / (draws["zoom"] * stretch), zeros, zeros, stretch / draws["zoom"])
        linear = unzoom @ unshear @ unrotate
        shift = 2 * draws["shift"][:, :, None]  # in these coordinates a side has length 2
        return torch.cat([linear, -linear @ shift], 2)

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Transform floating-point images (n, c, size, size); the shape stays the same."""
        grid = affine_grid(self.inverse(draws).to(images), list(images.shape), align_corners=False)
        return grid_sample(images, grid, padding_mode="border", align_corners=False)


def resize_weights(start: Tensor, length: Tensor, size: int, span: int, flip: Tensor | None = None) -> Tensor:
    """Return weights (n, size, span) that resize `length` of `span` pixels, from `start` on, to `size` pixels.

    The interpolation is bilinear with antialiasing. Output pixel i is centred at start + (i + ½)·length/size. It weighs
    input pixel j by a triangular function of the distance to j's centre, as wide as the larger of an input and an
    output pixel. Pixels outside the crop have weight 0, and the weights sum to 1.
    """
    start, length = start[:, None].float(), length[:, None].float()
    out = torch.arange(size, dtype=torch.float32, device=start.device).add_(0.5).expand(len(start), size)
    if flip is not None:
        out = torch.where(flip[:, None], size - out, out)
    pixel = torch.arange(span, dtype=torch.float32, device=start.device).add_(0.5)
    inside = (pixel > start) & (pixel < start + length)
    step = length / size
    reach = step.clamp(min=1)
    centre = (start + out * step) / reach
    pixel = (pixel / reach).where(inside, torch.inf)
    weights = (pixel[:, None] - centre[:, :, None]).abs_().clamp_(max=1).sub_(1)
    return weights.div_(weights.sum(2, keepdim=True))  # both are negative, which saves a negation


def resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return R X Cᵀ for every image and channel: images (n, c, h, w), rows (n, size, h), columns (n, size, w)."""
    n, c, h, w = images.shape
    narrow = torch.bmm(images.to(rows.dtype).reshape(n, c * h, w), columns.transpose(1, 2))
    return torch.matmul(rows[:, None], narrow.view(n, c, h, -1))


def resample_one(image: Tensor, box: list[int], flip: bool, size: int) -> Tensor:
    """Crop and resize one image (c, h, w) to (1, c, size, size), without matrices: faster for large images on a CPU."""
    top, left, height, width = box
    crop = image[:, top : top + height, left : left + width]
    crop = (crop.flip(2) if flip else crop).float()[None]
    # If no side shrinks, antialiasing changes nothing, and without it torch is three times as fast.
    shrinks = height > size or width > size
    return interpolate(crop, (size, size), mode="bilinear", align_corners=False, antialias=shrinks)


def centre_square(images: Tensor, size: int) -> Tensor:
    """Return the largest centred square of images (n, c, h, w), resized to `size` with antialiasing, in float32."""
    h, w = images.shape[2:]
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    square = images[:, :, top : top + side, left : left + side].float()
    if side == size:
        return square
    edges = torch.tensor([[0], [side]], device=images.device)
    weights = resize_weights(edges[0], edges[1], size, side)[0]
    return torch.matmul(weights, square @ weights.T)


def uniform(*shape: int, low: float, high: float, rng: torch.Generator) -> Tensor:
    """Return uniform random numbers in [low, high), float64."""
    return torch.rand(*shape, generator=rng, dtype=torch.float64) * (high - low) + low


def chance(n: int, p: float, rng: torch.Generator) -> Tensor:
    """Return (n,) bool, true with probability p: never for 0, always for 1."""
    return torch.rand(n, generator=rng, dtype=torch.float64) < p


def _two_by_two(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.stack([torch.stack([a, b], 1), torch.stack([c, d], 1)], 1)
