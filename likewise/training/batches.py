"""The batches of a run: which items each step sees, and their pixels, read ahead by threads.

What a step sees follows from (seed, step) alone; so reading can run ahead, be repeated, or begin
anywhere.
"""

from collections import deque
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from likewise import ranks
from likewise.data import Items
from likewise.data.sequences import Sequences
from likewise.pairs.captions import Captions
from likewise.pairs.future import Future
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.randomness import generator
from likewise.threads import single_core_pool

Pairs = Views | Groups | Future | Captions


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one step's batch."""

    step: int
    rows: slice  # of the whole batch, over all ranks
    items: Tensor  # (n,): places in the training part
    ids: Tensor  # (n,) or (n, g)
    data: Tensor  # (n, c, h, w), (n, f) or (n, t, c)
    partner_data: Tensor  # the same; of the items themselves where an item is its own partner; or tokens (n, t)
    starts: Tensor  # (n,): where in their sequences the windows `data` begin; 0 for what is no sequence


class Batches:
    """Batches of `size` items over all ranks, in an order drawn anew each epoch; the last short one is dropped.

    Of a sequence a step sees a `window` of so many samples, drawn anew; of each of two views its own. Windows begin
    at multiples of `grid`.
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
        self.visits = torch.from_numpy(visits(items, train, window))
        self.per_epoch = len(self.visits) // size
        local = size // ranks.count()
        self.rows = slice(ranks.index() * local, (ranks.index() + 1) * local)
        self._order = lru_cache(maxsize=4)(self._draw_order)

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        items = self.places(step)
        partners = self.pairs.partners(items, generator(self.seed, "partner", step))[self.rows]
        items = items[self.rows]
        data, starts = self._read(items, "first", step)
        if isinstance(self.pairs, Captions):
            partner_data = self.pairs.read(partners)
        else:
            alone = torch.equal(items, partners) and (isinstance(self.pairs, Future) or not self.window)
            partner_data = data if alone else self._read(partners, "second", step)[0]
        return Batch(step, self.rows, items, self.pairs.ids(items, partners), data, partner_data, starts)

    def ahead(self, first: int, end: int) -> Iterator[Batch]:
        """The batches of steps `first` to `end`, read by `workers` threads while earlier ones are used."""
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
        """The whole batch of one step, over all ranks, as places in the training part."""
        epoch, place = divmod(step, self.per_epoch)
        return self._order(epoch)[place * self.size : (place + 1) * self.size]

    @property
    def distinct(self) -> bool:
        """Whether no two rows of a step share an id."""
        if isinstance(self.pairs, Captions):
            return self.pairs.distinct
        return self.pairs.columns == 1 and len(self.visits) == len(self.train)

    def _draw_order(self, epoch: int) -> Tensor:
        return self.visits[torch.randperm(len(self.visits), generator=generator(self.seed, "order", epoch))]

    def _read(self, places: Tensor, which: str, step: int) -> tuple[Tensor, Tensor]:
        rng = generator(self.seed, f"{which} window", step)
        ids = self.train[places.numpy()]
        return read(self.items, ids, self.window, self.size, self.rows, rng, self.grid)


def visits(items: Items, train: np.ndarray, window: int) -> np.ndarray:
    """Places in `train` that an epoch goes through: each once, a sequence once for each whole window in it."""
    places = np.arange(len(train))
    if not isinstance(items, Sequences):
        return places
    return np.repeat(places, np.maximum(1, items.lengths[train] // window))


def read(
    items: Items, ids: np.ndarray, window: int, total: int, rows: slice, rng: torch.Generator, grid: int = 1
) -> tuple[Tensor, Tensor]:
    """Items by id, `rows` of `total`, and where they begin: of sequences windows, drawn for all rows."""
    if not isinstance(items, Sequences):
        return torch.from_numpy(items[ids]), torch.zeros(len(ids), dtype=torch.int64)
    shares = torch.rand(total, generator=rng, dtype=torch.float64)[rows]
    room = np.maximum(0, items.lengths[ids] - window)
    starts = np.floor(shares.numpy() * (room // grid + 1)).astype(np.int64) * grid
    return torch.from_numpy(items.windows(ids, starts, window)), torch.from_numpy(starts)
