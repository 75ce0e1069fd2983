"""Read folders in which a file names the images and says something about them: captions, labels, groups, a test part.

captions.jsonl    {"image": "a.jpg", "caption": ["a dog", "a puppy"]}
captions.csv      image,caption
                  a.jpg,a dog
                  a.jpg,a puppy
metadata.csv      file_name,text
                  a.jpg,a dog

captions.jsonl and captions.csv lie at the top. metadata.csv and metadata.jsonl, as Hugging Face has them, may lie in
any folder, such as train/ and test/, and name images from there.
"""

import contextlib
import functools
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data import metadata_lines
from likewise.data.captions import TEXTS, clean, none_if_empty
from likewise.data.columns import CAPTIONS, picture_columns
from likewise.data.folder import File, images_of
from likewise.data.folder import listing as listing_of
from likewise.data.images import Listing
from likewise.data.items import NO_CAPTION, DataError, Skipped
from likewise.data.labels import collect_labels, grouped, is_test_cell, label_of, labelled, whole_numbers
from likewise.data.metadata_lines import shown

CAPTION_FILES = ("captions.jsonl", "captions.csv")
METADATA_FILES = ("metadata.jsonl", "metadata.csv")
IMAGES = ("image", "path", "file", "file_name", "filename")
USUAL_TEXTS = tuple((name,) for name in TEXTS)


@dataclass(frozen=True)
class Lists:
    """The files that say something about the images of a folder, and the columns that are read."""

    files: tuple[File, ...]
    named: Mapping[str, str]  # the columns that the user names, by role, in lower case
    # Names that the columns of captions may have: the first tuple counts of which any column holds a caption. If there
    # are none, the images have no captions.
    texts: tuple[tuple[str, ...], ...]
    ignored: tuple[str, ...] = ()  # paths of files by one of the usual names that are about something else

    @property
    def images(self) -> tuple[str, ...]:
        """The names that the column of images may have."""
        return _image_columns(self.named)

    @property
    def known(self) -> dict[str, str]:
        """The columns of labels, groups and test part, by role."""
        return {role: name for role, name in self.named.items() if role not in ("x", CAPTIONS)}


def captions_of(files: Sequence[File], name: str, columns: Mapping[str, str]) -> Lists | None:
    """Return the captions file at the top of a folder, or None if there is none."""
    caption_files = [file for file in files if file.path in CAPTION_FILES]
    if len(caption_files) > 1:
        raise DataError(f"expected one of {' and '.join(CAPTION_FILES)} in {name}, got both")
    return _lists(caption_files, columns, usual=USUAL_TEXTS) if caption_files else None


def metadata_of(root: Path, files: Sequence[File], name: str, columns: Mapping[str, str]) -> Lists | None:
    """Return the metadata files of a folder, or None if none of them has captions and the user names no columns."""
    by_folder: dict[str, list[File]] = {}
    for file in files:
        folder, base = posixpath.split(file.path)
        if base in METADATA_FILES:
            by_folder.setdefault(folder, []).append(file)
    for folder, in_folder in by_folder.items():
        if len(in_folder) > 1:
            where = f"{name}{folder}/" if folder else name
            raise DataError(f"expected one of {' and '.join(METADATA_FILES)} in {where}, got both")
    metadata_files = [file for in_folder in by_folder.values() for file in in_folder]
    images = _image_columns(columns)
    captioning = [file for file in metadata_files if _has_captions(root / file.path, images)]
    if not metadata_files or not (captioning or columns):
        return None
    if columns:  # the user says that they matter, so a file without these columns is an error
        return _lists(metadata_files, columns, usual=USUAL_TEXTS if captioning else ())
    ignored = tuple(file.path for file in metadata_files if file not in captioning)
    return replace(_lists(captioning, columns, usual=USUAL_TEXTS), ignored=ignored)


def _lists(files: Sequence[File], columns: Mapping[str, str], usual: tuple[tuple[str, ...], ...]) -> Lists:
    named = {role: name.lower() for role, name in columns.items()}
    texts = (tuple(name.strip() for name in named[CAPTIONS].split("+")),) if CAPTIONS in named else usual
    return Lists(tuple(files), named, texts)


def _image_columns(columns: Mapping[str, str]) -> tuple[str, ...]:
    return (columns["x"].lower(),) if "x" in columns else IMAGES


def _has_captions(path: Path, images: Sequence[str]) -> bool:
    """Return whether a file has a column of images and one with a usual name for captions."""

    def names_both(header: Sequence[str]) -> bool:
        return any(name in images for name in header) and any(name in TEXTS for name in header)

    try:
        return names_both(metadata_lines.columns_of(path, names_both))
    except OSError:  # then it says nothing
        return False


@dataclass
class _Known:
    """What the lines say about one image."""

    texts: list[str] = field(default_factory=list)
    cells: dict[str, list[Any]] = field(default_factory=dict)  # by role, one for each line


