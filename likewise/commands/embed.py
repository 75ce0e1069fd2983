"""`likewise embed`: the vector of every item of a source, in one file, made shard by shard.

A shard that is finished is on the disk, beside the file that is being made, so memory does not grow with the data and
a command that was cut off goes on where it was. Under several ranks each makes a file of its own part of the items.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from likewise import ranks
from likewise.data import DataError, Items
from likewise.data.builtin import needed
from likewise.data.mapped import change_of
from likewise.encoders.features import features, for_inference
from likewise.evaluation.geometry import LOOKED_AT, collapse_of
from likewise.locks import only_writer
from likewise.printing import note, storable
from likewise.training.encoder import Encoder, check_layer, load
from likewise.training.run import NotFiniteError
from likewise.training.signals import Interrupted, end_on_signal

SHARD = 4096  # items
SHARD_SAMPLES = 2**26  # of sequences: long ones are fewer


@dataclass(frozen=True)
class Shards:
    """Vectors as they lie on the disk, and whose they are."""

    paths: Sequence[Path]  # (m, d) float32 each
    items: Items
    ids: NDArray[np.int64]  # (n,): the items, in the order of the vectors
    dim: int
    about: Mapping[str, Any]

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        start = 0
        for path in self.paths:
            vectors = np.load(path)
            yield self.ids[start : start + len(vectors)], vectors
            start += len(vectors)

    def some(self, count: int) -> NDArray[np.float32]:
        """About `count` vectors, evenly from first to last."""
        every = max(1, len(self.ids) // count)
        return np.concatenate([np.load(path, mmap_mode="r")[::every] for path in self.paths])


def embed(
    run: str | Path | Encoder,
    source: Any = None,
    *,
    out: str | Path,
    layer: str | None = None,
    columns: Mapping[str, str] | None = None,
    trust: bool = False,
    say: Callable[[str], None] = note,
    progress: bool = True,
) -> Path:
    """Write the vectors of every item of a source, by default the run's own, with id, path and label; the file.

    `out` ends in `.parquet` (columns id, path, label, vector), `.npz` (ids, paths, labels, class_names, vectors) or
    `.npy` (the vectors alone, in the order of the items). Under several ranks, `vectors.parquet` becomes
    `vectors-00000-of-00002.parquet` and so on; a rank that had finished before the others has nothing to do.
    `trust` allows the code of an encoder (`module:callable`) that a run from elsewhere names. `say` is called with a
    warning if the vectors have collapsed.
    """
    out = Path(out)
    if out.suffix.lower() not in WRITERS:
        raise ValueError(f"--out must end in {', '.join(WRITERS)}, got {out}")
    if out.suffix.lower() == ".parquet":
        needed("pyarrow", "Parquet", "parquet")  # now, and not when all is embedded
    encoder = run if isinstance(run, Encoder) else load(run, trust=trust).to(ranks.device())
    layer = layer or encoder.default_layer
    check_layer(layer, encoder.recipe)
    found = ranks.launched()
    rank, world = (found.rank, found.world) if found else (0, 1)
    if world > 1:
        out = out.with_name(f"{out.stem}-{rank:05}-of-{world:05}{out.suffix}")
    with only_writer(out, out.with_name(f"{out.name}.lock")):
        there = f"--out must be a new file, got {out}, which is there"
        if world == 1 and out.exists():
            raise ValueError(there)
        items = encoder.open(source, columns=columns, progress=progress and rank == 0)
        if len(items) < world:
            counts = f"{len(items):,} in {items.name}, got {world:,}"
            raise ValueError(f"ranks must be at most as many as the items, {counts}")
        ids = np.array_split(np.arange(len(items)), world)[rank]
        about = {
            "encoder": encoder.fingerprint(layer),
            "layer": layer,
            "data": items.fingerprint,
            "source": items.name,
            "method": encoder.recipe.method,
            "items": f"{rank} of {world}",
        }
        if out.exists():
            if _about(out) == about:
                return out
            raise ValueError(there)
        parts = out.with_name(f"{out.name}.parts")
        with _writing(out):
            _begin(parts, about)
        with end_on_signal() as told:
            paths = list(_shards(encoder, layer, items, ids, out, parts, told.is_set, progress and rank == 0))
            with _writing(out):
                shards = Shards(paths, items, ids, np.load(paths[0], mmap_mode="r").shape[1], about)
                temporary = parts / f"whole{out.suffix}"
                WRITERS[out.suffix.lower()](temporary, shards)
                if world > 1 and out.suffix.lower() == ".npy":
                    _settle(Path(shutil.copy(parts / "about.json", parts / "beside.json")), _beside(out))
                doubt = collapse_of(shards.some(LOOKED_AT))
                _settle(temporary, out)
        shutil.rmtree(parts)
        if doubt is not None and rank == 0:
            say(doubt)
        return out


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """What goes wrong in here is of the disk that is written to, and not of the data."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{out} could not be written: {error.strerror or error}; the same command goes on") from None


def _about(path: Path) -> Any:
    """What a finished file says of its vectors; None where it says nothing."""
    try:
        if path.suffix.lower() == ".parquet":
            schema = needed("pyarrow.parquet", "Parquet", "parquet").read_schema(path)
            return json.loads(schema.metadata[b"likewise"])
        if path.suffix.lower() == ".npz":
            with np.load(path) as archive:
                return json.loads(str(archive["about"]))
        return json.loads(_beside(path).read_bytes())
    except Exception:  # it may be anyone's file, and readers raise nearly anything
        return None


