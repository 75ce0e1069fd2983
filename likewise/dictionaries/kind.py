"""A dictionary as training sees it: how it is built, and what it declares about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from likewise.recipe import Dictionary, Recipe


@dataclass(frozen=True)
class DictionaryKind:
    """A dictionary by name, with its properties."""

    name: str
    build: Callable[..., Any]  # a module with lookup, update and meters, from options, dim, items, columns and rng
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
