"""Does a recipe fit in memory? Each size that it names is compared with the machine before anything is allocated.

What is counted is only what follows from that one size: a recipe that passes may still take too much.
"""

from likewise import modalities
from likewise.data import Items
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.memory import check_size, shortage
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, RecipeError


def check_image(size: int, stored: int) -> None:
    """Refuse a resolution at which a single image does not fit; `stored` is what images are kept at for it."""
    if words := shortage(3 * stored**2):
        raise RecipeError(f"data.size = {size:,} would take, for one image of {stored:,} × {stored:,} pixels, {words}")


def check_memory(recipe: Recipe, items: Items) -> None:
    """Refuse sizes for which the tensors of a step, or the dictionary, do not fit."""
    dim = 1 if recipe.encoder.head in ("none", "steps") else recipe.encoder.dim  # those two have a dim of their own
    needed: dict[tuple[str, ...], int] = {
        ("encoder.dim", "training.batch_size"): 2 * recipe.training.batch_size * dim,
        **modalities.of(items.main).numbers_per_step(items.main, recipe),
        **PAIRS[recipe.pairs.kind].numbers_per_step(recipe),
        **DICTIONARIES[recipe.dictionary.kind].numbers(recipe.dictionary, dim),
    }
    for names, count in needed.items():
        check_size({name: recipe.value(name) for name in names}, count)
