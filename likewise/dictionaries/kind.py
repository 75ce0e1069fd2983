"""A dictionary as training sees it: how it is built, and what it declares about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from likewise.dictionaries.found import Found, Stored
from likewise.recipe import Dictionary, Recipe


class Keys(Protocol):
    """A dictionary with its two verbs."""

    def lookup(self, key: Tensor, ids: Tensor, rng: torch.Generator | None = None) -> Found: ...

    def update(self, key: Tensor, ids: Tensor) -> None: ...

    def meters(self) -> dict[str, float]: ...

    def steps(self) -> list[int]: ...

    def stored(self, step: int) -> Stored: ...


@dataclass(frozen=True)
class DictionaryKind:
    """A dictionary by name, with its properties."""

    name: str
    build: Callable[..., torch.nn.Module]  # options, dim, items, columns, rng
    describe: Callable[[Dictionary, int], str]  # in the plan, from its options and the number of items
    describe_defaults: Callable[[Dictionary], str]  # in the table of methods
    title: str  # what the explorer calls it
    choices: Callable[[Recipe, int, int], dict[str, tuple[int, str]]]  # recipe, items, keys: values and why
    numbers: Callable[[Dictionary, int], dict[tuple[str, ...], int]]  # how much it holds because of which values
    options: tuple[str, ...] = ()  # of the recipe's section, besides `kind`
    stores: bool = False  # keys of earlier steps
    one_slot_an_item: bool = False
    knows_noise: bool = False  # the probability with which a negative is drawn
    fills: bool = False  # it starts empty, and look-ups become harder as it fills
