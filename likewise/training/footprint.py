"""Does a recipe fit in memory? Each size that it names is compared with the machine before anything is allocated.

What is counted is only what follows from that one size: a recipe that passes may still take too much.
"""

from collections.abc import Mapping

from likewise.data import Items
from likewise.memory import shortage
from likewise.recipe import Recipe, RecipeError

NUMBER = 4  # bytes of a float32


def check_image(size: int, stored: int) -> None:
    """Refuse a resolution at which a single image does not fit; `stored` is what images are kept at for it."""
    if words := shortage(3 * stored**2):
        raise RecipeError(f"data.size = {size:,} would take, for one image of {stored:,} × {stored:,} pixels, {words}")


def check_memory(recipe: Recipe, items: Items) -> None:
    """Refuse sizes for which the tensors of a step, or the dictionary, do not fit."""
    batch, channels = recipe.training.batch_size, items.array.shape[1]
    dim = 1 if recipe.encoder.head in ("none", "steps") else recipe.encoder.dim  # those two have a dim of their own
    needed = {("encoder.dim", "training.batch_size"): 2 * batch * dim}
    if items.kind == "image":
        needed["data.size", "training.batch_size"] = 2 * batch * channels * recipe.data.size**2
    if items.kind == "sequence":
        needed["pairs.window", "training.batch_size"] = batch * channels * recipe.pairs.window
    if recipe.pairs.kind == "future":
        needed["pairs.candidates", "training.batch_size"] = batch * recipe.pairs.candidates
    if recipe.dictionary.kind == "queue":
        needed["dictionary.size", "encoder.dim"] = recipe.dictionary.size * (dim + 6)  # a key's ids and age beside it
    if recipe.dictionary.kind == "bank":
        needed["dictionary.negatives", "encoder.dim"] = recipe.dictionary.negatives * dim
    for names, count in needed.items():
        check_size({name: recipe.value(name) for name in names}, count)


def check_size(values: Mapping[str, int], count: int) -> None:
    """Refuse values of the recipe, by key, for which `count` numbers are needed, if these do not fit."""
    if words := shortage(NUMBER * count):
        raise RecipeError(
            " and ".join(f"{name} = {value:,}" for name, value in values.items()) + f" would take {words}"
        )
