"""Read `.npy` and `.npz` files, after checking what their headers declare.

A header of a few bytes can declare an array larger than any memory, and a compressed array of a few megabytes can
expand to gigabytes.
"""

import math
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from likewise.data.items import DataError
from likewise.data.mapped import map_array
from likewise.data.memory import check_fits

MAGIC = b"\x93NUMPY"
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
ENCRYPTED = 0x1  # a bit of a zip entry's flags
# An array of more than LARGE bytes may be at most GROWTH times as large as its compressed form.
LARGE, GROWTH = 1 << 30, 200

Header = tuple[tuple[int, ...], np.dtype[Any]]


def map_npy(path: Path, name: str) -> NDArray[Any]:
    """Map the array of an .npy file into memory, after checking that the file is as long as its header declares."""
    with _reading(name):
        with path.open("rb") as file:
            _read_header(file, path.stat().st_size, "it")
        return map_array(path)


class Archive:
    """An open .npz file that reads an array only when it is requested."""

    def __init__(self, file: zipfile.ZipFile, name: str) -> None:
        self._file, self._name = file, name
        self._members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def header(self, key: str) -> Header:
        """Return the shape and dtype of an array without reading it."""
        info = self._members[key]
        self._check(info)
        with _reading(self._name), self._file.open(info) as stream:
            header: Header = _read_header(stream, info.file_size, key)
        return header

    def read(self, keys: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Read some arrays, after checking that all of them fit into memory together."""
        keys = list(keys)
        for key in keys:
            self.header(key)
        check_fits(sum(self._members[key].file_size for key in keys), self._name)
        arrays: dict[str, NDArray[Any]] = {}
        for key in keys:
            with _reading(self._name), self._file.open(self._members[key]) as stream:
                arrays[key] = npy.read_array(stream, allow_pickle=False)
            if arrays[key].dtype.kind == "U":
                _check_text(arrays[key], f"{key} of {self._name}")
        return arrays

    def _check(self, info: zipfile.ZipInfo) -> None:
        """Raise an error if an array cannot be unpacked or looks like a decompression bomb."""
        if info.flag_bits & ENCRYPTED:
            raise DataError(
                f"cannot read {self._name}: {info.filename} is encrypted, expected an archive without password"
            )
        if info.compress_type not in COMPRESSIONS:
            got = f"method {info.compress_type}"
            raise DataError(f"cannot read {self._name}: {info.filename} must be compressed as by numpy, got {got}")
        if info.file_size > LARGE and info.file_size > GROWTH * info.compress_size:
            sizes = f"{info.compress_size / 2**20:,.1f} MiB to {info.file_size / 2**30:,.1f} GiB"
            raise DataError(
                f"cannot read {self._name}: {info.filename} would grow from {sizes}, as a decompression bomb does; "
                "save it without compression, with numpy.savez"
            )


def _check_text(strings: NDArray[np.str_], name: str) -> None:
    """Raise an error if strings hold invalid code points: Python would fail only later, when it reads a string."""
    codes = np.frombuffer(strings.tobytes(), dtype=np.dtype(np.uint32).newbyteorder(strings.dtype.byteorder))
    if codes.max(initial=0) > sys.maxunicode:
        raise DataError(f"{name} must hold text, got invalid characters: the file is damaged")


@contextmanager
def open_npz(path: Path, name: str) -> Iterator[Archive]:
    """Open an .npz file to read some of its arrays."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"cannot read {name}: it is not an .npz archive")
    with _reading(name):
        file = zipfile.ZipFile(path)
    with file:
        yield Archive(file, name)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn whatever a damaged file raises into a DataError of one sentence."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # numpy, zipfile and the decompressors raise almost any exception on a damaged file
        text = " ".join(str(error).split())[:200]
        raise DataError(f"cannot read {name}: {text or type(error).__name__}") from None


def _read_header(stream: IO[bytes], size: int, what: str) -> Header:
    """Read the header of an array that takes `size` bytes in all, and check that it declares no more than that."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError(f"{what} is not an .npy array")
    stream.seek(0)
    read_array_header = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_array_header(stream)
    if dtype.hasobject:
        raise ValueError(f"{what} holds Python objects, not arrays of numbers")
    remaining = size - stream.tell()
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape of {what} must not be negative, got {_short(shape)}")
    if math.prod(shape) * dtype.itemsize > remaining:
        raise ValueError(f"{what} must hold {_short(shape)} of {dtype}, as its header says, got {remaining:,} bytes")
    return shape, dtype


def _short(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 100 else f"{text[:100]}…"
