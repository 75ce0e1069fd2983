"""`open`: what a source is, and who reads it."""

import dataclasses
import difflib
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import arrays, classic, folder, shards
from likewise.data.builtin import NAMES, builtin
from likewise.data.cache import Plan, cache_folder, cache_key, fetch, noted
from likewise.data.folder import File
from likewise.data.images import EXTENSIONS, LARGEST_DEFAULT, Listing, decoding, extension, median_side
from likewise.data.items import DataError, Items, digest, fingerprint, make

Source = str | os.PathLike[str] | NDArray[Any] | Mapping[str, Any] | Items
KINDS = "a folder of images, .npy, .npz, .parquet, .tar or an idx images file"


def open(  # noqa: A001
    source: Source, *, size: int | None = None, cache: str | os.PathLike[str] | None = None, progress: bool = True
) -> Items:
    """Open a source of images or vectors as rows of one array.

    The source is a folder of images (in class folders or not), a `.npy` or `.npz` file, MNIST's idx files,
    CIFAR's folder, a Parquet file or WebDataset tar file or a folder of them, a built-in name (`digits`,
    `mnist5k`; a path of that name comes first), an array, a dictionary of arrays named as in an `.npz`, or
    `Items`.

    Encoded images become RGB squares of side `size`: the shorter side is scaled to it and the middle
    kept. Without a size it is the median shorter side of some of them, at most 64. They are decoded once,
    into `cache`, else the folder that `LIKEWISE_CACHE` names, else the user's cache folder. Arrays of
    images keep their size and layout of channels unless a size is given.

    What cannot be read is left out and listed in `skipped`; what cannot be used is a `DataError`.
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1):
        raise DataError(f"size must be a whole number >= 1, got {size!r}")
    size = None if size is None else int(size)
    if isinstance(source, Items):
        return _resized(source, size)
    if isinstance(source, np.ndarray):
        return arrays.from_array(source, f"an array of shape {source.shape}", size)
    if isinstance(source, Mapping):
        return arrays.from_mapping(source, f"arrays {', '.join(map(str, source))}", size)
    if not isinstance(source, str | os.PathLike):
        got = type(source).__name__
        raise DataError(f"source must be a path, one of {', '.join(NAMES)}, an array or a dict of arrays, got {got}")
    name = os.fspath(source)
    path = Path(name).expanduser()
    place = cache_folder(cache)
    if not os.path.lexists(path):
        if name in NAMES:
            return builtin(name, size)
        nearest = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; the nearest built-in is {nearest[0]}" if nearest else ""
        raise FileNotFoundError(f"data not found: {name}{hint}")
    return _folder(path, name, size, place, progress) if path.is_dir() else _file(path, name, size, place, progress)


def _resized(items: Items, size: int | None) -> Items:
    if items.kind == "vector" or arrays.is_ready(items.array, size):
        return items
    array = arrays.images(items.array, items.name, size)
    known = fingerprint(digest(array), items.labels, items.groups, items.test)
    return dataclasses.replace(items, array=array, fingerprint=known)


def _file(path: Path, name: str, size: int | None, place: Path, progress: bool) -> Items:
    kind = path.suffix.lower()
    if not path.is_file():
        raise DataError(f"expected {KINDS}, got {name}, which is neither a file nor a folder")
    if not os.access(path, os.R_OK):
        raise DataError(f"cannot read {name}: permission denied")
    if classic.is_idx(path.name):
        return classic.from_idx(path, name, size)
    if kind == ".npy":
        return arrays.from_npy(path, name, size, place, progress)
    if kind == ".npz":
        return arrays.from_npz(path, name, size)
    if kind in (".parquet", ".tar"):
        return _shards(kind, path.parent, [folder.stamp(path)], name, size, place, progress)
    hint = ": open its folder" if kind[1:] in EXTENSIONS else ""
    raise DataError(f"expected {KINDS}, got {name}{hint}")


def _folder(root: Path, name: str, size: int | None, place: Path, progress: bool) -> Items:
    shown = name.rstrip("/") + "/"
    files, skipped = folder.walk(root, shown)
    top = [file.path for file in files if "/" not in file.path]
    if any(map(classic.is_idx, top)):
        return classic.from_idx_folder(root, name, size)
    if classic.is_cifar(top):
        return classic.from_cifar(root, name, size)
    images = folder.images_of(files)
    for kind in (".parquet", ".tar"):
        found = [file for file in files if file.path.lower().endswith(kind)]
        if found and len(found) >= len(images):  # a data set with a picture in its description
            return _shards(kind, root, found, name, size, place, progress)
    if not images:
        raise DataError(f"no images in {shown}: expected {', '.join(EXTENSIONS)}; got {_others(files)}")

    def scan() -> Listing:
        return folder.listing(root, images, skipped)

    return _pictures("folder", root, images, scan, name, size, place, progress)


def _others(files: Sequence[File]) -> str:
    if not files:
        return "no files"
    kinds = Counter(
        f".{extension(file.path)}" if "." in file.path.rpartition("/")[2] else "no ending" for file in files
    )
    common = ", ".join(kind for kind, _ in kinds.most_common(3))
    return f"{len(files)} file{'s' * (len(files) > 1)} of other kinds ({common}{', …' * (len(kinds) > 3)})"


def _shards(
    kind: str, root: Path, files: Sequence[File], name: str, size: int | None, place: Path, progress: bool
) -> Items:
    def scan() -> Listing:
        listing = (shards.parquet_listing if kind == ".parquet" else shards.tar_listing)(root, files)
        if not listing.paths:
            why = f": {listing.skipped[0].path}: {listing.skipped[0].reason}" if listing.skipped else ""
            raise DataError(f"no images in {name}{why}")
        return listing

    return _pictures(kind, root, files, scan, name, size, place, progress)


def _pictures(
    kind: str,
    root: Path,
    files: Sequence[File],
    scan: Callable[[], Listing],
    name: str,
    size: int | None,
    place: Path,
    progress: bool,
) -> Items:
    """Encoded images through the cache; they are listed only where the cache does not know them."""
    scan = functools.cache(scan)
    native = noted(place, cache_key(kind, root, files), lambda: median_side(scan()))
    side = size or min(native, LARGEST_DEFAULT)

    def plan() -> Plan:
        found = scan()
        return Plan(
            row=(3, side, side),
            count=len(found.paths),
            chunks=decoding(found, side),
            paths=found.paths,
            labels=found.labels,
            classes=found.classes,
            test=found.test,
            skipped=found.skipped,
        )

    stored = fetch(place, cache_key(kind, root, files, side), plan, name, progress)
    return make(
        stored.array,
        name,
        content=stored.content,
        labels=stored.labels,
        classes=stored.classes,
        test=stored.test,
        paths=stored.paths,
        skipped=stored.skipped,
        native=native,
    )
