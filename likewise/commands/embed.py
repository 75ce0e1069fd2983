"""`likewise embed`: the vector of every item of a source, in one file, made shard by shard.

A shard that is finished is on the disk, beside the file that is being made, so memory does not grow with the data and
a command that was cut off goes on where it was. Under several ranks each makes a file of its own part of the items.
"""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from likewise import ranks
from likewise.data import Items
from likewise.data.builtin import needed
from likewise.training.features import features
from likewise.training.run import Encoder, check_layer, load
from likewise.training.signals import Interrupted, end_on_signal

SHARD = 4096  # items


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


def embed(
    run: str | Path | Encoder,
    source: Any = None,
    *,
    out: str | Path,
    layer: str | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool = True,
) -> Path:
    """Write the vectors of every item of a source, by default the run's own, with id, path and label; the file.

    `out` ends in `.parquet` (columns id, path, label, vector), `.npz` (ids, paths, labels, class_names, vectors) or
    `.npy` (the vectors alone, in the order of the items). Under several ranks, `vectors.parquet` becomes
    `vectors-00000-of-00002.parquet` and so on.
    """
    out = Path(out)
    if out.suffix.lower() not in WRITERS:
        raise ValueError(f"--out must end in {', '.join(WRITERS)}, got {out}")
    if out.suffix.lower() == ".parquet":
        needed("pyarrow", "Parquet", "parquet")  # now, and not when all is embedded
    encoder = run if isinstance(run, Encoder) else load(run)
    layer = layer or encoder.default_layer
    check_layer(layer, encoder.recipe)
    found = ranks.launched()
    rank, world = (found.rank, found.world) if found else (0, 1)
    if world > 1:
        out = out.with_name(f"{out.stem}-{rank:05}-of-{world:05}{out.suffix}")
    if out.exists():
        raise ValueError(f"--out must be a new file, got {out}, which is there")
    items = encoder.open(source, columns=columns, progress=progress and rank == 0)
    ids = np.array_split(np.arange(len(items)), world)[rank]
    about = {
        "encoder": encoder.fingerprint(layer),
        "layer": layer,
        "data": items.fingerprint,
        "source": items.name,
        "method": encoder.recipe.method,
        "items": f"{rank} of {world}",
    }
    parts = out.with_name(f"{out.name}.parts")
    try:
        _begin(parts, about)
        with end_on_signal() as told:
            paths = list(_shards(encoder, layer, items, ids, parts, told.is_set, progress and rank == 0))
            shards = Shards(paths, items, ids, np.load(paths[0], mmap_mode="r").shape[1], about)
            temporary = parts / f"whole{out.suffix}"
            WRITERS[out.suffix.lower()](temporary, shards)
            temporary.replace(out)
    except OSError as error:
        raise ValueError(f"{out} could not be written: {error.strerror or error}; the same command goes on") from None
    shutil.rmtree(parts)
    return out


def _begin(parts: Path, about: Mapping[str, Any]) -> None:
    """A folder for shards: as it was left where it is of the same vectors, else empty."""
    described, known = json.dumps(about), parts / "about.json"
    if parts.exists() and (not known.exists() or known.read_text(encoding="utf-8") != described):
        shutil.rmtree(parts)
    parts.mkdir(parents=True, exist_ok=True)
    known.write_text(described, encoding="utf-8")


def _shards(
    encoder: Encoder,
    layer: str,
    items: Items,
    ids: NDArray[np.int64],
    parts: Path,
    told: Callable[[], bool],
    progress: bool,
) -> Iterator[Path]:
    """The shards in order, those made that are not there."""
    network = encoder.up_to(layer).to(torch.accelerator.current_accelerator() or "cpu")
    starts = range(0, len(ids), SHARD)
    console = Console(stderr=True, quiet=not progress)
    for start in track(starts, f"{len(ids):,} items", console=console, transient=True):
        path = parts / f"{start // SHARD:06}.npy"
        if not path.exists():
            vectors = features(network, encoder.augmentation, items, ids[start : start + SHARD]).numpy()
            temporary = path.with_suffix(".tmp")
            with temporary.open("wb") as file:
                np.save(file, vectors)
            temporary.replace(path)
        yield path
        if told() and start + SHARD < len(ids):
            raise Interrupted(f"stopped after {start + SHARD:,} of {len(ids):,} items; the same command goes on")


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

    def label(item: int) -> str | None:
        return None if items.labels is None or items.labels[item] < 0 else items.classes[items.labels[item]]

    with parquet.ParquetWriter(path, schema) as writer:
        for ids, vectors in shards:
            flat = arrow.array(vectors.ravel(), type=arrow.float32())
            columns = [
                arrow.array(ids),
                arrow.array([None if items.paths is None else items.paths[item] for item in ids], type=arrow.string()),
                arrow.array([label(item) for item in ids], type=arrow.string()),
                arrow.FixedSizeListArray.from_arrays(flat, shards.dim),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


WRITERS: dict[str, Callable[[Path, Shards], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
