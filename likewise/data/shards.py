"""List the images in WebDataset tar files, without unpacking them to disk."""

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from likewise.data.captions import captions_in, clean, none_if_empty
from likewise.data.folder import File
from likewise.data.images import EXTENSIONS, Listing, Opener, extension
from likewise.data.items import DataError, Skipped
from likewise.data.labels import collect_labels, labelled, split_of, split_test


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
    test = split_test([split_of(path.removesuffix(f"/{sample.path}")) for path, _, sample in entries])

    def openers(rows: Sequence[int]) -> Iterator[Opener]:
        return (partial(_member, entries[row][1], entries[row][2]) for row in rows)

    paths = tuple(path for path, _, _ in entries)
    captions = none_if_empty([sample.caption or sample.described for _, _, sample in entries])
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
