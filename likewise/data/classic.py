"""Read MNIST's idx files and CIFAR's batches as their authors publish them.

CIFAR's Python batches are pickles. The unpickler here only accepts arrays and plain containers, so a file that would
run code raises an error instead.
"""

import gzip
import math
import pickle
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.arrays import from_array
from likewise.data.items import DataError, Items
from likewise.data.labels import labelled
from likewise.data.memory import check_fits

IMAGES = re.compile(r"(?P<prefix>.*?)images(?P<mark>[-.])idx3-ubyte(\.gz)?$")
RECONSTRUCT = np.empty(0).__reduce__()[0]  # its module differs between versions of NumPy
PERMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def is_idx(name: str) -> bool:
    return IMAGES.match(name) is not None


def from_idx(path: Path, name: str) -> Items:
    """Return the items of one images file, with labels if their file lies beside it."""
    labels = _labels_beside(path)
    return _idx_items([read_idx(path)], [labels], name)


def from_idx_folder(root: Path, name: str) -> Items:
    """Return the items of `train-images-idx3-ubyte` and, as test part, `t10k-images-idx3-ubyte`, with their labels."""
    by_prefix: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        if match := IMAGES.match(path.name):
            by_prefix.setdefault(match["prefix"], path)  # a plain file comes before its .gz
    train = [prefix for prefix in by_prefix if "train" in prefix]
    test = [prefix for prefix in by_prefix if "t10k" in prefix or "test" in prefix]
    if len(by_prefix) > 1 and (len(train), len(test)) != (1, 1):
        raise DataError(f"expected one train and one t10k images file in {name}, got {', '.join(sorted(by_prefix))}")
    paths = [by_prefix[prefix] for prefix in (*train, *test)] or list(by_prefix.values())
    return _idx_items([read_idx(path) for path in paths], [_labels_beside(path) for path in paths], name)


def _idx_items(images: list[NDArray[np.uint8]], labels: list[NDArray[np.uint8] | None], name: str) -> Items:
    columns: dict[str, Any] = {}
    given_labels = [part for part in labels if part is not None]
    if len(given_labels) == len(labels):
        columns["labels"], columns["classes"] = labelled(np.concatenate(given_labels))
    if len(images) == 2:
        columns["test"] = np.arange(len(images[0]) + len(images[1])) >= len(images[0])
    if len({part.shape[1:] for part in images}) > 1:
        raise DataError(f"images of train and test must have the same size, got {[part.shape[1:] for part in images]}")
    return from_array(np.concatenate(images), name, **columns)


