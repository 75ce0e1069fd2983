"""Read a folder of texts, in which every .txt file is one item, in class folders or not."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from likewise.data import unread
from likewise.data.folder import File
from likewise.data.items import Items, Skipped
from likewise.data.labels import from_paths
from likewise.data.memory import check_fits
from likewise.data.metadata_lines import WINDOWS, note_of_encoding
from likewise.data.texts import UNDECODABLE, Collector, encoding_of, open_text

EMPTY = "it is empty"


def documents_of(files: Sequence[File]) -> tuple[File, ...]:
    """Return the .txt files of a folder of texts, or none if the folder holds something else.

    Images may come with a .txt file each, and one more that explains these. So a folder is one of texts only if it has
    more than twice as many of them as of all other files, apart from those that describe data.
    """
    documents = tuple(file for file in files if _is_text(file.path) and not _is_documentation(file.path))
    others = [file for file in files if not _is_text(file.path) and unread.may_be_data(file.path)]
    if any(unread.ending_of(file.path) in ("tar", "parquet") for file in others):
        return ()  # one file may hold thousands of items
    return documents if len(documents) > 2 * len(others) else ()


def _is_text(path: str) -> bool:
    return unread.ending_of(path) == "txt"


def _is_documentation(path: str) -> bool:
    return PurePosixPath(path).stem.lower() in unread.SIDE_NAMES


def from_folder(root: Path, files: Sequence[File], name: str) -> Items:
    """Return the texts of whole files, labelled by their class folders."""
    check_fits(2 * sum(file.size for file in files), name)
    labels, classes, test = from_paths([file.path for file in files])
    collector = Collector()
    rows: list[int] = []
    windows: list[str] = []
    for row, file in enumerate(files):
        try:
            encoding = encoding_of(root / file.path)
            with open_text(root / file.path, encoding) as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror or "unreadable").lower() if isinstance(error, OSError) else UNDECODABLE
            collector.skipped.append(Skipped(file.path, reason))
            continue
        if not text or text.isspace():
            collector.skipped.append(Skipped(file.path, EMPTY))
            continue
        known = [column if column is None else int(column[row]) for column in (labels, test)]
        if collector.add(text, file.path, *known):
            rows.append(row)
            windows += [file.path] * (encoding == WINDOWS)
    return collector.items(
        name,
        "file",
        paths=tuple(collector.paths),
        labels=None if labels is None else labels[rows],
        classes=classes,
        test=None if test is None else test[rows],
        notes=_note_of_encodings(windows),
    )


def _note_of_encodings(windows: Sequence[str]) -> tuple[str, ...]:
    """Return a note about the files that are read as Windows-1252."""
    if len(windows) < 2:
        return note_of_encoding(windows[0], WINDOWS) if windows else ()
    return (f"{len(windows):,} files are not UTF-8: they are read as Windows-1252, which includes Latin-1",)
