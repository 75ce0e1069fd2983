"""Generate `shapes`: pictures of coloured shapes with captions, to try images and text without data of your own.

The label is the shape. Captions also name colour, size and background; position, rotation and shade vary at random.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from likewise.data.arrays import from_array
from likewise.data.items import Captions, Items

SIDE, COUNT = 32, 1200
FINER = 4  # points per pixel in each direction; a pixel is their mean

Points = NDArray[np.float64]  # one coordinate of each point; a shape extends from about −1 to 1
Inside = NDArray[np.bool_]


def _circle(x: Points, y: Points) -> Inside:
    return x**2 + y**2 < 0.9


def _square(x: Points, y: Points) -> Inside:
    return np.maximum(abs(x), abs(y)) < 0.8


def _triangle(x: Points, y: Points) -> Inside:
    return (y < 0.7) & (abs(x) < 0.55 * (y + 1))


def _cross(x: Points, y: Points) -> Inside:
    return (np.minimum(abs(x), abs(y)) < 0.28) & (np.maximum(abs(x), abs(y)) < 0.95)


def _ring(x: Points, y: Points) -> Inside:
    return (x**2 + y**2 < 0.95) & (x**2 + y**2 > 0.35)


def _star(x: Points, y: Points) -> Inside:
    turn = np.arctan2(x, -y)
    return np.asarray(np.hypot(x, y) < 0.65 + 0.35 * np.cos(5 * turn))


KINDS: dict[str, Callable[[Points, Points], Inside]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
    "ring": _ring,
    "star": _star,
}
COLOURS = {
    "red": (210, 40, 40),
    "green": (40, 150, 60),
    "blue": (50, 80, 210),
    "yellow": (235, 200, 40),
    "purple": (140, 60, 170),
    "orange": (240, 130, 30),
    "brown": (120, 75, 45),
    "pink": (240, 140, 180),
}
GROUNDS = {"white": (245, 245, 245), "grey": (150, 150, 150), "black": (20, 20, 20)}
SIZES = {"small": 0.45, "large": 0.8}


def shapes(size: int | None = None) -> Items:
    """Return 1,200 pictures of 32 × 32 pixels with two captions each; they are always the same."""
    pixels, labels, captions = _generate()
    return from_array(pixels, "shapes", size, labels=labels, classes=tuple(KINDS), captions=captions)


@functools.cache
def _generate() -> tuple[NDArray[np.uint8], NDArray[np.int64], Captions]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(COUNT) % len(KINDS)).astype(np.int64)
    drawn = [_shape(list(KINDS)[label], rng) for label in labels]
    return np.stack([pixels for pixels, _ in drawn]), labels, tuple(captions for _, captions in drawn)


def _shape(kind: str, rng: np.random.Generator) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    colour, ground, size = (str(rng.choice(list(names))) for names in (COLOURS, GROUNDS, SIZES))
    scale, turn = SIZES[size] * rng.uniform(0.9, 1.1), rng.uniform(-0.2, 0.2)
    centre = rng.uniform(-1, 1, size=2) * (1 - 1.1 * scale)  # so that the whole shape is in the picture
    places = (np.arange(SIDE * FINER) + 0.5) / (SIDE * FINER) * 2 - 1
    x, y = (places[None, :] - centre[0]) / scale, (places[:, None] - centre[1]) / scale
    inside = KINDS[kind](x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn))
    cover = inside.reshape(SIDE, FINER, SIDE, FINER).mean(axis=(1, 3))[:, :, None]
    shade = rng.uniform(0.85, 1.1)
    picture = cover * np.array(COLOURS[colour]) * shade + (1 - cover) * np.array(GROUNDS[ground])
    noisy = picture + rng.normal(0, 4, size=picture.shape)
    captions = (f"a {size} {colour} {kind} on {ground}", f"a {colour} {kind}")
    return np.clip(noisy, 0, 255).astype(np.uint8), captions
