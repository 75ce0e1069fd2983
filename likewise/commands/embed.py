"""`likewise embed`: write the embedding of every item to a file, shard by shard, or bring such a file up to date.

Finished shards are kept on disk beside the output file. So memory does not grow with the data, and an interrupted
command continues where it stopped. With several ranks, each rank writes a file with its part of the items.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from likewise import ranks
from likewise.commands.vector_files import (
    READERS,
    WRITERS,
    Shards,
    about_in,
    beside,
    names_of,
    read_earlier,
    shard_type,
)
from likewise.data import DataError, Items
from likewise.data.builtin import needed
from likewise.data.mapped import change_of
from likewise.data.parts import DIGESTED, Digests
from likewise.encoders.features import for_inference
from likewise.encoders.known import NOTHING, Known, vectors_of
from likewise.evaluation.geometry import LOOKED_AT, collapse_of
from likewise.locks import only_writer
from likewise.printing import note
from likewise.training.encoder import Encoder, check_layer, load
from likewise.training.run import NotFiniteError
from likewise.training.signals import Interrupted, end_on_signal

SHARD = 4096  # items in a shard, at most
SHARD_SAMPLES = 2**26  # samples of sequences in a shard, so that a shard has fewer long ones


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

    `source` is the data to embed, by default the run's own. `out` ends in `.parquet` (columns id, path, label, vector,
    digest), `.npz` (arrays ids, paths, labels, class_names, vectors, digests) or `.npy` (only the vectors, in the order
    of the items). If `out` exists, is no `.npy` and was made by the same encoder and layer from an earlier state of
    the data, then only new and changed items are embedded. With several ranks, `vectors.parquet` becomes
    `vectors-00000-of-00002.parquet` and so on; when the command is repeated, a rank whose file is finished has nothing
    to do. `trust` allows the run to name an encoder (`module:callable`) even if it was not made under this account.
    `say` is called with the number of vectors that were kept, and with a warning if the vectors have collapsed.
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
        about = {"encoder": encoder.fingerprint(layer), "layer": layer, "digests": DIGESTED}
        if world == 1 and out.exists():
            _check_can_be_updated(out, about)
        items = encoder.open(source, columns=columns, progress=progress and rank == 0)
        if len(items) < world:
            counts = f"the {len(items):,} items in {items.name}, got {world:,} ranks"
            raise ValueError(f"there must be at most as many ranks as {counts}")
        ids = np.array_split(np.arange(len(items)), world)[rank]
        about |= {
            "data": items.fingerprint,
            "source": items.name,
            "method": encoder.recipe.method,
            "items": f"{rank} of {world}",
        }
        if world > 1 and out.exists():
            if about_in(out) == about:
                return out
            raise ValueError(f"{_exists(out)}; several ranks cannot bring files up to date")
        parts = out.with_name(f"{out.name}.parts")
        with _writing(out):
            _begin(parts, about)
        with end_on_signal() as stop:
            job = _Job(encoder, layer, items, ids, out, parts, stop.is_set, progress and rank == 0)
            paths, changes = job.update() if out.exists() else (job.embed(), None)
            with _writing(out):
                shards = Shards(paths, items, ids, np.load(paths[0], mmap_mode="r")["vector"].shape[1], about)
                temporary = parts / f"whole{out.suffix}"
                WRITERS[out.suffix.lower()](temporary, shards)
                if world > 1 and out.suffix.lower() == ".npy":
                    _settle(Path(shutil.copy(parts / "about.json", parts / "beside.json")), beside(out))
                warning = collapse_of(shards.some(LOOKED_AT))
                _settle(temporary, out)
        shutil.rmtree(parts)
        if changes is not None:
            say(f"{out}: {changes}")
        if warning is not None and rank == 0:
            say(warning)
        return out


def _exists(out: Path) -> str:
    return f"--out must be a new file, got {out}, which exists"


def _check_can_be_updated(out: Path, about: Mapping[str, Any]) -> None:
    """Raise an error unless the file holds vectors of the same encoder and layer, and digests of their items."""
    if out.suffix.lower() not in READERS:
        can = " or ".join(READERS)
        raise ValueError(f"{_exists(out)}; only {can} can be brought up to date: {out.suffix} has no room for digests")
    stored = about_in(out)
    if any(stored.get(key) != about[key] for key in ("encoder", "layer")):
        raise ValueError(f"{_exists(out)} and does not hold vectors of this encoder and layer")
    if stored.get("digests") != about["digests"]:
        raise ValueError(f"{_exists(out)} and cannot be brought up to date, because it has no digests of the items")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn an OSError into a sentence about the output file, so that it is not taken for a problem with the data."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{out} could not be written: {error.strerror or error}; run the same command again to continue"
        ) from None


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


@dataclass(frozen=True)
class _Job:
    """What is embedded, by which network, and where the shards are written."""

    encoder: Encoder
    layer: str
    items: Items
    ids: NDArray[np.int64]
    out: Path
    parts: Path
    is_told_to_stop: Callable[[], bool]
    progress: bool

    def embed(self) -> list[Path]:
        """Embed all items, and return the paths of the shards in order."""
        return self._shards(NOTHING, lambda start, stop: self.items.main.digests(self.ids[start:stop]))

    def update(self) -> tuple[list[Path], str]:
        """Embed what the existing file lacks, and return the paths of the shards and, in words, what has changed."""
        earlier = read_earlier(self.out, self.parts / "earlier.npy")
        parts = [self.items.main.digests(self.ids[start:stop]) for start, stop in self._bounds("looking for changes")]
        digests = np.concatenate(parts)
        if not earlier.known.is_earlier_state(digests):
            shutil.rmtree(self.parts)
            raise ValueError(f"{_exists(self.out)}, and most of its vectors are of other items than {self.items.name}")
        source, gone = about_in(self.out).get("source"), np.isin(earlier.known.digests, digests, invert=True).sum()
        is_part = gone and len(digests) < len(earlier.known.digests)
        if source != self.items.name and is_part:  # a part of the data must not replace the whole
            shutil.rmtree(self.parts)
            lost = f"{gone:,} of its vectors are of items that {self.items.name} does not have"
            raise ValueError(f"{_exists(self.out)} and was made from {source}: {lost}")
        paths = self._shards(earlier.known, lambda start, stop: digests[start:stop])
        return paths, earlier.changes(digests, names_of(self.items, self.ids))

    def _shards(self, known: Known, digests_of: Callable[[int, int], Digests]) -> list[Path]:
        """Return the paths of the shards, after making those that do not exist yet.

        `digests_of` returns the digests of the items from one place to another.
        """
        network = for_inference(self.encoder.up_to(self.layer))  # once for all shards
        paths: list[Path] = []
        for start, stop in self._bounds(f"{len(self.ids):,} items"):
            path, ids = self.parts / f"{len(paths):06}.npy", self.ids[start:stop]
            paths.append(path)
            if _is_whole(path, stop - start):
                continue
            digests = digests_of(start, stop)
            vectors = vectors_of(network, self.encoder.augmentation, self.items, ids, digests, known)
            _check(vectors, self.items, ids)
            shard = np.empty(len(ids), dtype=shard_type(vectors.shape[1]))
            shard["digest"], shard["vector"] = digests, vectors
            temporary = path.with_suffix(".tmp")
            with _writing(self.out):
                with temporary.open("wb") as file:
                    np.save(file, shard)
                _settle(temporary, path)
        return paths

    def _bounds(self, task: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each shard; raise an error between two of them if told to stop."""
        console = Console(stderr=True, quiet=not self.progress)
        for start, stop in track(list(_bounds(self.items, self.ids)), task, console=console, transient=True):
            yield start, stop
            if self.is_told_to_stop() and stop < len(self.ids):
                done = f"{stop:,} of {len(self.ids):,} items"
                raise Interrupted(f"stopped after {done}; run the same command again to continue")


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
    return bool(shape == (rows,))


def _settle(temporary: Path, path: Path) -> None:
    """Rename a temporary file to its final name, after flushing it to disk."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
