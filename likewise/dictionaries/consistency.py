"""How consistent a dictionary is: do its stored keys still say what today's encoder would say?

MoCo asks of a dictionary that it be large and consistent. Size is easily told; this measures the rest.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from likewise.dictionaries.key_queue import KeyQueue
from likewise.dictionaries.memory_bank import MemoryBank


@torch.no_grad()
def consistency(dictionary: KeyQueue | MemoryBank, encode: Callable[[int], Tensor], batches: int = 4) -> float:
    """Mean cosine between stored keys and the same views encoded today; 1 where nothing has changed.

    `encode(step)` gives today's keys (n, d) of the whole batch that update `step` wrote. Of all updates
    whose keys are left, `batches` are taken, evenly from the oldest to the newest. NaN before the first. A
    bank's slot mixes several views of its item, so it stays below 1 even where the encoder stands still.
    """
    steps = dictionary.steps()
    if not steps:
        return float("nan")
    chosen = {steps[round(i * (len(steps) - 1) / max(1, batches - 1))] for i in range(batches)}
    cosines = []
    for step in sorted(chosen):
        stored = dictionary.stored(step)
        today = encode(step)[stored.rows].to(stored.keys)
        cosines.append(nn.functional.cosine_similarity(stored.keys, today))
    return float(torch.cat(cosines).mean())
