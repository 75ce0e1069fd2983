"""Captions: text made plain, and folders whose images are named with their captions in one file.

captions.jsonl    {"image": "a.jpg", "caption": ["a dog", "a puppy"]}
captions.csv      image,caption
                  a.jpg,a dog
                  a.jpg,a puppy
"""

import codecs
import contextlib
import csv
import functools
import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data.folder import File, images_of
from likewise.data.folder import listing as listing_of
from likewise.data.images import Listing
from likewise.data.items import NO_CAPTION, Captions, DataError, Skipped

FILES = ("captions.jsonl", "captions.csv")
IMAGES = ("image", "path", "file", "file_name", "filename")
TEXTS = ("caption", "captions", "text", "texts")
LONGEST = 200  # letters of a name that is no file's, for people

Line = tuple[int, Mapping[str, Any], str]  # its number, its columns, or why it has none


def clean(cell: Any) -> tuple[str, ...]:
    """The captions in a cell, which is a string, bytes or several of them; what is empty or not UTF-8 is none."""
    if isinstance(cell, list | tuple):
        return tuple(text for part in cell if isinstance(part, str | bytes) for text in clean(part))
    if isinstance(cell, bytes):
        try:
            cell = cell.decode("utf-8-sig")
        except UnicodeDecodeError:
            return ()
    text = " ".join(cell.split()) if isinstance(cell, str) else ""
    return (text,) if text and _is_text(text) else ()


def captions_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The captions of a row or JSON object, under the first usual name that has any."""
    return next((found for name in TEXTS if (found := clean(row.get(name)))), ())


def from_columns(columns: Mapping[str, Any], source: str, count: int | None = None) -> Captions:
    """The captions of all items, or of `count`, from columns (n,) or (n, several) of strings, each a further one."""
    rows: list[tuple[str, ...]] = [()] * (count or 0)
    for name, column in columns.items():
        # as objects, because lists may hold more captions of one item than of another
        array = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        if array.ndim not in (1, 2) or array.dtype.kind not in "USO":
            raise DataError(
                f"{name} must be strings of shape (n,) or (n, several), got {array.shape} of {array.dtype} in {source}"
            )
        if count is None:
            count, rows = len(array), [()] * len(array)
        if len(array) != count:
            raise DataError(f"{name} must have one entry an item, {count} in {source}, got {len(array)}")
        rows = [known + clean(cell) for known, cell in zip(rows, array.tolist(), strict=True)]
    return tuple(rows)


def file_of(files: Sequence[File], name: str) -> File | None:
    """The captions file at the top of a folder, where there is one."""
    found = [file for file in files if file.path in FILES]
    if len(found) > 1:
        raise DataError(f"expected one of {' and '.join(FILES)} in {name}, got both")
    return found[0] if found else None


def listing(root: Path, file: File, files: Sequence[File], skipped: tuple[Skipped, ...], name: str) -> Listing:
    """The images that the captions file names, of those among `files`, by their paths."""
    images = {image.path: image for image in images_of(files)}
    place = functools.cache(_Places(root, frozenset(images)))
    captions: dict[str, list[str]] = {}
    lines: list[Skipped] = []
    refused: dict[str, str] = {}
    try:
        for line, row, reason in _read(root / file.path, f"{name}{file.path}"):
            where = f"{file.path}, line {line}"
            image = _image_in(row)
            if not image:
                lines.append(Skipped(where, reason or "no image"))
                continue
            path, reason = place(image)
            if reason:
                refused[path] = reason
                continue
            texts = captions_in(row)
            captions.setdefault(path, []).extend(texts)
            if not texts:
                lines.append(Skipped(where, NO_CAPTION))
    except OSError as error:
        raise DataError(f"cannot read {name}{file.path}: {(error.strerror or str(error)).lower()}") from None
    skipped += (*lines, *(Skipped(*pair) for pair in sorted(refused.items())))
    # one that is named has been counted already, by itself or by its line
    skipped += tuple(Skipped(path, NO_CAPTION) for path in images if path not in captions and path not in refused)
    paths = sorted(path for path, texts in captions.items() if texts)
    if not paths:
        why = f"{skipped[0].path}: {skipped[0].reason}" if skipped else f"{file.path} is empty"
        raise DataError(f"no image with a caption in {name}: {why}")
    named = listing_of(root, [images[path] for path in paths], skipped)
    return replace(named, captions=tuple(tuple(captions[path]) for path in paths))


class _Places:
    """Where a named image lies below the folder, or why it cannot be used."""

    def __init__(self, root: Path, images: frozenset[str]) -> None:
        self.root, self.images = root, images
        self.real = Path(os.path.realpath(root))

    def __call__(self, image: str) -> tuple[str, str]:
        """The path among the images, and nothing; or the name made fit to show, and a reason."""
        path, real = posixpath.normpath(image), self.real
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have is not found
            real = Path(os.path.realpath(self.root / path))
        if posixpath.isabs(path) or path.split("/")[0] == ".." or not real.is_relative_to(self.real):
            return path if path in self.images else _shown(image), "outside the folder"
        if path not in self.images:  # below a link to a folder that is read by its own name
            path = real.relative_to(self.real).as_posix()
        if path in self.images:
            return path, ""
        return _shown(image), "hidden or not an image file" if os.path.isfile(real) else "not found"


def _image_in(row: Mapping[str, Any]) -> str:
    names = (row.get(name) for name in IMAGES)
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), "")


def _read(path: Path, name: str) -> Iterator[Line]:
    if path.name == FILES[0]:
        with path.open("rb") as binary:
            yield from _jsonl(binary)
    else:
        # bytes that are not UTF-8 become surrogates, so that only their own rows are left out
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            yield from _csv(text, name)


def _jsonl(file: Iterable[bytes]) -> Iterator[Line]:
    for number, line in enumerate(file, 1):
        content = line.removeprefix(codecs.BOM_UTF8).strip()
        if not content:
            continue
        try:
            found = json.loads(content.decode())
        except UnicodeDecodeError:
            yield number, {}, "not UTF-8"
        except (ValueError, RecursionError):
            yield number, {}, "not JSON"
        else:
            is_object = isinstance(found, dict)
            row = {key.lower(): value for key, value in found.items()} if is_object else {}
            yield number, row, "" if is_object else "not a JSON object"


def _csv(file: Iterable[str], name: str) -> Iterator[Line]:
    rows = csv.reader(file)
    header: list[str] = []
    with contextlib.suppress(csv.Error):
        header = [cell.strip().lower() for cell in next(rows, [])]
    for names in (IMAGES, TEXTS):
        if not any(column in names for column in header):
            got = _shown(", ".join(header)) or "nothing"
            raise DataError(f"expected a column {', '.join(names[:-1])} or {names[-1]} in {name}, got {got}")
    while True:
        number = rows.line_num + 1  # a row may have several lines
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, {}, f"not CSV: {error}"
            continue
        if len(cells) > len(header):  # as by a comma in a caption without quotes
            yield number, {}, f"{len(cells)} fields, not {len(header)}"
        elif not _is_text("".join(cells)):
            yield number, {}, "not UTF-8"
        elif cells:
            yield number, dict(zip(header, cells, strict=False)), ""


def _is_text(text: str) -> bool:
    """Whether the text can be written: half of a pair of surrogates, as JSON may have, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return " ".join(name.encode(errors="backslashreplace").decode().split())[:LONGEST]
