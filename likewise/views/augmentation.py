"""Define the interface of augmentations: random changes that keep what an item is, for a whole batch on its device.

    augmentation = views.preset("moco_v2", size=32)
    draws = augmentation.draw(256, torch.Generator().manual_seed(0))
    views = augmentation.apply(images, draws)       # (256, 3, 32, 32) float32 from (256, 3, h, w) uint8
    augmentation.apply(images[3:5], draws.rows(slice(3, 5)))            # equal to views[3:5]
    augmentation.plain(images)                      # for evaluation: without random changes

Drawing is separate from applying. `draw` takes a fixed number of random numbers per row and does not look at the
items; `apply` takes none. So a view can be made a second time, and every rank can draw for the whole batch and apply
only its own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

PLAIN = "none"  # the preset without random changes; not every modality has it


@dataclass(frozen=True)
class Draws:
    """The random numbers of n rows: tensors (n, ...) on the CPU, by name."""

    values: Mapping[str, Tensor]

    def rows(self, index: slice | Tensor) -> "Draws":
        """Return the draws of some rows, to be applied to the same rows of the items."""
        return Draws({name: value[index] for name, value in self.values.items()})

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


class Augmentation(Protocol):
    """Draw and apply random changes. `mean` and `std` normalise every view, (x − mean) / std, and are exported."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...

    def draw(self, n: int, rng: torch.Generator) -> Draws: ...

    def apply(self, items: Tensor, draws: Draws) -> Tensor: ...

    def plain(self, items: Tensor) -> Tensor: ...


def together(augmentation: Augmentation) -> int:
    """Return the number of consecutive rows whose views depend on each other: its `together`, or 1 if it has none.

    Parts of a batch that are augmented separately must begin at multiples of it.
    """
    return int(getattr(augmentation, "together", 1))


def changes(augmentation: Augmentation) -> bool:
    """Return whether two views differ: its `changes`, or True if it has none; else only dropout makes them differ."""
    return bool(getattr(augmentation, "changes", True))


def check_draws(name: str, items: Tensor, draws: Draws | None) -> None:
    if draws is not None and len(draws) != len(items):
        raise ValueError(f"draws must have {len(items)} rows like {name}, got {len(draws)}")


def check_whole(name: str, number: int, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {number!r}")
