"""List the images in Parquet files and in WebDataset tar files, without unpacking them to disk."""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from likewise.data.builtin import needed
from likewise.data.captions import TEXTS, captions_in, clean
from likewise.data.folder import File
from likewise.data.images import EXTENSIONS, PEEKED, Listing, Opener, extension, from_memory
from likewise.data.items import Captions, DataError, Skipped
from likewise.data.labels import SPLITS, collect_labels, labelled, split_test
from likewise.data.memory import check_fits

IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "photo")
LABEL_COLUMNS = ("label", "labels", "y", "class")
ROW = 300  # bytes of memory per row: its path, label and caption
BATCH = 64  # rows of a Parquet file that are in memory at once


def _split(path: str) -> str:
    """Return the split that a path names, as in `train/0.tar` or `data/test-00000-of-00002.parquet`; empty if none."""
    words = [re.split(r"[-_.\d]", part, maxsplit=1)[0] for part in path.lower().split("/")]
    return next((word for word in words if word in SPLITS), "")


def _captions(texts: Sequence[tuple[str, ...]]) -> Captions | None:
    """Return the texts of all rows, or None if no row has any."""
    return tuple(texts) if any(texts) else None


# Parquet


def parquet_listing(root: Path, files: Sequence[File]) -> Listing:
    """Return the images of one Parquet file, or of several in the order of their names; each row is one."""
    parquet = needed("pyarrow.parquet", "Parquet", "parquet")
    tables = [_Table.of(parquet, root, file.path) for file in files]
    starts = np.cumsum([0, *(table.rows for table in tables)]).tolist()
    values = [value for table in tables for value in table.labels]
    column = collect_labels(values)
    labels, classes = (None, ()) if column is None else labelled(column, tables[0].names)
    splits = [_split(table.path) for table in tables for _ in range(table.rows)]

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        wanted = np.asarray(rows)
        for table, start in zip(tables, starts, strict=False):
            yield from table.openers(wanted[(wanted >= start) & (wanted < start + table.rows)] - start)

    groups = [start + first for table, start in zip(tables, starts, strict=False) for first in table.firsts]
    paths = tuple(f"{table.path}#{row}" for table in tables for row in range(table.rows))
    return Listing(
        paths,
        openers,
        labels,
        classes,
        split_test(splits),
        peek=_heads(groups, len(paths)),
        captions=_captions([texts for table in tables for texts in table.captions]),
    )


