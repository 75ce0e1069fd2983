"""Search among 100,000 vectors of a trained encoder: recall@10 and queries per second of flat, HNSW and IVF-PQ.

    python -m benchmarks.search

The encoder is SimCLR on mnist5k. The vectors are its embeddings of twenty views of each of the 5,000 digits, and the
queries are embeddings of another view of some digits. Views of one digit lie close together, so most neighbours are
nearly tied, which is hard for approximate search. Recall is the share of the ten true nearest neighbours, computed by
NumPy in float64, that is found.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import likewise
from benchmarks.measure import MIB, describe_machine, race, table, write_section
from likewise.data.items import Items
from likewise.randomness import generator
from likewise.search import Index
from likewise.search.structures import KINDS
from likewise.training.encoder import Encoder

SOURCE, ENCODER, STEPS, BATCH = "mnist5k", "resnet_tiny", 600, 128
VIEWS, QUERIES, K = 20, 1_000, 10
WANTED = 0.95
EMBEDDED_AT_ONCE, COMPARED_AT_ONCE = 500, 100


@torch.no_grad()
def embedded(encoder: Encoder, items: Items, ids: NDArray[np.int64], view: int) -> NDArray[np.float32]:
    """Vectors (m, d) of one drawn view of each item."""
    rng, parts = generator(0, "search", view), []
    for start in range(0, len(ids), EMBEDDED_AT_ONCE):
        rows = torch.from_numpy(items[ids[start : start + EMBEDDED_AT_ONCE]])
        parts.append(encoder(encoder.augmentation.apply(rows, encoder.augmentation.draw(len(rows), rng))).numpy())
    return np.concatenate(parts)


def vectors_and_queries(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    run = likewise.train(
        SOURCE, method="simclr", encoder=ENCODER, steps=STEPS, batch_size=BATCH, out=folder, progress=False
    )
    encoder, items = run.encoder, run.encoder.open(progress=False)
    every = np.arange(len(items))
    some = np.random.default_rng(0).permutation(every)[:QUERIES]
    vectors = np.concatenate([embedded(encoder, items, every, view) for view in range(VIEWS)])
    return vectors, embedded(encoder, items, some, VIEWS)


def nearest(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> tuple[NDArray[np.int64], float]:
    """Places (m, K) of the nearest by cosine, nearest first, and the mean cosine of the last: every one compared."""
    units, asked = (
        rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) for rows in (vectors, queries)
    )
    places, last = [], []
    for start in range(0, len(asked), COMPARED_AT_ONCE):
        cosines = asked[start : start + COMPARED_AT_ONCE] @ units.T
        places.append(np.argsort(-cosines, axis=1, kind="stable")[:, :K])
        last.append(np.take_along_axis(cosines, places[-1][:, -1:], axis=1))
    return np.concatenate(places), float(np.concatenate(last).mean())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        vectors, queries = vectors_and_queries(Path(folder) / "run")
        indices, built, sizes = {}, {}, {}
        for kind in KINDS:
            began = time.perf_counter()
            indices[kind] = Index.build(vectors, kind, belongs_to="benchmark")
            built[kind] = time.perf_counter() - began
            kept = Path(folder) / kind
            indices[kind].save(kept)
            sizes[kind] = sum(path.stat().st_size for path in kept.glob("structure-*")) / MIB
            print(f"{kind}: built in {built[kind]:.1f} s", flush=True)
    best = race({kind: lambda index=index: index.search(queries, K) for kind, index in indices.items()}, repeats=3)
    expected, tenth = nearest(vectors, queries)
    rows = []
    for kind, index in indices.items():
        places = index.search(queries, K)[1]
        recall = float((places[:, :, None] == expected[:, None, :]).any(axis=2).mean())
        words = f"{recall:.4f}" + (", **short**" if recall < WANTED else "")
        rows.append([kind, words, f"{QUERIES / best[kind]:,.0f}", f"{built[kind]:.1f} s", f"{sizes[kind]:,.0f} MiB"])
        if kind == "flat":
            same = int((places == expected).all(axis=1).sum())
    found = table(["index", "recall@10", "queries a second", "built in", "beside the vectors"], rows)
    n, d = vectors.shape
    text = "\n\n".join(
        [
            describe_machine(["faiss-cpu"]),
            f"{n:,} vectors × {d} of SimCLR ({ENCODER}, {STEPS} steps) on {SOURCE}, {VIEWS} views of each image; "
            f"{QUERIES:,} queries at once, of other views; the tenth nearest has a cosine of {tenth:.3f} on "
            f"average. Default settings; candidates of hnsw and ivfpq are ranked exactly; a recall of {WANTED} or more "
            f"is wanted. flat gives the ten of exact search in float64, in the same order, for {same:,} of them.",
            found,
        ]
    )
    write_section("Search", text)
    print(text)


if __name__ == "__main__":
    main()
