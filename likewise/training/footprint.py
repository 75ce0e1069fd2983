"""Check that a recipe fits in memory, before anything is allocated.

Each size in the recipe is checked by itself, for the memory that it needs at least. A recipe that passes may still
need more memory than there is.
"""

from likewise import modalities
from likewise.data import Items
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.memory import check_size, shortage
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe, RecipeError


def check_image(size: int, stored: int) -> None:
    """Refuse a data.size for which a single image, stored with a side of `stored` pixels, does not fit in memory."""
    if words := shortage(3 * stored**2):
        raise RecipeError(
            f"data.size = {size:,} stores each image as {stored:,} × {stored:,} pixels, which takes {words}"
        )


def check_memory(recipe: Recipe, items: Items) -> None:
    """Refuse sizes for which the tensors of a step, or the dictionary, do not fit in memory."""
    dim = 1 if recipe.encoder.head in ("none", "steps") else recipe.encoder.dim  # these two ignore encoder.dim
    needed: dict[tuple[str, ...], int] = {
        ("encoder.dim", "training.batch_size"): 2 * recipe.training.batch_size * dim,
        **modalities.of(items.main).numbers_per_step(items.main, recipe),
        **PAIRS[recipe.pairs.kind].numbers_per_step(recipe),
        **DICTIONARIES[recipe.dictionary.kind].numbers(recipe.dictionary, dim),
    }
    for names, count in needed.items():
        check_size({name: recipe.value(name) for name in names}, count)
