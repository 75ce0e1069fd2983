"""A loss as training sees it: how it is built, how it scores a look-up, and the properties that it declares.

Which losses can be combined with which pairs and dictionaries follows from these properties, not from names.

With several ranks, a loss that scores look-ups is a mean over the queries of its rank, and a loss that scores a batch
against itself is computed by every rank on the rows of all ranks. In both cases the average of the ranks' gradients
equals the gradient of a single process (see `likewise.ranks`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from likewise.losses.look_up import LookUp
from likewise.recipe import Loss

Module = Callable[..., Tensor]  # a loss module


@dataclass(frozen=True)
class LossKind:
    """A loss by name, with its properties."""

    name: str
    build: Callable[[Loss, int], nn.Module]  # makes the module from its options and the number of items
    score: Callable[[Module, LookUp], Tensor]
    options: tuple[str, ...] = ("temperature", "learnable")  # recipe keys of [loss] it reads, besides `kind`, `weight`
    within_batch: bool = False  # it scores the rows of a batch against each other, so the dictionary is the batch
    one_tower: bool = False  # every row is both a query and a key, so the encoder must make the keys too
    asks_both_views: bool = False  # both views of an item are queries
    is_symmetric: bool = False  # it already looks in both directions
    needs_labels: bool = False
    needs_known_noise: bool = False  # it must know the probability with which a negative was drawn
    takes_frames: bool = False  # it can score queries that each have their own candidates
    takes_policy: bool = False
    takes_similarity: bool = False  # other losses always use the cosine
    chance_is_log_n: bool = False  # guessing among N candidates costs log N
    by_margin: bool = False  # it has a margin instead of a temperature
    defaults: dict[str, tuple[Any, str]] = field(default_factory=dict)  # recipe values that suit it, and why

    def similarity(self, options: Loss) -> str:
        """Return the name of the similarity with which rows are compared."""
        return options.similarity if self.takes_similarity else "cosine"

    def scale_in_words(self, options: Loss) -> str:
        """Describe the temperature or margin that loss values depend on, as in `temperature 0.2`."""
        return f"margin {options.margin:g}" if self.by_margin else f"temperature {options.temperature:g}"
