"""Folders: every file below, and those that are images as a listing."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from likewise.data.images import EXTENSIONS, Listing, Opener, extension
from likewise.data.items import DataError, Skipped
from likewise.data.labels import from_paths


@dataclass(frozen=True, order=True)
class File:
    """A file by its path below the source, with what tells that it has changed."""

    path: str
    size: int  # −1: cannot be read
    time: int


def walk(root: Path, name: str) -> tuple[tuple[File, ...], tuple[Skipped, ...]]:
    """Files at any depth in sorted order, hidden ones left out; folders that cannot be read.

    Each folder is entered once, those reached by a link last: loops end, and no file counts twice.
    """
    files: list[File] = []
    skipped: list[Skipped] = []
    real, linked = [""], list[str]()
    seen: set[tuple[int, int]] = set()
    while real or linked:
        below = real.pop() if real else linked.pop(0)
        try:
            status = os.stat(root / below)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(root / below) as found:
                entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            if not below:
                raise DataError(f"cannot read {name}: {reason}") from None
            skipped.append(Skipped(f"{below}/", reason))
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if _is_folder(entry):
                (linked if entry.is_symlink() else real).append(path)
            elif (file := _file(entry, path)) is not None:
                files.append(file)
    return tuple(sorted(files)), tuple(skipped)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _file(entry: os.DirEntry[str], path: str) -> File | None:
    try:
        if not entry.is_file():
            return File(path, -1, 0) if entry.is_symlink() else None  # a broken link; a pipe would never end
        status = entry.stat()
    except OSError:
        return File(path, -1, 0)
    # a change of rights does not change the time
    return File(path, status.st_size if os.access(entry.path, os.R_OK) else -1, status.st_mtime_ns)


def stamp(path: Path) -> File:
    """One file that is a source by itself."""
    status = path.stat()
    return File(path.name, status.st_size, status.st_mtime_ns)


def images_of(files: Sequence[File]) -> tuple[File, ...]:
    return tuple(file for file in files if "." in file.path and extension(file.path) in EXTENSIONS)


def listing(root: Path, files: Sequence[File], skipped: tuple[Skipped, ...]) -> Listing:
    """Image files, labelled by their class folders."""
    paths = tuple(file.path for file in files)
    labels, classes, test = from_paths(paths)

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        return (partial(_stream, root / paths[row]) for row in rows)

    return Listing(paths, openers, labels, classes, test, skipped=skipped)


def _stream(path: Path) -> BinaryIO:
    return path.open("rb")
