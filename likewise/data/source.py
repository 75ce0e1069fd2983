"""`open`: what a source is, and who reads it."""

import dataclasses
import difflib
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data import arrays, audio, captions, classic, folder, shards, tables, unread
from likewise.data.builtin import NAMES, builtin
from likewise.data.cache import Plan, cache_folder, cache_key, fetch, noted
from likewise.data.clips import from_clips
from likewise.data.folder import File
from likewise.data.images import EXTENSIONS, FITS, LARGEST_DEFAULT, Listing, decoding, median_side
from likewise.data.items import AUDIO, IMAGE, DataError, Items, Skipped, digest, fingerprint, make
from likewise.data.sequences import Sequences
from likewise.data.unread import IMAGES, RECORDINGS, SHARDS, TABLES
from likewise.memory import shortage

Source = str | os.PathLike[str] | NDArray[Any] | Mapping[str, Any] | Items
KINDS = "a folder of images or audio, .npy, .npz, .csv, .parquet, .tar or an idx images file"
KEPT = ("labels", "classes", "groups", "test", "paths", "captions", "skipped")  # of items at another rate


@dataclass(frozen=True)
class _Wish:
    """What `open` was asked for."""

    name: str  # the source as given
    size: int | None
    fit: str
    rate: int | None
    columns: Mapping[str, str]
    place: Path  # of the cache
    progress: bool

    def without_columns(self) -> None:
        """For sources whose parts have no names."""
        if self.columns:
            raise DataError(f"columns can be named in .npz files, .csv and Parquet series, got {self.name}")