def _labels_beside(images: Path) -> NDArray[np.uint8] | None:
    plain = re.sub(r"images([-.])idx3", r"labels\1idx1", images.name).removesuffix(".gz")
    for name in (plain, f"{plain}.gz"):
        if (images.parent / name).exists():
            return read_idx(images.parent / name)
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes: 0 0 8 and the number of axes, their sizes as big-endian int32, the bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            sizes = file.read(4 * head[3]) if len(head) == 4 else b""
            if head[:3] != b"\0\0\x08" or len(head) < 4 or len(sizes) < 4 * head[3]:
                got = head[:3].hex(" ") or "nothing"
                raise DataError(f"{path} must start like an idx file of bytes, 00 00 08, got {got}")
            shape = tuple(np.frombuffer(sizes, dtype=">u4").tolist())
            count = math.prod(shape)
            check_fits(count, str(path))
            content = file.read(count + 1)  # notices a longer file without unpacking the rest of it
    except (OSError, EOFError, zlib.error, MemoryError, OverflowError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    if len(content) != count:
        got = f"{len(content)}" if len(content) < count else "more"
        raise DataError(f"{path} must hold {count} bytes for {shape}, got {got}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def is_cifar(names: Iterable[str]) -> bool:
    """Return whether a folder holds CIFAR, judging by the names of the files at its top."""
    names = set(names)
    is_cifar_100 = {"train", "test", "meta"} <= names or {"train.bin", "test.bin"} <= names
    return is_cifar_100 or any(name.removesuffix(".bin") == "data_batch_1" for name in names)


def from_cifar(root: Path, name: str, size: int | None) -> Items:
    """Return the items of CIFAR-10, or of CIFAR-100 with its fine labels, in the Python or the binary version."""
    present = {path.name for path in root.iterdir() if path.is_file()}
    binary = ".bin" if "data_batch_1.bin" in present or "train.bin" in present else ""
    if f"data_batch_1{binary}" in present:
        train = sorted(file for file in present if re.fullmatch(rf"data_batch_\d+{re.escape(binary)}", file))
        test, coarse = [f"test_batch{binary}"], 0
    else:
        train, test, coarse = [f"train{binary}"], [f"test{binary}"], 1
    files = [*train, *(file for file in test if file in present)]
    batches = [_binary(root / file, coarse) if binary else _batch(root / file) for file in files]
    labels = np.concatenate([labels for _, labels in batches])
    test_count = sum(len(images) for (images, _), file in zip(batches, files, strict=True) if file in test)
    columns: dict[str, Any] = {"test": np.arange(len(labels)) >= len(labels) - test_count} if test_count else {}
    columns["labels"], columns["classes"] = labelled(labels, _class_names(root, present))
    return from_array(np.concatenate([images for images, _ in batches]), name, size, **columns)


def _binary(path: Path, coarse: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read rows of labels (the fine one last) and 3,072 pixels."""
    content = np.fromfile(path, dtype=np.uint8)
    length = 1 + coarse + 3072
    if len(content) % length or not len(content):
        raise DataError(f"{path} must hold rows of {length} bytes, got {len(content)} bytes")
    rows = content.reshape(-1, length)
    return rows[:, 1 + coarse :].reshape(-1, 3, 32, 32), rows[:, coarse].astype(np.int64)


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = _unpickled(path)
    images = batch.get("data")
    labels = batch.get("fine_labels", batch.get("labels"))
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        got = f"{images.shape} of {images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{path} must hold data of shape (n, 3072) of uint8, got {got}")
    if not isinstance(labels, list) or len(labels) != len(images) or not all(isinstance(y, int) for y in labels):
        raise DataError(f"{path} must hold a list of {len(images)} labels, got {type(labels).__name__}")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _class_names(root: Path, present: set[str]) -> list[str]:
    for file in ("batches.meta.txt", "fine_label_names.txt"):
        if file in present:
            return (root / file).read_text().split()
    for file in ("batches.meta", "meta"):
        if file in present:
            meta = _unpickled(root / file)
            names = meta.get("fine_label_names", meta.get("label_names", []))
            return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return []


def _unpickled(path: Path) -> dict[str, Any]:
    """Return a pickled dictionary; keys that Python 2 wrote as bytes become strings."""
    try:
        with path.open("rb") as file:
            batch = _Arrays(file, encoding="bytes").load()
    except _RefusedError as error:
        raise DataError(f"{path} is not a CIFAR batch: it would load {error}") from None
    except Exception as error:  # a damaged pickle raises almost any exception
        raise DataError(f"{path} is not a CIFAR batch: {error}") from None
    if not isinstance(batch, dict):
        raise DataError(f"{path} is not a CIFAR batch: expected a dictionary, got {type(batch).__name__}")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in batch.items()}


class _RefusedError(Exception):
    """A pickle refers to a name that is not permitted."""


class _Arrays(pickle.Unpickler):
    """Unpickle arrays and plain containers; any other name raises an error before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin  # how Python 3 writes bytes for Python 2
        if (module, name) in PERMITTED:
            return PERMITTED[module, name]
        raise _RefusedError(f"{module}.{name}")


def _latin(text: str, encoding: str) -> bytes:
    return text.encode("latin-1")
