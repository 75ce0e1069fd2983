"""`likewise embed`: write the embedding of every item to a file, shard by shard.

Finished shards are kept on disk beside the output file. So memory does not grow with the data, and an interrupted
command continues where it stopped. With several ranks, each rank writes a file with its part of the items.
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

SHARD = 4096  # items in a shard, at most
SHARD_SAMPLES = 2**26  # samples of sequences in a shard, so that a shard has fewer long ones


@dataclass(frozen=True)
class Shards:
    """Vectors in files on disk, and the items that they belong to."""

    paths: Sequence[Path]  # (m, d) float32 each
    items: Items
    ids: NDArray[np.int64]  # (n,) ids of the items, in the order of the vectors
    dim: int
    about: Mapping[str, Any]

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        start = 0
        for path in self.paths:
            vectors = np.load(path)
            yield self.ids[start : start + len(vectors)], vectors
            start += len(vectors)

    def some(self, count: int) -> NDArray[np.float32]:
        """Return about `count` vectors, evenly spaced from first to last."""
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
    """Write the embedding of every item to the file `out`, with id, path and label, and return its path.

    `source` is the data to embed, by default the run's own. `out` ends in `.parquet` (columns id, path, label, vector),
    `.npz` (arrays ids, paths, labels, class_names, vectors) or `.npy` (only the vectors, in the order of the items).
    With several ranks, `vectors.parquet` becomes `vectors-00000-of-00002.parquet` and so on; when the command is
    repeated, a rank whose file is finished has nothing to do. `trust` allows the run to name an encoder
    (`module:callable`) even if it was not made under this account. `say` is called with a warning if the vectors have
    collapsed.
    """
    out = Path(out)
    if out.suffix.lower() not in WRITERS:
        raise ValueError(f"--out must end in {', '.join(WRITERS)}, got {out}")
    if out.suffix.lower() == ".parquet":
        needed("pyarrow", "Parquet", "parquet")  # fail now rather than after embedding everything
    encoder = run if isinstance(run, Encoder) else load(run, trust=trust).to(ranks.device())
    layer = layer or encoder.default_layer
    check_layer(layer, encoder.recipe)
    launched = ranks.launched()
    rank, world = (launched.rank, launched.world) if launched else (0, 1)
    if world > 1:
        out = out.with_name(f"{out.stem}-{rank:05}-of-{world:05}{out.suffix}")
    with only_writer(out, out.with_name(f"{out.name}.lock")):
        exists_already = f"--out must be a new file, got {out}, which exists"
        if world == 1 and out.exists():
            raise ValueError(exists_already)
        items = encoder.open(source, columns=columns, progress=progress and rank == 0)
        if len(items) < world:
            counts = f"the {len(items):,} items in {items.name}, got {world:,} ranks"
            raise ValueError(f"there must be at most as many ranks as {counts}")
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
            raise ValueError(exists_already)
        parts = out.with_name(f"{out.name}.parts")
        with _writing(out):
            _begin(parts, about)
        with end_on_signal() as stop:
            paths = list(_shards(encoder, layer, items, ids, out, parts, stop.is_set, progress and rank == 0))
            with _writing(out):
                shards = Shards(paths, items, ids, np.load(paths[0], mmap_mode="r").shape[1], about)
                temporary = parts / f"whole{out.suffix}"
                WRITERS[out.suffix.lower()](temporary, shards)
                if world > 1 and out.suffix.lower() == ".npy":
                    _settle(Path(shutil.copy(parts / "about.json", parts / "beside.json")), _beside(out))
                warning = collapse_of(shards.some(LOOKED_AT))
                _settle(temporary, out)
        shutil.rmtree(parts)
        if warning is not None and rank == 0:
            say(warning)
        return out


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn an OSError into a sentence about the output file, so that it is not taken for a problem with the data."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{out} could not be written: {error.strerror or error}; run the same command again to continue"
        ) from None


def _about(path: Path) -> Any:
    """Return the description of the vectors stored in a finished file, or None if it has none."""
    try:
        if path.suffix.lower() == ".parquet":
            schema = needed("pyarrow.parquet", "Parquet", "parquet").read_schema(path)
            return json.loads(schema.metadata[b"likewise"])
        if path.suffix.lower() == ".npz":
            with np.load(path) as archive:
                return json.loads(str(archive["about"]))
        return json.loads(_beside(path).read_bytes())
    except Exception:  # the file may be of any origin, and readers raise all kinds of exceptions
        return None


def _beside(path: Path) -> Path:
    """Return the path of the JSON file that describes a rank's .npy, which has no room for a description."""
    return path.with_name(f"{path.name}.json")


def _begin(parts: Path, about: Mapping[str, Any]) -> None:
    """Prepare the folder for shards: empty, unless an interrupted command left shards of the same vectors."""
    description, path = json.dumps(about).encode(), parts / "about.json"
    if path.exists():
        if path.read_bytes() == description:
            return
        shutil.rmtree(parts)
    elif parts.exists() and (not parts.is_dir() or any(parts.iterdir())):
        raise ValueError(f"{parts} is needed for temporary files, but it holds files that likewise did not write")
    parts.mkdir(parents=True, exist_ok=True)
    path.write_bytes(description)


def _shards(
    encoder: Encoder,
    layer: str,
    items: Items,
    ids: NDArray[np.int64],
    out: Path,
    parts: Path,
    is_told_to_stop: Callable[[], bool],
    progress: bool,
) -> Iterator[Path]:
    """Yield the paths of the shards in order, and make those that do not exist yet."""
    network = for_inference(encoder.up_to(layer))  # once for all shards
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
        if is_told_to_stop() and stop < len(ids):
            raise Interrupted(f"stopped after {stop:,} of {len(ids):,} items; run the same command again to continue")


def _check(vectors: NDArray[np.float32], items: Items, ids: NDArray[np.int64]) -> None:
    """Raise an error if a vector is not finite, or if the data has changed since it was opened."""
    if change := change_of(items.array):
        raise DataError(f"the data changed while it was being embedded: {change}; run the same command to start again")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        item = int(ids[finite.argmin()])
        raise NotFiniteError(f"the encoder gives a vector that is not finite for item {item:,} of {items.name}")


def _bounds(items: Items, ids: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each shard, as positions in `ids`."""
    start = 0
    while start < len(ids):
        stop = items.main.shard_end(ids, start, SHARD, SHARD_SAMPLES)
        yield start, stop
        start = stop


def _is_whole(path: Path, rows: int) -> bool:
    """Return whether a shard exists with all its rows: a power failure can leave an empty or partial file."""
    try:
        shape = np.load(path, mmap_mode="r").shape
    except (OSError, ValueError, EOFError):
        return False
    return len(shape) == 2 and shape[0] == rows


def _settle(temporary: Path, path: Path) -> None:
    """Rename a temporary file to its final name, after flushing it to disk."""
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

    # Dictionary encoding only pays off for labels: for values that are all different it takes twice as long, and more
    # space.
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
