"""Clean captions, and read folders in which one file names the images with their captions.

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
LONGEST = 200  # letters that are shown of a name in messages

Line = tuple[int, Mapping[str, Any], str]  # the line's number, its columns, and the reason if it has none


def clean(cell: Any) -> tuple[str, ...]:
    """Return the captions in a cell, which is a string, bytes or a list of them, without empty or invalid ones."""
    if isinstance(cell, list | tuple):
        return tuple(text for entry in cell if isinstance(entry, str | bytes) for text in clean(entry))
    if isinstance(cell, bytes):
        try:
            cell = cell.decode("utf-8-sig")
        except UnicodeDecodeError:
            return ()
    text = " ".join(cell.split()) if isinstance(cell, str) else ""
    return (text,) if text and _is_text(text) else ()


def captions_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the captions of a row or JSON object: those under the first of the usual names that has any."""
    return next((captions for name in TEXTS if (captions := clean(row.get(name)))), ())


def none_if_empty(texts: Sequence[tuple[str, ...]]) -> Captions | None:
    """Return the texts of all items, or None if no item has any."""
    return tuple(texts) if any(texts) else None


def from_columns(columns: Mapping[str, Any], source: str, count: int | None = None) -> Captions:
    """Return the captions of all items, collected from columns (n,) or (n, several) of strings.

    `count` is the number of items, if it is known; each column adds captions to every item.
    """
    rows: list[tuple[str, ...]] = [()] * (count or 0)
    for name, column in columns.items():
        # as objects, because lists may hold different numbers of captions per item
        array = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        if array.ndim not in (1, 2) or array.dtype.kind not in "USO":
            raise DataError(
                f"{name} must be strings of shape (n,) or (n, several), got {array.shape} of {array.dtype} in {source}"
            )
        if count is None:
            count, rows = len(array), [()] * len(array)
        if len(array) != count:
            raise DataError(f"{name} must have one entry per item, {count} in {source}, got {len(array)}")
        rows = [captions + clean(cell) for captions, cell in zip(rows, array.tolist(), strict=True)]
    return tuple(rows)


def file_of(files: Sequence[File], name: str) -> File | None:
    """Return the captions file at the top of a folder, or None if there is none."""
    caption_files = [file for file in files if file.path in FILES]
    if len(caption_files) > 1:
        raise DataError(f"expected one of {' and '.join(FILES)} in {name}, got both")
    return caption_files[0] if caption_files else None


def listing(root: Path, file: File, files: Sequence[File], skipped: tuple[Skipped, ...], name: str) -> Listing:
    """Return the images among `files` that the captions file names, sorted by path."""
    images = {image.path: image for image in images_of(files)}
    locate = functools.cache(_Locator(root, frozenset(images)))
    captions: dict[str, list[str]] = {}
    skipped_lines: list[Skipped] = []
    unusable: dict[str, str] = {}
    try:
        for line, row, reason in _read(root / file.path, f"{name}{file.path}"):
            where = f"{file.path}, line {line}"
            image = _image_in(row)
            if not image:
                skipped_lines.append(Skipped(where, reason or "no image"))
                continue
            path, reason = locate(image)
            if reason:
                unusable[path] = reason
                continue
            texts = captions_in(row)
            captions.setdefault(path, []).extend(texts)
            if not texts:
                skipped_lines.append(Skipped(where, NO_CAPTION))
    except OSError as error:
        raise DataError(f"cannot read {name}{file.path}: {(error.strerror or str(error)).lower()}") from None
    skipped += (*skipped_lines, *(Skipped(*pair) for pair in sorted(unusable.items())))
    # an image that the captions file names has been counted above, by its own path or by its line
    skipped += tuple(Skipped(path, NO_CAPTION) for path in images if path not in captions and path not in unusable)
    paths = sorted(path for path, texts in captions.items() if texts)
    if not paths:
        why = f"{skipped[0].path}: {skipped[0].reason}" if skipped else f"{file.path} is empty"
        raise DataError(f"no image with a caption in {name}: {why}")
    images_listing = listing_of(root, [images[path] for path in paths], skipped)
    return replace(images_listing, captions=tuple(tuple(captions[path]) for path in paths))


class _Locator:
    """Find the path of a named image below the folder, or why it cannot be used."""

    def __init__(self, root: Path, images: frozenset[str]) -> None:
        self.root, self.images = root, images
        self.real = Path(os.path.realpath(root))

    def __call__(self, image: str) -> tuple[str, str]:
        """Return the image's path and an empty string, or its name as shown in messages and the reason."""
        path, real = posixpath.normpath(image), self.real
        with contextlib.suppress(OSError, ValueError):  # a name that is not a valid path counts as not found
            real = Path(os.path.realpath(self.root / path))
        if posixpath.isabs(path) or path.split("/")[0] == ".." or not real.is_relative_to(self.real):
            return path if path in self.images else _shown(image), "outside the folder"
        if path not in self.images:  # it lies below a link to a folder, whose files are listed by their real paths
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
        # bytes that are not UTF-8 become surrogates, so that only the rows that hold them are skipped
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            yield from _csv(text, name)


def _jsonl(file: Iterable[bytes]) -> Iterator[Line]:
    for number, line in enumerate(file, 1):
        content = line.removeprefix(codecs.BOM_UTF8).strip()
        if not content:
            continue
        try:
            parsed = json.loads(content.decode())
        except UnicodeDecodeError:
            yield number, {}, "not UTF-8"
        except (ValueError, RecursionError):
            yield number, {}, "not JSON"
        else:
            is_object = isinstance(parsed, dict)
            row = {key.lower(): value for key, value in parsed.items()} if is_object else {}
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
        if len(cells) > len(header):  # for example because of a comma in a caption without quotes
            yield number, {}, f"{len(cells)} fields, not {len(header)}"
        elif not _is_text("".join(cells)):
            yield number, {}, "not UTF-8"
        elif cells:
            yield number, dict(zip(header, cells, strict=False)), ""


def _is_text(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; a lone surrogate, which JSON may hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """Return a name on one line, shortened, with undecodable bytes escaped."""
    return " ".join(name.encode(errors="backslashreplace").decode().split())[:LONGEST]
