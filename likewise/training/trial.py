"""Try out a learner before the first step: does every parameter get a gradient, and how long does a step take?"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from likewise import clock, ranks
from likewise.guide import see
from likewise.recipe import RecipeError
from likewise.training import pace
from likewise.training.batches import Batches
from likewise.training.learner import Learner, Taken
from likewise.training.run import RunError

REHEARSED = 3  # steps from which the duration of a run is estimated


@contextmanager
def enough_memory(batch_size: int) -> Iterator[None]:
    """Say what to do if the device runs out of memory in the block."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise RunError(
            f"the device ran out of memory; lower training.batch_size, which is {batch_size}, "
            f"or embed the batch in parts (training.chunk) {see('memory')}"
        ) from None


def check_gradients(learner: Learner, batches: Batches, step: int) -> None:
    """Rehearse a step, also to warm up, and refuse parameters without a gradient if there are several ranks."""
    without_gradient = learner.rehearse(batches.at(step))
    if without_gradient and ranks.count() > 1:
        raise RecipeError(
            f"with several ranks every parameter of the encoder must get a gradient, got none for "
            f"{without_gradient[0]}; remove it or set its requires_grad to False"
        )


def rehearsed_step(learner: Learner, batches: Batches, first: int, total: int) -> float:
    """Return about how many seconds a step takes, without changing the learner: the median of a few rehearsals."""
    some = list(batches.ahead(first, min(first + REHEARSED, total)))
    seconds = statistics.median(pace.timed(partial(learner.rehearse, batch)) for batch in some)
    parts = len(learner.parts(some[0]))
    # With several parts, each part is embedded a second time in the backward pass.
    return seconds * (parts * 4 / 3 if parts > 1 else 1)


def take_steps(learner: Learner, batches: Batches, seconds: float, first: int = 0) -> tuple[float, Taken]:
    """Take steps from `first` on for about `seconds`; return how long one takes, and the result of the last one.

    This trains the learner, and fills its dictionary first, because look-ups take longer once the queue is full. All
    ranks take equally many steps.
    """
    learner.fill_dictionary(batches.at(first))
    times: list[float] = []
    began = last = clock.now()
    most = first + pace.MOST_TRIED
    for batch in batches.ahead(first, most):
        taken = learner.step(batch, most)
        taken.loss.item()  # wait until the device is done
        now = clock.now()
        times.append(now - last)
        last = now
        if ranks.any_of(pace.is_enough(len(times), now - began, seconds), learner.fabric.device):
            break
    return pace.steady(times), taken
