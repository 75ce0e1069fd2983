"""FAISS indexes, which propose candidates if comparing a query with every item would take too long.

hnsw: a graph of neighbours (Malkov and Yashunin, 2016), which stores the rows in half precision. ivfpq: cells around
centres, in which the residual of each row is stored with one byte for every four numbers (Jégou et al., 2011). Both
compare by Euclidean distance, which orders unit rows as the cosine does. The defaults suit neighbours that are very
near to each other, as those of a trained encoder are: FAISS's faster four-bit codes cannot distinguish the items of a
tight group, and in the graph eight bits per number distinguish them less well than half precision.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import torch

from likewise.data.builtin import needed
from likewise.search.exact import Places, Rows, SearchError

KINDS = ("flat", "hnsw", "ivfpq")
FLAT_UP_TO, HNSW_UP_TO = 50_000, 1_000_000
LEAST = 10_000  # items for ivfpq: FAISS wants 39 training rows for each of the 256 centres

EDGES, TRIED_IN_BUILDING, TRIED = 32, 80, 128  # hnsw: M (edges of a node), efConstruction and efSearch
CELLS_PROBED, PROBED_SHARE = 64, 1 / 32  # ivfpq: cells that are searched, at least, and as a share of all cells
CODES = 128  # ivfpq: bytes per row, at most
FOR_A_CELL = 48  # ivfpq: training rows per cell


def check_kind(kind: str) -> None:
    if kind not in ("auto", *KINDS):
        raise SearchError(f"kind must be auto, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")


def choose(kind: str, n: int) -> str:
    """Return the kind of index for n items, or raise SearchError if it cannot be built.

    `auto` is exact as long as that is fast, and a graph as long as that fits in memory.
    """
    check_kind(kind)
    if kind == "auto":
        kind = "flat" if n <= FLAT_UP_TO else "hnsw" if n <= HNSW_UP_TO else "ivfpq"
    if kind == "ivfpq" and n < LEAST:
        raise SearchError(f"ivfpq needs at least {LEAST:,} items, got {n:,}: use flat, which is exact and fast enough")
    if kind != "flat":
        _faiss()
    return kind


def build(kind: str, units: Rows) -> Any:
    """Build the FAISS index of unit rows (n, d). With several threads, the edges of hnsw depend on their timing."""
    faiss, (n, d) = _faiss(), units.shape
    if kind == "hnsw":
        structure = faiss.IndexHNSWSQ(d, faiss.ScalarQuantizer.QT_fp16, EDGES)
        structure.hnsw.efConstruction = TRIED_IN_BUILDING
        sample = units[:1]  # half precision needs no training
    else:
        codes = min(CODES, math.ceil(d / 4))
        # The dimension must be a multiple of the codes. The rotation into it also spreads the variance over them.
        width = math.ceil(d / codes) * codes
        cells = min(4 * math.isqrt(n), n // 39)
        inner = faiss.IndexIVFPQ(faiss.IndexFlatL2(width), width, cells, codes, 8)
        inner.cp.niter, inner.pq.cp.niter, inner.pq.cp.max_points_per_centroid = 10, 8, 40
        structure = faiss.IndexPreTransform(faiss.RandomRotationMatrix(d, width), inner)
        count = min(n, max(LEAST, FOR_A_CELL * cells))
        sample = units[np.sort(np.random.default_rng(0).permutation(n)[:count])]
    with _threads(faiss):
        structure.train(sample)
        structure.add(units)
    return structure


def proposed(k: int, kind: str) -> int:
    """Return how many candidates to rank for the k nearest: more for ivfpq, which is coarser than half precision."""
    return 4 * k if kind == "hnsw" else max(200, 20 * k)


def candidates(kind: str, structure: Any, queries: Rows, count: int) -> Places:
    """Return places (m, count) near unit queries (m, d), −1 if fewer were found."""
    faiss = _faiss()
    if kind == "hnsw":
        parameters = faiss.SearchParametersHNSW(efSearch=max(TRIED, count))
    else:
        cells = faiss.extract_index_ivf(structure).nlist
        probed = min(cells, max(CELLS_PROBED, int(cells * PROBED_SHARE)))
        parameters = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=probed))
    with _threads(faiss):
        places: Places = structure.search(queries, count, params=parameters)[1]
    return places


def write(structure: Any, file: BinaryIO) -> None:
    faiss = _faiss()
    faiss.write_index(structure, faiss.PyCallbackIOWriter(file.write))


def read(kind: str, file: BinaryIO, n: int, d: int) -> Any:
    """Read a FAISS index from a file with a verified digest; return None if it is not of this kind and shape."""
    faiss = _faiss()
    try:
        structure = faiss.read_index(faiss.PyCallbackIOReader(file.read))
    except RuntimeError:  # the file was written by another version of FAISS, in a format that this one cannot read
        return None
    expected = faiss.IndexHNSWSQ if kind == "hnsw" else faiss.IndexPreTransform
    return structure if isinstance(structure, expected) and (structure.ntotal, structure.d) == (n, d) else None


def _faiss() -> Any:
    return needed("faiss", "search", "search")


@contextlib.contextmanager
def _threads(faiss: Any) -> Iterator[None]:
    """Let FAISS use as many threads as PyTorch for the duration of a block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
