"""Which keys is a query looked up in? Dictionaries have two verbs: `lookup` reads, `update` writes.

`lookup(key, ids, rng=None)` returns `Found(positive, negatives, negative_ids)`; `update(key, ids)` is
called after the step; `meters()` returns how large, how full and how old the dictionary is.
"""

from likewise.dictionaries.consistency import consistency
from likewise.dictionaries.found import Found, Stored
from likewise.dictionaries.in_batch import InBatch
from likewise.dictionaries.key_queue import KeyQueue
from likewise.dictionaries.memory_bank import MemoryBank
from likewise.dictionaries.momentum import MomentumEncoder
from likewise.dictionaries.nearest import NearestNeighbours

__all__ = [
    "Found",
    "InBatch",
    "KeyQueue",
    "MemoryBank",
    "MomentumEncoder",
    "NearestNeighbours",
    "Stored",
    "consistency",
]
