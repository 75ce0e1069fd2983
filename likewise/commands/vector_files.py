"""The files that `likewise embed` writes: Parquet, `.npz` and `.npy`. The first two can be brought up to date.

They have a digest of the item's content beside each vector. So an item is recognised later, whatever its name and
place are then.
"""

import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from likewise.data import Items
from likewise.data.builtin import needed
from likewise.data.parts import DIGEST, Digests
from likewise.encoders.known import Known
from likewise.printing import storable

Names = Sequence[str | int]


@dataclass(frozen=True)
class Shards:
    """Vectors in files on disk, and the items that they belong to."""

    paths: Sequence[Path]  # each an array of shard_type(d)
    items: Items
    ids: NDArray[np.int64]  # (n,) ids of the items, in the order of the vectors
    dim: int
    about: Mapping[str, Any]

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], Digests]]:
        start = 0
        for path in self.paths:
            shard = np.load(path)
            yield self.ids[start : start + len(shard)], np.ascontiguousarray(shard["vector"]), shard["digest"]
            start += len(shard)

    @property
    def digests(self) -> Digests:
        """The digests of all items (n,)."""
        return np.concatenate([np.load(path, mmap_mode="r")["digest"] for path in self.paths])

    def some(self, count: int) -> NDArray[np.float32]:
        """Return about `count` vectors, evenly spaced from first to last."""
        every = max(1, len(self.ids) // count)
        return np.concatenate([np.load(path, mmap_mode="r")["vector"][::every] for path in self.paths])


def shard_type(dim: int) -> np.dtype[np.void]:
    """Return the type of a row of a shard: the vector of an item and the digest of its content."""
    return np.dtype([("digest", DIGEST), ("vector", "<f4", (dim,))])


@dataclass(frozen=True)
class Earlier:
    """The vectors of a file that was written before, and the names of their items."""

    known: Known
    names: Names

    def changes(self, digests: Digests, names: Names) -> str:
        """Return in words how items differ from those of the file.

        An item of unknown content is changed if the file has an item of the same name whose content is gone.
        """
        is_known, is_there = self.known.places(digests) >= 0, np.isin(self.known.digests, digests)
        new, gone = Counter(compress(names, ~is_known)), Counter(compress(self.names, ~is_there))
        changed = (new & gone).total()
        return (
            f"{is_known.sum():,} vectors kept, {new.total() - changed:,} new, {changed:,} changed, "
            f"{gone.total() - changed:,} gone"
        )


def names_of(items: Items, ids: NDArray[np.int64]) -> Names:
    """Return what tells items apart for people: the path of each, or its id if the items are not files."""
    return ids.tolist() if items.paths is None else [storable(items.paths[item]) for item in ids]


def about_in(path: Path) -> dict[str, Any]:
    """Return the description of the vectors stored in a finished file, empty if it has none."""
    try:
        if path.suffix.lower() == ".parquet":
            schema = needed("pyarrow.parquet", "Parquet", "parquet").read_schema(path)
            return dict(json.loads(schema.metadata[b"likewise"]))
        if path.suffix.lower() == ".npz":
            with np.load(path) as archive:
                return dict(json.loads(str(archive["about"])))
        return dict(json.loads(beside(path).read_bytes()))
    except Exception:  # the file may be of any origin, and readers raise all kinds of exceptions
        return {}


def beside(path: Path) -> Path:
    """Return the path of the JSON file that describes a rank's .npy, which has no room for a description."""
    return path.with_name(f"{path.name}.json")


def read_earlier(path: Path, scratch: Path) -> Earlier:
    """Read the vectors, digests and names of a file. The vectors are copied to the file `scratch` and mapped."""
    try:
        digests, names = READERS[path.suffix.lower()](path, scratch)
        vectors = np.load(scratch, mmap_mode="r")
        if vectors.dtype != np.float32 or vectors.ndim != 2 or not len(vectors) == len(digests) == len(names):
            raise ValueError("its vectors, digests and ids do not fit together")
    except Exception as error:  # as for `about_in`
        raise ValueError(f"{path} cannot be brought up to date: {' '.join(str(error).split())[:200]}") from None
    return Earlier(Known(digests, vectors), names)


def _read_npz(path: Path, scratch: Path) -> tuple[Digests, Names]:
    with zipfile.ZipFile(path) as archive, archive.open("vectors.npy") as source, scratch.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    with np.load(path) as arrays:
        names = arrays["paths" if "paths" in arrays else "ids"].tolist()
        digests = np.ascontiguousarray(arrays["digests"]).view(DIGEST)[:, 0]
    return digests, [storable(name) if isinstance(name, str) else name for name in names]


def _read_parquet(path: Path, scratch: Path) -> tuple[Digests, Names]:
    with needed("pyarrow.parquet", "Parquet", "parquet").ParquetFile(path) as source, scratch.open("wb") as file:
        dim = source.schema_arrow.field("vector").type.list_size
        _write_header(file, source.metadata.num_rows, dim)
        digests: list[bytes] = []
        names: list[str | int] = []
        for batch in source.iter_batches(4096, columns=["id", "path", "vector", "digest"]):
            flat = batch.column("vector").flatten().to_numpy()
            file.write(np.ascontiguousarray(flat, dtype="<f4").data)
            digests += batch.column("digest").to_pylist()
            paths = batch.column("path")
            names += (batch.column("id") if paths.null_count else paths).to_pylist()
    return np.array(digests, dtype=DIGEST), names


READERS: dict[str, Callable[[Path, Path], tuple[Digests, Names]]] = {".parquet": _read_parquet, ".npz": _read_npz}


def _write_npy(path: Path, shards: Shards) -> None:
    with path.open("wb") as file:
        _append(file, shards)


def _append(file: IO[bytes], shards: Shards) -> None:
    _write_header(file, len(shards.ids), shards.dim)
    for _, vectors, _ in shards:
        file.write(np.ascontiguousarray(vectors, dtype="<f4").data)


def _write_header(file: IO[bytes], n: int, d: int) -> None:
    npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, d)})


def _write_npz(path: Path, shards: Shards) -> None:
    items, ids = shards.items, shards.ids
    arrays: dict[str, Any] = {"ids": ids, "about": np.array(json.dumps(shards.about))}
    arrays["digests"] = shards.digests.view(np.uint8).reshape(len(ids), DIGEST.itemsize)
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
        ("digest", arrow.binary(DIGEST.itemsize)),
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
        for ids, vectors, digests in shards:
            flat = arrow.array(vectors.ravel(), type=arrow.float32())
            columns = [
                arrow.array(ids),
                arrow.array([path_of(item) for item in ids], type=arrow.string()),
                arrow.array([label(item) for item in ids], type=arrow.string()),
                arrow.FixedSizeListArray.from_arrays(flat, shards.dim),
                arrow.array(digests.view(f"V{DIGEST.itemsize}").tolist(), type=arrow.binary(DIGEST.itemsize)),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


WRITERS: dict[str, Callable[[Path, Shards], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