def _heads(groups: list[int], count: int) -> list[int]:
    """Return the first rows of some row groups, because other rows cannot be read without reading the whole group."""
    picked = sorted({groups[round(index)] for index in np.linspace(0, len(groups) - 1, 8)}) if groups else []
    stops = [*groups, count]
    return [row for first in picked for row in range(first, min(first + PEEKED // 8, stops[stops.index(first) + 1]))]


@dataclass(frozen=True)
class _Table:
    parquet: ModuleType
    file: Path
    path: str
    column: str
    rows: int
    firsts: list[int]  # the first row of each row group
    labels: list[int | str | None]
    names: list[str]  # class names, if Hugging Face's metadata have them
    captions: list[tuple[str, ...]]  # an empty tuple for a row without a caption

    @classmethod
    def of(cls, parquet: ModuleType, root: Path, path: str) -> "_Table":
        location = root / path
        try:
            with parquet.ParquetFile(location) as table:
                schema, metadata = table.schema_arrow, table.metadata
                check_fits(metadata.num_rows * ROW, path)
                column = _image_column(schema, path)
                label, caption = _label_column(schema), _caption_column(schema)
                labels = table.read(columns=[label])[label].to_pylist() if label else [None] * metadata.num_rows
                texts = table.read(columns=[caption])[caption].to_pylist() if caption else [()] * metadata.num_rows
                sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        except DataError:
            raise
        except (OSError, ValueError) as error:  # Arrow's errors derive from these two
            raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
        firsts = [first for first, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False) if size]
        names, captions = _hugging_names(schema, label), [clean(cell) for cell in texts]
        return cls(parquet, location, path, column, sum(sizes), firsts, labels, names, captions)

    def openers(self, rows: Any) -> Iterator[Opener]:
        """Yield openers of these rows, reading only the row groups that hold them, up to the last such row."""
        with self.parquet.ParquetFile(self.file) as table:
            first = 0
            for group in range(table.metadata.num_row_groups):
                size = table.metadata.row_group(group).num_rows
                wanted = (rows[(rows >= first) & (rows < first + size)] - first).tolist()
                first += size
                row = 0
                try:
                    for batch in table.iter_batches(BATCH, row_groups=[group], columns=[self.column]) if wanted else ():
                        cells = batch.column(0)
                        while wanted and wanted[0] < row + len(cells):
                            yield _cell(cells[wanted.pop(0) - row].as_py())
                        row += len(cells)
                        if not wanted:
                            break
                except (OSError, ValueError) as error:  # damaged: the rest of this row group is lost, others are read
                    yield from [partial(_raise, error)] * len(wanted)


def _cell(cell: Any) -> Opener:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return from_memory(content) if content is not None else _nothing


def _raise(error: Exception) -> BinaryIO:
    raise error


def _nothing() -> BinaryIO:
    raise DataError("no image in this row")


def _image_column(schema: Any, path: str) -> str:
    def holds_bytes(kind: Any) -> bool:
        if kind.num_fields and str(kind).startswith("struct"):
            fields = [kind.field(i) for i in range(kind.num_fields)]
            return any(part.name == "bytes" and holds_bytes(part.type) for part in fields)
        return str(kind).startswith(("binary", "large_binary", "fixed_size_binary"))

    columns = [column.name for column in schema if holds_bytes(column.type)]
    if not columns:
        got = ", ".join(f"{column.name} ({column.type})" for column in schema)
        raise DataError(f"expected a column of image bytes in {path}, got {got[:200] or 'no columns'}")
    preferred = (column for name in IMAGE_COLUMNS for column in columns if column.lower() == name)
    return str(next(preferred, columns[0]))


def _label_column(schema: Any) -> str | None:
    kinds = {column.name: str(column.type) for column in schema}
    for name in LABEL_COLUMNS:
        if kinds.get(name, "").startswith(("int", "uint", "string", "large_string", "dictionary")):
            return name
    return None


def _caption_column(schema: Any) -> str | None:
    def holds_text(kind: Any) -> bool:
        inner = getattr(kind, "value_type", kind)  # the type inside a list or a dictionary
        return str(inner).startswith(("string", "large_string"))

    columns = {column.name.lower(): str(column.name) for column in schema if holds_text(column.type)}
    return next((columns[name] for name in TEXTS if name in columns), None)


def _hugging_names(schema: Any, label: str | None) -> list[str]:
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return []


# tar


@dataclass
class _Sample:
    """All that a shard holds under one key: the position of its image, its label and its captions."""

    path: str = ""
    offset: int = 0
    size: int = 0
    exact: bool = False  # whether the image is key.jpg rather than key.mask.jpg
    label: int | str | None = None
    caption: tuple[str, ...] = ()  # from key.txt
    described: tuple[str, ...] = ()  # from key.json, which often repeats the caption of key.txt

    def learn(self, kind: str, content: bytes, member: str) -> None:
        """Take the label or captions from a member that lies beside the image."""
        if kind == "txt":
            self.caption = clean(content)
            return
        try:
            value = int(content) if kind == "cls" else json.loads(content)
        except ValueError:
            expected = "a whole number" if kind == "cls" else "JSON"
            raise DataError(f"{member} must hold {expected}, got {content[:20]!r}") from None
        if kind == "cls":
            self.label = value
        elif isinstance(value, dict):
            self.described = captions_in(value)
            if self.label is None and isinstance(value.get("label"), int | str):
                self.label = value["label"]


def tar_listing(root: Path, files: Sequence[File]) -> Listing:
    """Return the images of one tar file or of several; of a damaged one, those before the damage."""
    entries: list[tuple[str, Path, _Sample]] = []
    skipped: list[Skipped] = []
    for file in files:
        samples: dict[str, _Sample] = {}
        try:
            _scan(root / file.path, samples)
        except (tarfile.TarError, OSError, EOFError) as error:
            skipped.append(Skipped(file.path, str(error) or type(error).__name__))
        with_image = [(f"{file.path}/{s.path}", root / file.path, s) for s in samples.values() if s.path]
        entries.extend(sorted(with_image, key=lambda entry: entry[0]))
    column = collect_labels([sample.label for _, _, sample in entries])
    labels, classes = (None, ()) if column is None else labelled(column)
    test = split_test([_split(path.removesuffix(f"/{sample.path}")) for path, _, sample in entries])

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        return (partial(_member, entries[row][1], entries[row][2]) for row in rows)

    paths = tuple(path for path, _, _ in entries)
    captions = _captions([sample.caption or sample.described for _, _, sample in entries])
    return Listing(paths, openers, labels, classes, test, captions=captions, skipped=tuple(skipped))


def _scan(path: Path, samples: dict[str, _Sample]) -> None:
    with tarfile.open(path, "r:") as shard:
        while (member := shard.next()) is not None:
            vars(shard)["members"] = []  # otherwise tarfile keeps every header in memory
            folder, _, base = member.name.rpartition("/")
            stem, _, kind = base.partition(".")
            if not member.isreg() or member.sparse is not None or not stem:
                continue
            sample = samples.setdefault(f"{folder}/{stem}", _Sample())
            kind = kind.lower()
            if extension(kind) in EXTENSIONS and (not sample.path or (kind in EXTENSIONS and not sample.exact)):
                sample.path, sample.exact = member.name, kind in EXTENSIONS
                sample.offset, sample.size = member.offset_data, member.size
            elif kind in ("cls", "json", "txt") and (content := shard.extractfile(member)) is not None:
                sample.learn(kind, content.read(), member.name)


def _member(shard: Path, sample: _Sample) -> BinaryIO:
    with shard.open("rb") as file:
        file.seek(sample.offset)
        return io.BytesIO(file.read(sample.size))
