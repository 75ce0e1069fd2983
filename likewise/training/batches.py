"""The batches of a run: which items each step sees, and their data, which threads read ahead.

A step's batch depends only on the seed and the step. So batches can be read ahead, read again, or read from any step.
"""

from collections import deque
from collections.abc import Iterator
from concurrent import futures
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from likewise import ranks
from likewise.data import Items
from likewise.data.parts import Part
from likewise.pairs.batch import Batch
from likewise.pairs.pairs import Pairs
from likewise.randomness import generator
from likewise.threads import single_core_pool

__all__ = ["Batch", "Batches", "read"]


class Batches:
    """Batches of `size` items over all ranks, reshuffled every epoch; the last incomplete batch is dropped.

    Of a sequence, a step sees a random window of `window` samples, and each of two views sees its own. Windows begin at
    multiples of `grid`.
    """

    def __init__(
        self,
        items: Items,
        train: np.ndarray,
        pairs: Pairs,
        *,
        size: int,
        seed: int,
        workers: int,
        window: int = 0,
        grid: int = 1,
    ) -> None:
        self.grid = grid
        self.items, self.train, self.pairs = items, train, pairs
        self.size, self.seed, self.workers, self.window = size, seed, workers, window
        self.visits = torch.from_numpy(items.main.visits(train, window))
        self.per_epoch = len(self.visits) // size
        self.distinct = pairs.distinct(each_once=len(self.visits) == len(train))
        local = size // ranks.count()
        self.rows = slice(ranks.index() * local, (ranks.index() + 1) * local)
        self._order = lru_cache(maxsize=4)(self._draw_order)

    def at(self, step: int) -> Batch:
        """Return the batch of one step."""
        items = self.places(step)
        partners = self.pairs.partners(items, generator(self.seed, "partner", step))[self.rows]
        items = items[self.rows]
        data, starts = self._read(items, "first", step)

        def read_side(places: Tensor, side: str) -> Tensor:
            return self._read(places, side, step)[0]

        is_whole = self.items.main.is_whole(self.window)
        partner_data = self.pairs.read_partners(read_side, data, items, partners, is_whole=is_whole)
        ids = self.pairs.ids(items, partners)
        return Batch(step, self.rows, items, ids, data, partner_data, starts, self.distinct)

    def ahead(self, first: int, end: int) -> Iterator[Batch]:
        """Yield the batches of steps `first` to `end`, read ahead by `workers` threads."""
        if not self.workers:
            yield from map(self.at, range(first, end))
            return
        with single_core_pool(self.workers, "likewise-read") as pool:
            coming: deque[futures.Future[Batch]] = deque()
            try:
                for step in range(first, end):
                    while len(coming) < 2 * self.workers and step + len(coming) < end:
                        coming.append(pool.submit(self.at, step + len(coming)))
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()

    def places(self, step: int) -> Tensor:
        """Return the whole batch of one step, over all ranks, as places in the training part."""
        epoch, place = divmod(step, self.per_epoch)
        return self._order(epoch)[place * self.size : (place + 1) * self.size]

    def _draw_order(self, epoch: int) -> Tensor:
        return self.visits[torch.randperm(len(self.visits), generator=generator(self.seed, "order", epoch))]

    def _read(self, places: Tensor, side: str, step: int) -> tuple[Tensor, Tensor]:
        rng = generator(self.seed, f"{side} window", step)
        ids = self.train[places.numpy()]
        return read(self.items.main, ids, self.window, self.size, self.rows, rng, self.grid)


def read(
    part: Part, ids: np.ndarray, window: int, total: int, rows: slice, rng: torch.Generator, grid: int = 1
) -> tuple[Tensor, Tensor]:
    """Read the data of some items, a random window of each, and return it with the start of each window.

    Windows are drawn for all `total` rows of a batch, of which `rows` are read, so that ranks draw the same ones.
    """
    shares = torch.rand(total, generator=rng, dtype=torch.float64)[rows]
    data, starts = part.read(ids, window, shares.numpy(), grid)
    return torch.from_numpy(data), torch.from_numpy(starts)
