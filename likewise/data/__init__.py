"""Data: whatever holds images or vectors, opened as rows of one array with ids, labels and a test part.

from likewise import data

items = data.open("photos/")          # a folder, .npy, .npz, idx, CIFAR, Parquet, tar shards, "digits", an array
items.array                           # (n, c, h, w) uint8, or (n, f) float32
items[np.array([3, 1, 4])]            # rows by id
"""

from likewise.data.items import DataError, Items, Skipped
from likewise.data.source import open  # noqa: A004

__all__ = ["DataError", "Items", "Skipped", "open"]
