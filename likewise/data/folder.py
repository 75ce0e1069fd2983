"""List the files below a folder, and its image files with labels from class folders."""

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
    """A file's path below the source, with the size and time that show whether it has changed."""

    path: str
    size: int  # −1 if the file cannot be read
    time: int


def walk(root: Path, name: str) -> tuple[tuple[File, ...], tuple[Skipped, ...]]:
    """Return the files at any depth in sorted order, without hidden ones, and the folders that cannot be read.

    Each folder is entered once, and folders that are reached by a link come last, so that loops of links end and no
    file counts twice.
    """
    files: list[File] = []
    skipped: list[Skipped] = []
    folders, linked_folders = [""], list[str]()
    visited: set[tuple[int, int]] = set()
    while folders or linked_folders:
        folder = folders.pop() if folders else linked_folders.pop(0)
        try:
            status = os.stat(root / folder)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as scan:
                entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            if not folder:
                raise DataError(f"cannot read {name}: {reason}") from None
            skipped.append(Skipped(f"{folder}/", reason))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _is_folder(entry):
                (linked_folders if entry.is_symlink() else folders).append(path)
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
            # A broken link is kept, to be reported later. A pipe is not: reading it might never end.
            return File(path, -1, 0) if entry.is_symlink() else None
        status = entry.stat()
    except OSError:
        return File(path, -1, 0)
    # changed permissions do not change the time, so they are checked each time
    return File(path, status.st_size if os.access(entry.path, os.R_OK) else -1, status.st_mtime_ns)


def stamp(path: Path) -> File:
    """Return the `File` of a source that is a single file."""
    status = path.stat()
    return File(path.name, status.st_size, status.st_mtime_ns)


def images_of(files: Sequence[File]) -> tuple[File, ...]:
    """Return those of the files that are images by their extension."""
    return tuple(file for file in files if "." in file.path and extension(file.path) in EXTENSIONS)


def listing(root: Path, files: Sequence[File], skipped: tuple[Skipped, ...]) -> Listing:
    """Return the listing of image files, labelled by their class folders."""
    paths = tuple(file.path for file in files)
    labels, classes, test = from_paths(paths)

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        return (partial(_stream, root / paths[row]) for row in rows)

    return Listing(paths, openers, labels, classes, test, skipped=skipped)


def _stream(path: Path) -> BinaryIO:
    return path.open("rb")
