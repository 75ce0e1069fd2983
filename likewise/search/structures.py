"""FAISS underneath: what proposes candidates where comparing with every item would take too long.

hnsw: a graph of neighbours (Malkov and Yashunin, 2016), with the rows beside it in half precision. ivfpq: cells around
centres, and in them what is left of each row in a byte for every four numbers (Jégou et al., 2011). Both compare by
Euclidean distance, which on unit rows is the order of the cosines. The defaults are made for neighbours that are very
near each other, as those of a trained encoder are: FAISS's quicker four-bit codes cannot tell the items of a tight
group from each other, and eight bits a number in the graph less well than half precision.
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
LEAST = 10_000  # items for ivfpq: 256 centres want 39 each

EDGES, TRIED_IN_BUILDING, TRIED = 32, 80, 128  # hnsw: of a node; M, efConstruction and efSearch
CELLS_PROBED, PROBED_SHARE = 64, 1 / 32  # ivfpq: at least, and of all cells
CODES = 128  # bytes of a row, at most
FOR_A_CELL = 48  # rows that train one


def check_kind(kind: str) -> None:
    if kind not in ("auto", *KINDS):
        raise SearchError(f"kind must be auto, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")


def choose(kind: str, n: int) -> str:
    """The kind for n items, if it can be built; `auto`: exact while that is quick, a graph while it fits in memory."""
    check_kind(kind)
    if kind == "auto":
        kind = "flat" if n <= FLAT_UP_TO else "hnsw" if n <= HNSW_UP_TO else "ivfpq"
    if kind == "ivfpq" and n < LEAST:
        raise SearchError(f"ivfpq must have at least {LEAST:,} items, got {n:,}: flat is exact and quick there")
    if kind != "flat":
        _faiss()
    return kind


def build(kind: str, units: Rows) -> Any:
    """The structure over unit rows (n, d). With several threads, the edges that hnsw keeps depend on their timing."""
    faiss, (n, d) = _faiss(), units.shape
    if kind == "hnsw":
        structure = faiss.IndexHNSWSQ(d, faiss.ScalarQuantizer.QT_fp16, EDGES)
        structure.hnsw.efConstruction = TRIED_IN_BUILDING
        sample = units[:1]  # half precision has nothing to learn
    else:
        codes = min(CODES, math.ceil(d / 4))
        width = math.ceil(d / codes) * codes  # a rotation into a multiple of the codes, which evens them out too
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
    """How many candidates are ranked for the k nearest: codes are coarser than half precision."""
    return 4 * k if kind == "hnsw" else max(200, 20 * k)


def candidates(kind: str, structure: Any, queries: Rows, count: int) -> Places:
    """Places (m, count) near unit queries (m, d), −1 where no more were found."""
    faiss = _faiss()
    if kind == "hnsw":
        how = faiss.SearchParametersHNSW(efSearch=max(TRIED, count))
    else:
        cells = faiss.extract_index_ivf(structure).nlist
        probed = min(cells, max(CELLS_PROBED, int(cells * PROBED_SHARE)))
        how = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=probed))
    with _threads(faiss):
        places: Places = structure.search(queries, count, params=how)[1]
    return places


def write(structure: Any, file: BinaryIO) -> None:
    faiss = _faiss()
    faiss.write_index(structure, faiss.PyCallbackIOWriter(file.write))


def read(kind: str, file: BinaryIO, n: int, d: int) -> Any:
    """The structure in a file whose bytes are known to be those that were written; None if it is not what it should."""
    faiss = _faiss()
    try:
        structure = faiss.read_index(faiss.PyCallbackIOReader(file.read))
    except RuntimeError:  # a FAISS that does not know its own older or newer format
        return None
    expected = faiss.IndexHNSWSQ if kind == "hnsw" else faiss.IndexPreTransform
    return structure if isinstance(structure, expected) and (structure.ntotal, structure.d) == (n, d) else None


def _faiss() -> Any:
    return needed("faiss", "search", "search")


@contextlib.contextmanager
def _threads(faiss: Any) -> Iterator[None]:
    """As many threads as torch has, for as long as this takes."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
