"""Reuse vectors that the same network has computed before. An item is recognised by the hash of its content.

So it does not matter where an item is stored, what it is called, or which place it has among the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from likewise.data import Items
from likewise.data.parts import DIGEST, Digests, Ids
from likewise.encoders.features import features
from likewise.views.augmentation import Augmentation

EARLIER_STATE = 0.5  # share of the items that must still be there


@dataclass(frozen=True, eq=False)
class Known:
    """Vectors that a network has computed before, and the items that they belong to."""

    digests: Digests  # (n,), see `Part.digests`
    vectors: NDArray[np.float32]  # (n, d); may be mapped

    @cached_property
    def _sorted(self) -> tuple[Digests, Ids]:
        """The digests in ascending order, and the place of each."""
        order = np.argsort(self.digests)
        return self.digests[order], order

    def places(self, digests: Digests) -> Ids:
        """Return the place of each of some items (m,), −1 for an item that is not known."""
        if not len(self.digests):
            return np.full(len(digests), -1, dtype=np.int64)
        ascending, order = self._sorted
        nearest = np.searchsorted(ascending, digests).clip(max=len(order) - 1)
        return np.where(ascending[nearest] == digests, order[nearest], -1)

    def is_earlier_state(self, digests: Digests) -> bool:
        """Return whether at least half of the known items are among these, so that these are the same data, later."""
        return bool(np.isin(self.digests, digests).sum() >= max(1, EARLIER_STATE * len(self.digests)))


NOTHING = Known(np.empty(0, dtype=DIGEST), np.empty((0, 0), dtype=np.float32))


def vectors_of(
    network: nn.Module,
    augmentation: Augmentation,
    items: Items,
    ids: Ids,
    digests: Digests,
    known: Known,
    tell_share: Callable[[float], None] = lambda share: None,
) -> NDArray[np.float32]:
    """Return the vectors (m, d) of some items: those that are known as they are, the others by the network.

    `digests` (m,) are those of the items. `tell_share` is called with the share of the unknown items that is done.
    """
    places = known.places(digests)
    is_known = places >= 0
    if is_known.all():
        return known.vectors[places]
    embedded = features(network, augmentation, items, ids[~is_known], tell_share).numpy()
    if not is_known.any():
        return embedded
    vectors = np.empty((len(ids), embedded.shape[1]), dtype=np.float32)
    vectors[~is_known] = embedded
    vectors[is_known] = known.vectors[places[is_known]]
    return vectors
