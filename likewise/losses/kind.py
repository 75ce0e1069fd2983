"""A loss as training sees it: how it is built and asked, and what it declares about itself.

Which losses go with which pairs and dictionaries follows from these properties, and not from names.

Under several ranks a loss that scores look-ups is a mean over the rank's own queries; one that scores a batch against
itself is computed on all ranks' rows, on every rank. Both give one process's gradient when the gradients of the ranks
are averaged (see `likewise.ranks`).
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
    build: Callable[[Loss, int], nn.Module]  # from its options and the number of items
    score: Callable[[Module, LookUp], Tensor]
    options: tuple[str, ...] = ("temperature", "learnable")  # of the recipe's section, besides `kind` and `weight`
    within_batch: bool = False  # it scores the rows of a batch against each other, so the dictionary is the batch
    one_tower: bool = False  # every row is query and key, so keys are the encoder's own
    asks_both_views: bool = False  # both views of an item are queries
    is_symmetric: bool = False  # it already looks in both directions
    needs_labels: bool = False
    needs_known_noise: bool = False  # the probability with which a negative was drawn
    takes_frames: bool = False  # it scores queries that each have candidates drawn for them
    takes_policy: bool = False
    takes_similarity: bool = False  # other losses compare by the cosine
    chance_is_log_n: bool = False  # guessing among N candidates costs log N
    by_margin: bool = False  # it has a margin in place of a temperature
    defaults: dict[str, tuple[Any, str]] = field(default_factory=dict)  # recipe values that suit it, and why

    def similarity(self, options: Loss) -> str:
        """Return what it compares rows by."""
        return options.similarity if self.takes_similarity else "cosine"

    def scale_in_words(self, options: Loss) -> str:
        """Describe what its values depend on, as in `temperature 0.2`."""
        return f"margin {options.margin:g}" if self.by_margin else f"temperature {options.temperature:g}"