def listing(root: Path, lists: Lists, files: Sequence[File], skipped: tuple[Skipped, ...], name: str) -> Listing:
    """Return the images among `files`, sorted by path: those with a caption, or all if there are no captions."""
    images = {image.path: image for image in images_of(files)}
    known: dict[str, _Known] = {}
    unusable: dict[str, str] = {}
    seen: set[str] = set()  # names of columns
    why = "it has no columns of images and captions, or cannot be opened"
    notes = tuple(f"{path} is not read: {why}" for path in lists.ignored)
    for file in lists.files:
        try:
            skips, said = _read(root, file, lists, frozenset(images), known, unusable, seen, name)
        except OSError as error:
            raise DataError(f"cannot read {name}{file.path}: {(error.strerror or str(error)).lower()}") from None
        skipped, notes = skipped + skips, notes + said
    if seen:
        picture_columns(lists.named, seen, name)  # refuses names that are not there
    skipped += tuple(Skipped(*pair) for pair in sorted(unusable.items()))
    paths = sorted(images)
    if lists.texts:
        # an image that the file names has been counted above, by its own path or by its line
        skipped += tuple(Skipped(path, NO_CAPTION) for path in images if path not in known and path not in unusable)
        paths = sorted(path for path, about in known.items() if about.texts)
        if not paths:
            why = f"{skipped[0].path}: {skipped[0].reason}" if skipped else f"{lists.files[0].path} is empty"
            raise DataError(f"no image with a caption in {name}: {why}")
    abouts = [known.get(path, _Known()) for path in paths]
    texts = none_if_empty([tuple(about.texts) for about in abouts])
    images_listing = listing_of(root, [images[path] for path in paths], skipped)
    return replace(images_listing, captions=texts, notes=notes, **_by_role(lists, paths, abouts, name))


def _read(
    root: Path,
    file: File,
    lists: Lists,
    images: frozenset[str],
    known: dict[str, _Known],
    unusable: dict[str, str],
    seen: set[str],
    name: str,
) -> tuple[tuple[Skipped, ...], tuple[str, ...]]:
    """Read one file into `known` and `unusable`, by path, and `seen`; return the lines that are skipped, and notes."""
    encoding = metadata_lines.encoding_of(root / file.path)
    locator = _Locator(root, posixpath.dirname(file.path), images)
    locate = functools.cache(locator)
    texts = tuple(name for names in lists.texts for name in names)
    needed = [names for names in (lists.images, texts) if names]
    skipped: list[Skipped] = []
    for line, row, reason in metadata_lines.read(root / file.path, encoding, needed, f"{name}{file.path}"):
        where = f"{file.path}, line {line}"
        seen.update(row)
        image = _image_in(row, lists.images)
        if not image:
            skipped.append(Skipped(where, reason or "no image"))
            continue
        path, reason = locate(image)
        if reason:
            unusable[path] = reason
            continue
        about = known.setdefault(path, _Known())
        texts = _texts_in(row, lists.texts)
        about.texts.extend(texts)
        for role, column in lists.known.items():
            about.cells.setdefault(role, []).append(row.get(column))
        if lists.texts and not texts:
            skipped.append(Skipped(where, NO_CAPTION))
    notes = [*metadata_lines.note_of_encoding(file.path, encoding)]
    if count := len(locator.with_backslashes):
        names = f"{count:,} image{'s' * (count > 1)}"
        notes.append(f"{file.path} names {names} with backslashes, which are read as slashes")
    return tuple(skipped), tuple(notes)


def _by_role(lists: Lists, paths: Sequence[str], abouts: Sequence[_Known], name: str) -> dict[str, Any]:
    """Return labels, groups and test part as far as the user names columns for them."""
    found: dict[str, Any] = {}
    for role, column in lists.known.items():
        cells = [_one(about.cells.get(role, []), role, column, path) for path, about in zip(paths, abouts, strict=True)]
        what = f"{column} of {name}"
        if role == "is_test":
            found["test"] = np.array([cell is not None and is_test_cell(cell, what) for cell in cells], dtype=np.bool_)
            continue
        values = collect_labels(whole_numbers([label_of(cell, what) for cell in cells]))
        if role == "y":
            found["labels"], found["classes"] = (None, ()) if values is None else labelled(values)
        else:
            found["groups"] = None if values is None else grouped(values)
    return found


def _one(cells: Sequence[Any], role: str, column: str, path: str) -> Any:
    """Return the cell that all lines of an image share, or None; only labels may differ, and are then None."""
    given = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
    given = [cell for cell in given if cell not in (None, "")]
    if all(cell == given[0] for cell in given):
        return given[0] if given else None
    if role != "y":
        raise DataError(f"{column} must be the same in all lines of an image, got several for {path}")
    return None


class _Locator:
    """Find the path of a named image below the folder, or why it cannot be used.

    `place` is the folder that names are relative to, itself relative to `root`.
    """

    def __init__(self, root: Path, place: str, images: frozenset[str]) -> None:
        self.root, self.place, self.images = root, place, images
        self.real = Path(os.path.realpath(root))
        self.with_backslashes: set[str] = set()

    def __call__(self, image: str) -> tuple[str, str]:
        """Return the image's path and an empty string, or its name as shown in messages and the reason."""
        path, reason = self._find(image)
        if reason and "\\" in image:  # a path as Windows writes it
            path, reason = self._find(image.replace("\\", "/"))
            if not reason:
                self.with_backslashes.add(image)
        return path, reason

    def _find(self, image: str) -> tuple[str, str]:
        path, real = posixpath.normpath(posixpath.join(self.place, image)), self.real
        with contextlib.suppress(OSError, ValueError):  # a name that is not a valid path counts as not found
            real = Path(os.path.realpath(self.root / path))
        if posixpath.isabs(path) or path.split("/")[0] == ".." or not real.is_relative_to(self.real):
            return path if path in self.images else shown(image), "outside the folder"
        if path not in self.images:  # it lies below a link to a folder, whose files are listed by their real paths
            path = real.relative_to(self.real).as_posix()
        if path in self.images:
            return path, ""
        return shown(image), "hidden or not an image file" if os.path.isfile(real) else "not found"


def _image_in(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    names = (row.get(column) for column in columns)
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), "")


def _texts_in(row: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the captions of the first tuple of columns that holds any."""
    found = (tuple(text for name in names for text in clean(row.get(name))) for names in columns)
    return next(filter(None, found), ())
