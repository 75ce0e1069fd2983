"""Measure how consistent a dictionary is: are its stored keys still what the current encoder would produce?

MoCo argues that a dictionary should be large and consistent. The size is known; this measures the consistency.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from likewise.dictionaries.key_queue import KeyQueue
from likewise.dictionaries.memory_bank import MemoryBank


@torch.no_grad()
def consistency(dictionary: KeyQueue | MemoryBank, encode: Callable[[int], Tensor], batches: int = 4) -> float:
    """Return the mean cosine between stored keys and the same views encoded now; 1 if nothing has changed.

    `encode(step)` must return the current keys (n, d) of the whole batch that update `step` wrote. Among all
    updates with keys left in the dictionary, `batches` are taken, evenly from the oldest to the newest. The
    result is NaN before the first update. A slot of a memory bank mixes several views of its item, so the
    result stays below 1 there even if the encoder does not change.
    """
    steps = dictionary.steps()
    if not steps:
        return float("nan")
    chosen = {steps[round(i * (len(steps) - 1) / max(1, batches - 1))] for i in range(batches)}
    cosines = []
    for step in sorted(chosen):
        stored = dictionary.stored(step)
        current = encode(step)[stored.rows].to(stored.keys)
        cosines.append(nn.functional.cosine_similarity(stored.keys, current))
    return float(torch.cat(cosines).mean())
