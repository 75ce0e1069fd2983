"""Define `open`, which recognizes what kind of source it is given and reads it."""

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

from likewise.data import (
    arrays,
    audio,
    classic,
    folder,
    metadata,
    parquet,
    shards,
    tables,
    text_folder,
    text_tables,
    texts,
    unread,
)
from likewise.data.builtin import NAMES, builtin
from likewise.data.cache import Plan, cache_folder, cache_key, cached_number, fetch
from likewise.data.clips import from_clips
from likewise.data.folder import File
from likewise.data.gaps import Filling, way
from likewise.data.images import EXTENSIONS, FITS, LARGEST_DEFAULT, Listing, decoding, median_side
from likewise.data.items import AUDIO, IMAGE, DataError, Items, Skipped, digest, fingerprint, make
from likewise.data.sequences import Sequences
from likewise.data.unread import IMAGES, RECORDINGS, SHARDS, TABLES, TEXTS
from likewise.memory import shortage

Source = str | os.PathLike[str] | NDArray[Any] | Mapping[str, Any] | Sequence[str] | Items
KINDS = "a folder of images, audio or texts, .npy, .npz, .csv, .tsv, .jsonl, .txt, .parquet, .tar or an idx images file"
KEPT_COLUMNS = ("labels", "classes", "groups", "test", "paths", "captions", "skipped")  # when audio is resampled


@dataclass(frozen=True)
class _Request:
    """The arguments of `open`, validated."""

    name: str  # the source as given
    size: int | None
    fit: str
    rate: int | None
    filling: Filling
    columns: Mapping[str, str]
    place: Path  # the cache folder
    progress: bool

    def without_columns(self) -> None:
        """Raise an error if columns are given, for sources that have no named columns."""
        if self.columns:
            kinds = ".npz, .csv, .tsv, .jsonl and Parquet files and in a folder's captions.csv or metadata.csv"
            raise DataError(f"columns can be named in {kinds}, got {self.name}")


