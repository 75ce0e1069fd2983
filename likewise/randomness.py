"""Random generators without state: each draw gets a new generator, seeded by (seed, purpose, step).

So a resumed run draws the same numbers as one that was never interrupted, whatever the number of reader
threads. Every rank draws for the whole batch and takes its rows, so several ranks draw the same numbers
as one process.
"""

import hashlib

import torch


def generator(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """Return the generator for one purpose at one step, on the CPU, so that all devices draw the same numbers."""
    return torch.Generator().manual_seed(number(seed, purpose, step))


def number(seed: int, purpose: str, step: int = 0) -> int:
    """Return a seed of 63 bits, a hash of (seed, purpose, step)."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
