"""Shared by the tests of data: a cache of their own, and small images that are known pixel by pixel."""

import numpy as np
import pytest
from PIL import Image

from likewise import data


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of this test alone."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("LIKEWISE_CACHE", str(place))
    return place


def noise(*shape, seed=0, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def plain(colour, side=8, mode="RGB"):
    return Image.new(mode, (side, side), colour)


def save(folder, **images):
    """Write images as PNG, `a__b=image` to a/b.png."""
    for name, image in images.items():
        path = folder / f"{name.replace('__', '/')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path)
    return folder


def colours(items):
    """The colour of each item that is all of one, else the mean."""
    return [tuple(int(value) for value in np.rint(row.mean(axis=(1, 2)))) for row in items.array]


def refused(source):
    """The sentence with which a source is refused."""
    with pytest.raises(data.DataError) as error:
        data.open(source)
    return str(error.value)
