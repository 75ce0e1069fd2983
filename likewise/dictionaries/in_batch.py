"""The batch as dictionary: every key of this step, of all ranks, with its gradient.

As large as the batch, and as consistent as can be: every key is of this step. SimCLR, CLIP and
MoCo's end-to-end baseline look up here.
"""

from torch import Tensor, nn

from likewise import ranks
from likewise.dictionaries.found import Found, Stored, check_keys
from likewise.dictionaries.kind import DictionaryKind


class InBatch(nn.Module):
    """Nothing is kept: look-ups are answered from the keys that come with them."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """All keys of the step; a query's own key drops out of its negatives by its id."""
        check_keys(key, ids)
        keys = ranks.gather(key)
        self._size = len(keys)
        return Found(key, keys, ranks.gather(ids))

    def update(self, key: Tensor, ids: Tensor) -> None:
        """Nothing to write."""

    def steps(self) -> list[int]:
        """Return no updates: nothing is kept of any."""
        return []

    def stored(self, step: int) -> Stored:
        raise ValueError(f"a batch keeps no keys, got the step {step}")

    def meters(self) -> dict[str, float]:
        return {"size": float(self._size), "fill": 1.0, "age": 0.0, "oldest": 0.0}


KIND = DictionaryKind(
    "batch",
    build=lambda options, **rest: InBatch(),
    describe=lambda options, items: "the batch",
    describe_defaults=lambda options: "batch",
    title="the batch itself",
    choices=lambda recipe, items, keys: {},
    numbers=lambda options, dim: {},
)