def _beside(path: Path) -> Path:
    """Where a rank says what its .npy is of, which has no room for it: the others may still have to go on."""
    return path.with_name(f"{path.name}.json")


def _begin(parts: Path, about: Mapping[str, Any]) -> None:
    """A folder for shards: as it was left where it is of the same vectors, else empty."""
    described, known = json.dumps(about).encode(), parts / "about.json"
    if known.exists():
        if known.read_bytes() == described:
            return
        shutil.rmtree(parts)
    elif parts.exists() and (not parts.is_dir() or any(parts.iterdir())):
        raise ValueError(f"{parts} is where shards are kept: expected none or one of likewise, got another's")
    parts.mkdir(parents=True, exist_ok=True)
    known.write_bytes(described)


def _shards(
    encoder: Encoder,
    layer: str,
    items: Items,
    ids: NDArray[np.int64],
    out: Path,
    parts: Path,
    told: Callable[[], bool],
    progress: bool,
) -> Iterator[Path]:
    """The shards in order, those made that are not there."""
    network = for_inference(encoder.up_to(layer))  # once, and not for every shard
    bounds = list(_bounds(items, ids))
    console = Console(stderr=True, quiet=not progress)
    for number, (start, stop) in enumerate(track(bounds, f"{len(ids):,} items", console=console, transient=True)):
        path = parts / f"{number:06}.npy"
        if not _is_whole(path, stop - start):
            vectors = features(network, encoder.augmentation, items, ids[start:stop]).numpy()
            _check(vectors, items, ids[start:stop])
            temporary = path.with_suffix(".tmp")
            with _writing(out):
                with temporary.open("wb") as file:
                    np.save(file, vectors)
                _settle(temporary, path)
        yield path
        if told() and stop < len(ids):
            raise Interrupted(f"stopped after {stop:,} of {len(ids):,} items; the same command goes on")


def _check(vectors: NDArray[np.float32], items: Items, ids: NDArray[np.int64]) -> None:
    """Expect vectors that are finite, of items that are still the ones that were opened."""
    if change := change_of(items.array):
        raise DataError(f"the data changed while they were embedded: {change}; the same command starts again")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        item = int(ids[finite.argmin()])
        raise NotFiniteError(f"the encoder gives vectors that are not finite, for item {item:,} of {items.name} first")


def _bounds(items: Items, ids: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where each shard begins and ends among the ids."""
    start = 0
    while start < len(ids):
        stop = items.main.shard_end(ids, start, SHARD, SHARD_SAMPLES)
        yield start, stop
        start = stop


def _is_whole(path: Path, rows: int) -> bool:
    """Whether a shard is there with all its rows: a power cut can leave an empty file, or half of one."""
    try:
        shape = np.load(path, mmap_mode="r").shape
    except (OSError, ValueError, EOFError):
        return False
    return len(shape) == 2 and shape[0] == rows


def _settle(temporary: Path, path: Path) -> None:
    """Give a file its name, once every byte of it is on the disk."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def _write_npy(path: Path, shards: Shards) -> None:
    with path.open("wb") as file:
        _append(file, shards)


def _append(file: IO[bytes], shards: Shards) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(shards.ids), shards.dim)}
    npy.write_array_header_1_0(file, header)
    for _, vectors in shards:
        file.write(np.ascontiguousarray(vectors, dtype="<f4").data)


def _write_npz(path: Path, shards: Shards) -> None:
    items, ids = shards.items, shards.ids
    arrays: dict[str, Any] = {"ids": ids, "about": np.array(json.dumps(shards.about))}
    if items.labels is not None:
        arrays |= {"labels": items.labels[ids], "class_names": np.array(items.classes)}
    if items.paths is not None:
        arrays["paths"] = np.array([items.paths[item] for item in ids])
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            _append(file, shards)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                npy.write_array(file, array, allow_pickle=False)


def _write_parquet(path: Path, shards: Shards) -> None:
    arrow, parquet = (needed(name, "Parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    items = shards.items
    fields = [
        ("id", arrow.int64()),
        ("path", arrow.string()),
        ("label", arrow.string()),
        ("vector", arrow.list_(arrow.float32(), shards.dim)),
    ]
    schema = arrow.schema(fields, metadata={"likewise": json.dumps(shards.about)})

    def path_of(item: int) -> str | None:
        return None if items.paths is None else storable(items.paths[item])

    def label(item: int) -> str | None:
        if items.labels is None or items.labels[item] < 0:
            return None
        return storable(items.classes[items.labels[item]])

    # Numbers that are all different are not looked up in a dictionary: it would take twice as long, and more room.
    with parquet.ParquetWriter(path, schema, use_dictionary=["label"]) as writer:
        for ids, vectors in shards:
            flat = arrow.array(vectors.ravel(), type=arrow.float32())
            columns = [
                arrow.array(ids),
                arrow.array([path_of(item) for item in ids], type=arrow.string()),
                arrow.array([label(item) for item in ids], type=arrow.string()),
                arrow.FixedSizeListArray.from_arrays(flat, shards.dim),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


WRITERS: dict[str, Callable[[Path, Shards], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
