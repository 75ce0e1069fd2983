"""The batch as dictionary: all keys of this step, from all ranks, with their gradient.

It is as large as the batch and perfectly consistent, since all keys are from the same step. SimCLR,
CLIP and MoCo's end-to-end baseline use it.
"""

from torch import Tensor, nn

from likewise import ranks
from likewise.dictionaries.found import Found, Stored, check_keys
from likewise.dictionaries.kind import DictionaryKind


class InBatch(nn.Module):
    """A dictionary that stores nothing: a look-up returns the keys that are passed to it."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def lookup(self, key: Tensor, ids: Tensor, rng: object = None) -> Found:
        """Return all keys of the step; the loss masks a query's own key by its id."""
        check_keys(key, ids)
        keys = ranks.gather(key)
        self._size = len(keys)
        return Found(key, keys, ranks.gather(ids))

    def update(self, key: Tensor, ids: Tensor) -> None:
        """Do nothing: there is nothing to store."""

    def steps(self) -> list[int]:
        """Return an empty list: no keys of earlier updates are stored."""
        return []

    def stored(self, step: int) -> Stored:
        raise ValueError(f"the batch stores no keys of earlier steps, got step {step}")

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
