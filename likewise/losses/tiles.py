"""The tiles of a score matrix that is never held as a whole, and the products that make and use them.

Sizes and splits were chosen by measuring (`benchmarks/losses.py`). A tile that stays in the
second-level caches costs a product and an exponential, without reading from main memory.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from likewise.losses.masks import Mask, steps


def _side(device: torch.device) -> int:
    """Return the side of a square tile that fills the cores' second-level caches, or keeps an accelerator busy."""
    area = min(2**19 * torch.get_num_threads(), 2**23) if device.type == "cpu" else 2**23
    return int(area**0.5) // 64 * 64


def tile_shape(n: int, k: int, device: torch.device) -> tuple[int, int]:
    """Return the rows and columns of a tile: square, but wider if there are few rows and higher if few columns."""
    side = _side(device)
    height = min(n, max(side, side * side // max(1, k)))
    return height, max(1, min(k, side * side // height))


class Scratch:
    """A buffer that all tiles reuse: fresh memory for each tile would cost as much time as a pass over it."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.memory: Tensor | None = None

    def shaped(self, *shape: int) -> Tensor:
        """Return an uninitialised tensor of this shape, valid until the next call."""
        size = math.prod(shape)
        if self.memory is None or self.memory.numel() < size:
            self.memory = self.like.new_empty(shape)
        return self.memory if self.memory.shape == shape else self.memory.view(-1)[:size].view(shape)


def slabs_for(rows: Tensor) -> int:
    """Return into how many parallel products one product with a narrow (m, d) result is split."""
    return min(torch.get_num_threads(), 8) if rows.device.type == "cpu" and rows.shape[1] < 256 else 1


def tiles(query: Tensor, keys: Tensor, mask: Mask) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield each tile of query @ keys.T: its rows, its columns, its keys and its masked scores.

    All tiles share one buffer, so a tile is overwritten by the next one.
    """
    height, width = tile_shape(len(query), len(keys), query.device)
    scratch = Scratch(query)
    for columns in steps(len(keys), width):
        chunk = keys[columns]
        for rows in steps(len(query), height):
            yield rows, columns, chunk, _scores(scratch, query[rows], chunk, mask, rows, columns)


def tiles_above_diagonal(rows: Tensor, mask: Mask) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield the tiles of rows @ rows.T on and above the diagonal, in the form of `tiles`."""
    height = min(len(rows), _side(rows.device))
    scratch = Scratch(rows)
    for columns in steps(len(rows), height):
        for above in steps(columns.stop, height):
            scores = _scores(scratch, rows[above], rows[columns], mask, above, columns)
            yield above, columns, rows[columns], scores


def _scores(scratch: Scratch, query: Tensor, keys: Tensor, mask: Mask, rows: slice, columns: slice) -> Tensor:
    scores = torch.mm(query, keys.T, out=scratch.shaped(len(query), len(keys)))
    mask.hide(scores, rows, columns)
    return scores


def add_product(total: Tensor, weights: Tensor, rows: Tensor) -> None:
    """Add weights (m, c) @ rows (c, d) to total (m, d) in place.

    Each thread gets a slab of the rows, because BLAS splits so narrow a product badly.
    """
    slabs = slabs_for(total)
    if slabs > 1 and len(total) % slabs == 0 and weights.numel() > 2**16:
        rows_per_slab = rows.expand(slabs, *rows.shape)
        total.view(slabs, -1, total.shape[1]).baddbmm_(weights.view(slabs, -1, weights.shape[1]), rows_per_slab)
    else:
        total.addmm_(weights, rows)
