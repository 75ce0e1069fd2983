"""A dictionary as training sees it: how it is built, and the properties that it declares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from likewise.recipe import Dictionary, Recipe


@dataclass(frozen=True)
class DictionaryKind:
    """A dictionary by name, with its properties."""

    name: str
    build: Callable[..., Any]  # from options, dim, items, columns and rng to a module with lookup, update and meters
    describe: Callable[[Dictionary, int], str]  # for the plan, from its options and the number of items
    describe_defaults: Callable[[Dictionary], str]  # for the table of methods
    title: str  # its name in the explorer
    choices: Callable[[Recipe, int, int], dict[str, tuple[int, str]]]  # from recipe, items, keys to values and reasons
    # how many numbers it stores, by the recipe keys that determine it; the memory error names them
    numbers: Callable[[Dictionary, int], dict[tuple[str, ...], int]]
    options: tuple[str, ...] = ()  # recipe keys of [dictionary] that it reads, besides `kind`
    stores: bool = False  # it stores keys of earlier steps
    one_slot_an_item: bool = False
    knows_noise: bool = False  # it knows the probability with which a negative is drawn
    fills: bool = False  # it starts empty, and look-ups become harder as it fills