def open(  # noqa: A001
    source: Source,
    *,
    size: int | None = None,
    fit: str = "crop",
    rate: int | None = None,
    gaps: str = "fill",
    columns: Mapping[str, str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Items:
    """Open a source of images, vectors, sequences or texts as rows of one array.

    The source is one of these: a folder of images, of audio or of texts (in class folders or not), a folder of images
    whose captions are in `captions.jsonl` or `captions.csv`, a `.npy` or `.npz` file, a `.csv` or Parquet file of
    time series or a folder of them, MNIST's idx files, CIFAR's folder, a Parquet file of images or WebDataset
    tar file or a folder of them, a `.txt` file whose lines are texts, a `.csv`, `.tsv`, `.jsonl` or Parquet file with
    a column of texts, a built-in name (`digits`, `mnist5k`, `sounds`, `shapes`; a path of that name takes precedence),
    an array, a dictionary of arrays named as in an `.npz`, a list of texts, or `Items`.

    Encoded images become RGB squares of side `size`, in the way that `fit` says: "crop" resizes the shorter side to
    `size` and crops the centre, "pad" resizes the longer side to `size` and fills the rest with white, "stretch"
    resizes both sides without keeping the aspect ratio. The default size is the median shorter side of a sample of
    the images, at most 64. Arrays of images keep their size and number of channels unless a size is given; "pad" and
    "stretch" turn images that are not square into squares of their shorter side.

    Audio (WAV, FLAC, Ogg, Opus, MP3) becomes one channel of int16 at `rate` samples per second, by default 16,000, or
    8,000 if most files have a lower rate than 16,000. Arrays of audio keep their rate unless one is given; other
    series always keep theirs. Floating-point arrays (n, t, c) are series, unless t = c: then they are grey images.

    `gaps` says what is done with missing values (NaN, an empty cell) in series: "fill" interpolates gaps of at most 10
    samples between two measured values, "skip" does not. Sequences that have gaps then are left out.

    Files are decoded once into the folder `cache`; the default is the folder that `LIKEWISE_CACHE` names, else the
    user's cache folder.

    `columns` maps roles to the arrays of an `.npz`, or the columns of a table, that play them: {"y": "digit",
    "group": "speaker"}. Several may hold captions: {"captions": "title+keywords"}. For images in Parquet files, and in
    folders with `captions.csv` or `metadata.csv`, the roles are x (the images, or their names), y, group, is_test (true
    or false, or the name of a split) and captions. For series in tables the roles are sequence, time, y, group, is_test
    and channels ({"channels": "ax+ay+az"}). By default, all remaining columns of numbers are channels, except those
    that look like a time or an index, are constant or only count up; these are listed in `table.left_out`. Without a
    time, a column that certainly is one orders the rows. A file in which no column names sequences is one log, which
    is cut into stretches.

    For texts in tables the roles are text, y, group and is_test. Several columns may make up a text, as in {"text":
    "title+body"}. By default, the texts are in a column with a usual name such as `text`, `sentence`, `body` or
    `review`. If a CSV or Parquet file also has columns of numbers that could be the channels of series, one of text and
    channels must be named. In an `.npz` or a dictionary without `x` and `audio`, the array `text` (n,) holds the texts.
    Any whitespace in a text becomes one space. Empty texts in files are left out, and so are repeated ones, unless
    their labels differ or one is in the training part and the other in the test part. Texts in memory or in an `.npz`
    are all kept.

    Captions may come as `captions` (n,) or (n, several) in an `.npz`, one line each in `captions.jsonl` ({"image":
    "a.jpg", "caption": "a dog"}; several as a list) or in `captions.csv` (image,caption), the same in Hugging Face's
    `metadata.csv` and `metadata.jsonl` (file_name,text), as `key.txt` beside `key.jpg` in tar files or `caption` in its
    `key.json`, or as a column `caption` or `text` beside the images in Parquet. If some items have captions, those
    without are left out.

    Arrays of images (n, v, h, w, c) or (n, v, c, h, w) hold v views of each item. They become n · v rows, item by item,
    grouped by item unless `columns` names another group; `views` (v,) in an `.npz` names the views.

    Data that cannot be read or used are left out and listed in `skipped`. So are the files of a folder that are of
    another type than most of its files, except documentation. If nothing is left, a `DataError` is raised.
    """
    request = _Request(
        name=os.fspath(source) if isinstance(source, str | os.PathLike) else _described(source),
        size=_whole("size", size),
        fit=_fit(fit),
        rate=_whole("rate", rate),
        filling=way(gaps),
        columns=_columns(columns),
        place=cache_folder(cache),
        progress=progress,
    )
    if words := shortage(3 * (request.size or 0) ** 2):
        raise DataError(f"size must let images fit in memory, got {request.size:,}: one image would take {words}")
    if isinstance(source, Mapping):
        return arrays.from_mapping(
            source,
            request.name,
            request.size,
            fit=request.fit,
            rate=request.rate,
            filling=request.filling,
            columns=request.columns,
        )
    if isinstance(source, Items):
        request.without_columns()
        return _converted(source, request)
    if isinstance(source, np.ndarray) and source.dtype.kind in "US":
        request.without_columns()
        return texts.from_memory(source, request.name)
    if isinstance(source, np.ndarray):
        request.without_columns()
        return arrays.from_array(source, request.name, request.size, fit=request.fit, filling=request.filling)
    if isinstance(source, list | tuple):
        request.without_columns()
        return texts.from_memory(source, request.name)
    if not isinstance(source, str | os.PathLike):
        got = type(source).__name__
        kinds = f"a path, one of {', '.join(NAMES)}, an array, a dict of arrays or a list of texts"
        raise DataError(f"source must be {kinds}, got {got}")
    path = Path(source).expanduser()
    if not os.path.lexists(path):
        if request.name in NAMES:
            request.without_columns()
            return _converted(builtin(request.name, request.size), request)
        nearest = difflib.get_close_matches(request.name, NAMES, n=1)
        hint = f"; the nearest built-in is {nearest[0]}" if nearest else ""
        raise FileNotFoundError(f"data not found: {request.name}{hint}")
    return _folder(path, request) if path.is_dir() else _file(path, request)


def _whole(key: str, value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise DataError(f"{key} must be a whole number >= 1, got {value!r}")
    return int(value)


def _fit(fit: str) -> str:
    if fit not in tuple(FITS):  # a tuple, because a value from a recipe file may not be hashable
        raise DataError(f"fit must be crop, pad or stretch, got {fit!r}")
    return fit


def _columns(columns: Mapping[str, str] | None) -> Mapping[str, str]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in (*columns, *columns.values())):
        raise DataError(f'columns must be names by role such as {{"y": "digit"}}, got {columns!r}')
    return columns


def _described(source: Any) -> str:
    """Return a name for data in memory, for messages."""
    if isinstance(source, Items):
        return source.name
    if isinstance(source, Mapping):
        return f"arrays {', '.join(map(str, source))}"
    if isinstance(source, list | tuple):
        return f"a {type(source).__name__} of length {len(source)}"
    return f"an array of shape {source.shape}" if isinstance(source, np.ndarray) else type(source).__name__


def _converted(items: Items, request: _Request) -> Items:
    """Return the items resized, resampled or made square, as the request says."""
    if isinstance(items, Sequences):
        if items.main.modality != AUDIO or request.rate in (None, items.rate):
            return items
        kept = {key: getattr(items, key) for key in KEPT_COLUMNS}
        return from_clips(items.array, items.offsets, items.name, rate=items.rate, wanted=request.rate, **kept)
    if items.main.modality != IMAGE:
        return items
    size = arrays.side(items.array, request.size, request.fit)
    if arrays.is_ready(items.array, size):
        return items
    array = arrays.images(items.array, items.name, size, request.fit)
    new_fingerprint = fingerprint(digest(array), items.labels, items.groups, items.test, captions=items.captions)
    image = dataclasses.replace(items.main, array=array)
    return dataclasses.replace(items, parts={**items.parts, image.modality: image}, fingerprint=new_fingerprint)


def _file(path: Path, request: _Request) -> Items:
    name, kind = request.name, path.suffix.lower()
    if not path.is_file():
        raise DataError(f"expected {KINDS}, got {name}, which is neither a file nor a folder")
    if not os.access(path, os.R_OK):
        raise DataError(f"cannot read {name}: permission denied")
    if kind == ".npz":
        return arrays.from_npz(
            path,
            name,
            request.size,
            fit=request.fit,
            rate=request.rate,
            filling=request.filling,
            columns=request.columns,
        )
    if kind in (".tsv", ".jsonl") or (kind in (".csv", ".parquet") and text_tables.is_table(path, request.columns)):
        return text_tables.from_files(path.parent, [folder.stamp(path)], name, request.columns)
    if kind == ".csv" or (kind == ".parquet" and tables.is_table(path, request.columns)):
        return tables.from_file(path, name, request.columns, request.filling)
    if kind in (".parquet", ".tar"):
        return _shards(kind, path.parent, [folder.stamp(path)], request)
    request.without_columns()
    if kind == ".txt":
        return texts.from_lines(path, name)
    if classic.is_idx(path.name):
        return _converted(classic.from_idx(path, name), request)
    if kind == ".npy":
        return arrays.from_npy(
            path, name, request.size, request.place, request.progress, fit=request.fit, filling=request.filling
        )
    hint = ": open its folder" if kind[1:] in (*EXTENSIONS, *audio.EXTENSIONS) else ""
    raise DataError(f"expected {KINDS}, got {name}{hint}")


def _folder(root: Path, request: _Request) -> Items:
    shown_name = request.name.rstrip("/") + "/"
    files, unreadable = folder.walk(root, shown_name)
    top = [file.path for file in files if "/" not in file.path]
    captioned = metadata.captions_of(files, shown_name, request.columns) is not None
    if not captioned and any(map(classic.is_idx, top)):
        request.without_columns()
        return _converted(classic.from_idx_folder(root, request.name), request)
    if not captioned and classic.is_cifar(top):
        request.without_columns()
        return classic.from_cifar(root, request.name, request.size)
    items, used, read_as = _read_folder(root, files, unreadable, shown_name, request)
    others = unread.left_out(files, {file.path for file in used}, read_as)
    paths = {skip.path for skip in others}
    skipped = [skip for skip in items.skipped if skip.path not in paths]
    skipped += [skip for skip in unreadable if skip not in skipped]
    return dataclasses.replace(items, skipped=(*skipped, *others))


def _read_folder(
    root: Path, files: Sequence[File], unreadable: tuple[Skipped, ...], shown_name: str, request: _Request
) -> tuple[Items, Sequence[File], str]:
    """Read a folder as the type that most of its files have; return the items, the files read and the type."""
    if (lists := metadata.captions_of(files, shown_name, request.columns)) is not None:
        return _listed_pictures(root, lists, files, unreadable, shown_name, request)
    by_ending = {kind: [f for f in files if f.path.lower().endswith(kind)] for kind in (".parquet", ".tar", ".csv")}
    if documents := text_folder.documents_of(files):
        request.without_columns()
        return text_folder.from_folder(root, documents, request.name), documents, TEXTS
    images, recordings = folder.images_of(files), audio.audio_of(files)
    # the most frequent type: a data set may come with a picture or a table that describes it
    most = max(map(len, (*by_ending.values(), images, recordings)))
    if not most:
        kinds = ", ".join((*EXTENSIONS, *audio.EXTENSIONS, "csv", "txt"))
        raise DataError(
            f"no images, audio, series or texts in {shown_name}: expected {kinds}; got {_describe_unread(files)}"
        )
    for kind in (".parquet", ".tar"):
        if len(by_ending[kind]) == most:
            if kind == ".parquet" and _is_table(root / by_ending[kind][0].path, request.columns):
                return _tables(root, by_ending[kind], unreadable, request), by_ending[kind], TABLES
            return _shards(kind, root, by_ending[kind], request), by_ending[kind], SHARDS
    if len(images) < most == len(recordings):
        request.without_columns()
        items = audio.from_folder(
            root, recordings, unreadable, request.name, request.rate, request.place, request.progress
        )
        return items, recordings, RECORDINGS
    if len(images) < most:
        return _tables(root, by_ending[".csv"], unreadable, request), by_ending[".csv"], TABLES
    if (lists := metadata.metadata_of(root, files, shown_name, request.columns)) is not None:
        return _listed_pictures(root, lists, files, unreadable, shown_name, request)
    request.without_columns()
    listing = partial(folder.listing, root, images, unreadable)
    return _pictures("folder", root, images, listing, request), images, IMAGES


def _listed_pictures(
    root: Path,
    lists: metadata.Lists,
    files: Sequence[File],
    unreadable: tuple[Skipped, ...],
    shown_name: str,
    request: _Request,
) -> tuple[Items, Sequence[File], str]:
    """Read a folder of images with files that name them."""
    used = [*lists.files, *folder.images_of(files)]
    listing = partial(metadata.listing, root, lists, files, unreadable, shown_name)
    return _pictures("captions", root, used, listing, request), used, IMAGES


def _tables(root: Path, files: Sequence[File], unreadable: tuple[Skipped, ...], request: _Request) -> Items:
    readable = next((file for file in files if file.size >= 0), files[0])
    if text_tables.is_table(root / readable.path, request.columns):
        return text_tables.from_files(root, files, request.name, request.columns)
    return tables.from_folder(root, files, request.name, request.columns, request.filling, unreadable)


def _is_table(path: Path, columns: Mapping[str, str]) -> bool:
    return text_tables.is_table(path, columns) or tables.is_table(path, columns)


def _describe_unread(files: Sequence[File]) -> str:
    """Describe the files of a folder in which none can be read, with advice if there is any."""
    if not files:
        return "no files"
    kinds = Counter(unread.ending_of(file.path) for file in files).most_common()
    common = ", ".join(f".{kind}" if kind else "no ending" for kind, _ in kinds[:3])
    count = f"{len(files):,} file{'s' * (len(files) > 1)} of other kinds ({common}{', …' * (len(kinds) > 3)})"
    reasons = (by_kind.get(kind) for kind, _ in kinds for by_kind in unread.REASONS.values())
    return ": ".join([count, *list(filter(None, reasons))[:1]])


def _shards(kind: str, root: Path, files: Sequence[File], request: _Request) -> Items:
    if kind == ".tar":
        request.without_columns()

    def scan() -> Listing:
        if kind == ".parquet":
            listing = parquet.listing(root, files, request.columns)
        else:
            listing = shards.tar_listing(root, files)
        if not listing.paths:
            why = f": {listing.skipped[0].path}: {listing.skipped[0].reason}" if listing.skipped else ""
            raise DataError(f"no images in {request.name}{why}")
        return listing

    return _pictures(f"{kind} with captions", root, files, scan, request)


def _pictures(kind: str, root: Path, files: Sequence[File], scan: Callable[[], Listing], request: _Request) -> Items:
    """Return encoded images through the cache; `scan` lists them and is called only if the cache lacks them."""
    if request.columns:
        kind += f", columns {sorted(request.columns.items())}"
    scan = functools.cache(scan)
    native = cached_number(request.place, cache_key(kind, root, files), lambda: median_side(scan()))
    side = request.size or min(native, LARGEST_DEFAULT)

    def plan() -> Plan:
        listing, oblong = scan(), list[bool]()
        return Plan(
            row=(3, side, side),
            count=len(listing.paths),
            chunks=decoding(listing, side, request.fit, oblong),
            oblong=oblong,
            paths=listing.paths,
            labels=listing.labels,
            classes=listing.classes,
            test=listing.test,
            groups=listing.groups,
            captions=listing.captions,
            skipped=listing.skipped,
            notes=listing.notes,
        )

    key = cache_key(f"{kind}, {request.fit}", root, files, side)
    stored = fetch(request.place, key, plan, request.name, request.progress)
    return make(
        stored.array,
        request.name,
        content=stored.content,
        labels=stored.labels,
        classes=stored.classes,
        groups=stored.groups,
        test=stored.test,
        paths=stored.paths,
        captions=stored.captions,
        skipped=stored.skipped,
        notes=stored.notes,
        native=native,
        oblong=stored.oblong,
    )
