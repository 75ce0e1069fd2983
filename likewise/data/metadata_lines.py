"""Read the lines of a CSV or JSONL file that says something about images, in whatever way it was saved.

Spreadsheets save text as UTF-8 or, in Western Europe, as Windows-1252, and separate cells by commas, semicolons or
tabs.
"""

import codecs
import contextlib
import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from likewise.data.captions import is_text
from likewise.data.items import DataError

DELIMITERS = (",", ";", "\t")
UTF_8, WINDOWS = "utf-8-sig", "cp1252"
LONGEST = 200  # letters that are shown of a name in messages
# Words of other alphabets are saved as many such bytes in a row; in Western European text such a letter is often alone.
OTHER_ALPHABET = re.compile(rb"[\x80-\xff]{4}|\0")

Line = tuple[int, Mapping[str, Any], str]  # the line's number, its columns in lower case, and the reason if it has none


def encoding_of(path: Path) -> str:
    """Return the encoding of a text file: Windows-1252 if most lines that are not plain ASCII can only be that."""
    utf_8, windows = 0, 0
    with path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            try:
                line.decode()
                utf_8 += 1
            except UnicodeDecodeError:
                windows += 1
                if OTHER_ALPHABET.search(line):
                    return UTF_8
    return WINDOWS if windows > utf_8 else UTF_8


def note_of_encoding(path: str, encoding: str) -> tuple[str, ...]:
    """Return a note about a file that is not read as UTF-8."""
    return (f"{path} is not UTF-8: it is read as Windows-1252, which includes Latin-1",) if encoding == WINDOWS else ()


def read(path: Path, encoding: str, needed: Sequence[Sequence[str]], name: str) -> Iterator[Line]:
    """Yield the lines of a file that have content.

    A CSV file must have a column for each entry of `needed`, which lists the names that it may have.
    """
    if is_jsonl(path.name):
        with path.open("rb") as binary:
            yield from _jsonl(binary, encoding)
    else:
        # bytes that cannot be decoded become surrogates, so that only the rows that hold them are skipped
        with path.open(encoding=encoding, errors="surrogateescape", newline="") as text:
            yield from _csv(text, needed, name)


def columns_of(path: Path, is_chosen: Callable[[Sequence[str]], bool], encoding: str = UTF_8) -> list[str]:
    """Return the names of the columns, in lower case: of a CSV file's header, or of the first JSON object.

    `is_chosen` says whether names make sense, to find out what separates the cells of a CSV file.
    """
    if is_jsonl(path.name):
        with path.open("rb") as binary:  # Latin-1 can decode every byte, and the names are seldom more than ASCII
            return next((list(row) for _, row, reason in _jsonl(binary, "latin-1") if not reason), [])
    with path.open(encoding=encoding, errors="surrogateescape", newline="") as text:
        return _header(text, is_chosen)[1]


def is_jsonl(name: str) -> bool:
    return name.lower().endswith(".jsonl")


def _jsonl(file: Iterable[bytes], encoding: str) -> Iterator[Line]:
    for number, line in enumerate(file, 1):
        content = line.removeprefix(codecs.BOM_UTF8).strip()
        if not content:
            continue
        try:
            parsed = json.loads(content.decode(encoding))
        except UnicodeDecodeError:
            yield number, {}, "not UTF-8"
        except (ValueError, RecursionError):
            yield number, {}, "not JSON"
        else:
            is_object = isinstance(parsed, dict)
            row = {key.lower(): value for key, value in parsed.items()} if is_object else {}
            yield number, row, "" if is_object else "not a JSON object"


def _csv(file: Iterable[str], needed: Sequence[Sequence[str]], name: str) -> Iterator[Line]:
    def missing(header: Sequence[str]) -> Sequence[str] | None:
        return next((names for names in needed if not any(column in names for column in header)), None)

    rows, header = _header(file, lambda header: missing(header) is None)
    if names := missing(header):
        got = shown(", ".join(header)) or "nothing"
        expected = " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        raise DataError(f"expected a column {expected} in {name}, got {got}")
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
        elif not is_text("".join(cells)):
            yield number, {}, "not UTF-8"
        elif cells:
            yield number, dict(zip(header, cells, strict=False)), ""


def _header(file: Iterable[str], is_chosen: Callable[[Sequence[str]], bool]) -> tuple[Any, list[str]]:
    """Return a reader of the rows after the header, and the header: in the first chosen way, else the likeliest one."""
    lines = iter(file)
    first = next(lines, "")
    chosen = (mark for mark in DELIMITERS if is_chosen(_names(csv.reader([first], delimiter=mark))))
    delimiter = next(chosen, max(DELIMITERS, key=first.count))
    rows = csv.reader(itertools.chain([first], lines), delimiter=delimiter)
    return rows, _names(rows)


def _names(rows: Iterator[list[str]]) -> list[str]:
    with contextlib.suppress(csv.Error):
        return [cell.strip().lower() for cell in next(rows, [])]
    return []


def shown(name: str) -> str:
    """Return a name on one line, shortened, with undecodable bytes escaped."""
    return " ".join(name.encode(errors="backslashreplace").decode().split())[:LONGEST]
