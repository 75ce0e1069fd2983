"""The batches of a run: which items each step sees, and their pixels, read ahead by threads.

What a step sees follows from (seed, step) alone; so reading can run ahead, be repeated, or begin
anywhere.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from likewise import ranks
from likewise.data import Items
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.randomness import generator


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one step's batch."""

    step: int
    rows: slice  # of the whole batch, over all ranks
    items: Tensor  # (n,): places in the training part
    ids: Tensor  # (n,) or (n, g)
    data: Tensor  # (n, c, h, w) or (n, f)
    partner_data: Tensor  # the same; of the items themselves where an item is its own partner


class Batches:
    """Batches of `size` items over all ranks, in an order drawn anew each epoch; the last short one is dropped."""

    def __init__(
        self, items: Items, train: np.ndarray, pairs: Views | Groups, *, size: int, seed: int, workers: int
    ) -> None:
        self.items, self.train, self.pairs = items, train, pairs
        self.size, self.seed, self.workers = size, seed, workers
        self.per_epoch = len(train) // size
        local = size // ranks.count()
        self.rows = slice(ranks.index() * local, (ranks.index() + 1) * local)
        self._order = lru_cache(maxsize=4)(self._draw_order)

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        items = self.places(step)
        partners = self.pairs.partners(items, generator(self.seed, "partner", step))[self.rows]
        items = items[self.rows]
        data = self._read(items)
        partner_data = data if torch.equal(items, partners) else self._read(partners)
        return Batch(step, self.rows, items, self.pairs.ids(items), data, partner_data)

    def ahead(self, first: int, end: int) -> Iterator[Batch]:
        """The batches of steps `first` to `end`, read by `workers` threads while earlier ones are used."""
        if not self.workers:
            yield from map(self.at, range(first, end))
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="likewise-read") as pool:
            coming: deque[Future[Batch]] = deque()
            try:
                for step in range(first, end):
                    while len(coming) < 2 * self.workers and step + len(coming) < end:
                        coming.append(pool.submit(self.at, step + len(coming)))
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()

    def places(self, step: int) -> Tensor:
        """The whole batch of one step, over all ranks, as places in the training part."""
        epoch, place = divmod(step, self.per_epoch)
        return self._order(epoch)[place * self.size : (place + 1) * self.size]

    def _draw_order(self, epoch: int) -> Tensor:
        return torch.randperm(len(self.train), generator=generator(self.seed, "order", epoch))

    def _read(self, places: Tensor) -> Tensor:
        return torch.from_numpy(self.items[self.train[places.numpy()]])