def open(  # noqa: A001
    source: Source,
    *,
    size: int | None = None,
    fit: str = "crop",
    rate: int | None = None,
    columns: Mapping[str, str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Items:
    """Open a source of images, vectors or sequences as rows of one array.

    The source is a folder of images or of audio (in class folders or not), a folder of images whose
    captions are in `captions.jsonl` or `captions.csv`, a `.npy` or `.npz` file, a `.csv` or Parquet file of
    time series or a folder of them, MNIST's idx files, CIFAR's folder, a Parquet file of images or WebDataset
    tar file or a folder of them, a built-in name (`digits`, `mnist5k`, `sounds`, `shapes`; a path of that name comes
    first), an array, a dictionary of arrays named as in an `.npz`, or `Items`.

    Encoded images become RGB squares of side `size`, as `fit` says: "crop" scales the shorter side to it and keeps
    the middle, "pad" scales the longer side to it and fills the rest with white, "stretch" scales each side by
    itself. Without a size it is the median shorter side of some of them, at most 64. Arrays of images keep their
    size and layout of channels unless a size is given; "pad" and "stretch" make those square that are not, at
    their shorter side.

    Audio (WAV, FLAC, Ogg, Opus, MP3) becomes one channel of int16 at `rate` samples a second: 16,000 without one,
    or 8,000 where most files have less. Arrays of audio keep their rate unless one is given; other series
    always do. Floating arrays (n, t, c) are series, unless t = c: then they are grey images.

    Files are decoded once, into `cache`, else the folder that `LIKEWISE_CACHE` names, else the user's
    cache folder.

    `columns` say which array of an `.npz`, or which column of a table, is what: {"y": "digit", "group":
    "speaker"}. Captions may be several arrays: {"captions": "title+keywords"}. Series in tables have the
    roles sequence, time, y, group, is_test and channels ({"channels": "ax+ay+az"}). Without the last, all other
    numbers are channels but those that look like a time or an index, are constant or only count up; these are
    listed in `table.left_out`. Without a time, a column that looks like one orders the rows where that is certain.

    Captions are `captions` (n,) or (n, several) of an `.npz`, a line each of `captions.jsonl` ({"image":
    "a.jpg", "caption": "a dog"}; several as a list) or of `captions.csv` (image,caption), `key.txt` beside
    `key.jpg` in tar files or `caption` in its `key.json`, and a column `caption` or `text` beside the images
    in Parquet. Where some items have captions, those without are left out.

    Arrays of images (n, v, h, w, c) or (n, v, c, h, w) are v views of each item: n · v rows, item by item,
    whose group is their item unless `columns` name another; `views` (v,) of an `.npz` are their names.

    What cannot be read or used is left out and listed in `skipped`, and so are the files of a folder that are of
    another kind than most, documentation aside; where that is all, it is a `DataError`.
    """
    wish = _Wish(
        name=os.fspath(source) if isinstance(source, str | os.PathLike) else _described(source),
        size=_whole("size", size),
        fit=_fit(fit),
        rate=_whole("rate", rate),
        columns=_columns(columns),
        place=cache_folder(cache),
        progress=progress,
    )
    if words := shortage(3 * (wish.size or 0) ** 2):
        raise DataError(f"size must be a side of images that fit in memory, got {wish.size:,}: one would take {words}")
    if isinstance(source, Mapping):
        return arrays.from_mapping(source, wish.name, wish.size, fit=wish.fit, rate=wish.rate, columns=wish.columns)
    if isinstance(source, Items):
        wish.without_columns()
        return _changed(source, wish)
    if isinstance(source, np.ndarray):
        wish.without_columns()
        return arrays.from_array(source, wish.name, wish.size, fit=wish.fit)
    if not isinstance(source, str | os.PathLike):
        got = type(source).__name__
        raise DataError(f"source must be a path, one of {', '.join(NAMES)}, an array or a dict of arrays, got {got}")
    path = Path(source).expanduser()
    if not os.path.lexists(path):
        if wish.name in NAMES:
            wish.without_columns()
            return _changed(builtin(wish.name, wish.size), wish)
        nearest = difflib.get_close_matches(wish.name, NAMES, n=1)
        hint = f"; the nearest built-in is {nearest[0]}" if nearest else ""
        raise FileNotFoundError(f"data not found: {wish.name}{hint}")
    return _folder(path, wish) if path.is_dir() else _file(path, wish)


def _whole(key: str, value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise DataError(f"{key} must be a whole number >= 1, got {value!r}")
    return int(value)


def _fit(fit: str) -> str:
    if fit not in tuple(FITS):  # what comes from a file may have no hash
        raise DataError(f"fit must be crop, pad or stretch, got {fit!r}")
    return fit


def _columns(columns: Mapping[str, str] | None) -> Mapping[str, str]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in (*columns, *columns.values())):
        raise DataError(f'columns must be names by role such as {{"y": "digit"}}, got {columns!r}')
    return columns


def _described(source: Any) -> str:
    """A name for what lies in memory."""
    if isinstance(source, Items):
        return source.name
    if isinstance(source, Mapping):
        return f"arrays {', '.join(map(str, source))}"
    return f"an array of shape {source.shape}" if isinstance(source, np.ndarray) else type(source).__name__


def _changed(items: Items, wish: _Wish) -> Items:
    """Items at another size or rate, or made square."""
    if isinstance(items, Sequences):
        if items.main.modality != AUDIO or wish.rate in (None, items.rate):
            return items
        known = {key: getattr(items, key) for key in KEPT}
        return from_clips(items.array, items.offsets, items.name, rate=items.rate, wanted=wish.rate, **known)
    if items.main.modality != IMAGE:
        return items
    size = arrays.side(items.array, wish.size, wish.fit)
    if arrays.is_ready(items.array, size):
        return items
    array = arrays.images(items.array, items.name, size, wish.fit)
    found = fingerprint(digest(array), items.labels, items.groups, items.test, captions=items.captions)
    image = dataclasses.replace(items.main, array=array)
    return dataclasses.replace(items, parts={**items.parts, image.modality: image}, fingerprint=found)


def _file(path: Path, wish: _Wish) -> Items:
    name, kind = wish.name, path.suffix.lower()
    if not path.is_file():
        raise DataError(f"expected {KINDS}, got {name}, which is neither a file nor a folder")
    if not os.access(path, os.R_OK):
        raise DataError(f"cannot read {name}: permission denied")
    if kind == ".npz":
        return arrays.from_npz(path, name, wish.size, fit=wish.fit, rate=wish.rate, columns=wish.columns)
    if kind == ".csv" or (kind == ".parquet" and tables.is_table(path, wish.columns)):
        return tables.from_file(path, name, wish.columns)
    if kind in (".parquet", ".tar"):
        return _shards(kind, path.parent, [folder.stamp(path)], wish)
    wish.without_columns()
    if classic.is_idx(path.name):
        return _changed(classic.from_idx(path, name), wish)
    if kind == ".npy":
        return arrays.from_npy(path, name, wish.size, wish.place, wish.progress, fit=wish.fit)
    hint = ": open its folder" if kind[1:] in (*EXTENSIONS, *audio.EXTENSIONS) else ""
    raise DataError(f"expected {KINDS}, got {name}{hint}")


def _folder(root: Path, wish: _Wish) -> Items:
    shown = wish.name.rstrip("/") + "/"
    files, closed = folder.walk(root, shown)
    top = [file.path for file in files if "/" not in file.path]
    captioned = captions.file_of(files, shown) is not None
    if not captioned and any(map(classic.is_idx, top)):
        wish.without_columns()
        return _changed(classic.from_idx_folder(root, wish.name), wish)
    if not captioned and classic.is_cifar(top):
        wish.without_columns()
        return classic.from_cifar(root, wish.name, wish.size)
    items, used, read_as = _most_of(root, files, closed, shown, wish)
    rest = unread.left_out(files, {file.path for file in used}, read_as)
    paths = {skip.path for skip in rest}
    skipped = [skip for skip in items.skipped if skip.path not in paths]
    skipped += [skip for skip in closed if skip not in skipped]
    return dataclasses.replace(items, skipped=(*skipped, *rest))


def _most_of(
    root: Path, files: Sequence[File], closed: tuple[Skipped, ...], shown: str, wish: _Wish
) -> tuple[Items, Sequence[File], str]:
    """The items of a folder by what most of its files are, the files that were read, and what they were read as."""
    if (named := captions.file_of(files, shown)) is not None:
        pictures = [named, *folder.images_of(files)]
        listing = partial(captions.listing, root, named, files, closed, shown)
        return _pictures("captions", root, pictures, listing, wish), pictures, IMAGES
    found = {kind: [f for f in files if f.path.lower().endswith(kind)] for kind in (".parquet", ".tar", ".csv")}
    images, recordings = folder.images_of(files), audio.audio_of(files)
    # the most numerous: a data set may have a picture or a table in its description
    most = max(map(len, (*found.values(), images, recordings)))
    if not most:
        kinds = ", ".join((*EXTENSIONS, *audio.EXTENSIONS, "csv"))
        raise DataError(f"no images, audio or series in {shown}: expected {kinds}; got {_others(files)}")
    for kind in (".parquet", ".tar"):
        if len(found[kind]) == most:
            if kind == ".parquet" and tables.is_table(root / found[kind][0].path, wish.columns):
                items = tables.from_folder(root, found[kind], wish.name, wish.columns, closed)
                return items, found[kind], TABLES
            return _shards(kind, root, found[kind], wish), found[kind], SHARDS
    if len(images) < most == len(recordings):
        wish.without_columns()
        items = audio.from_folder(root, recordings, closed, wish.name, wish.rate, wish.place, wish.progress)
        return items, recordings, RECORDINGS
    if len(images) < most:
        return tables.from_folder(root, found[".csv"], wish.name, wish.columns, closed), found[".csv"], TABLES
    listing = partial(folder.listing, root, images, closed)
    return _pictures("folder", root, images, listing, wish), images, IMAGES


def _others(files: Sequence[File]) -> str:
    """Name the kinds of files that a folder has in place of those that are read, and what helps, if something does."""
    if not files:
        return "no files"
    kinds = Counter(unread.ending_of(file.path) for file in files).most_common()
    common = ", ".join(f".{kind}" if kind else "no ending" for kind, _ in kinds[:3])
    count = f"{len(files):,} file{'s' * (len(files) > 1)} of other kinds ({common}{', …' * (len(kinds) > 3)})"
    reasons = (by_kind.get(kind) for kind, _ in kinds for by_kind in unread.REASONS.values())
    return ": ".join([count, *list(filter(None, reasons))[:1]])


def _shards(kind: str, root: Path, files: Sequence[File], wish: _Wish) -> Items:
    def scan() -> Listing:
        listing = (shards.parquet_listing if kind == ".parquet" else shards.tar_listing)(root, files)
        if not listing.paths:
            why = f": {listing.skipped[0].path}: {listing.skipped[0].reason}" if listing.skipped else ""
            raise DataError(f"no images in {wish.name}{why}")
        return listing

    return _pictures(f"{kind} with captions", root, files, scan, wish)


def _pictures(kind: str, root: Path, files: Sequence[File], scan: Callable[[], Listing], wish: _Wish) -> Items:
    """Encoded images through the cache; they are listed only where the cache does not know them."""
    wish.without_columns()
    scan = functools.cache(scan)
    native = noted(wish.place, cache_key(kind, root, files), lambda: median_side(scan()))
    side = wish.size or min(native, LARGEST_DEFAULT)

    def plan() -> Plan:
        found, oblong = scan(), list[bool]()
        return Plan(
            row=(3, side, side),
            count=len(found.paths),
            chunks=decoding(found, side, wish.fit, oblong),
            oblong=oblong,
            paths=found.paths,
            labels=found.labels,
            classes=found.classes,
            test=found.test,
            captions=found.captions,
            skipped=found.skipped,
        )

    stored = fetch(wish.place, cache_key(f"{kind}, {wish.fit}", root, files, side), plan, wish.name, wish.progress)
    return make(
        stored.array,
        wish.name,
        content=stored.content,
        labels=stored.labels,
        classes=stored.classes,
        test=stored.test,
        paths=stored.paths,
        captions=stored.captions,
        skipped=stored.skipped,
        native=native,
        oblong=stored.oblong,
    )
