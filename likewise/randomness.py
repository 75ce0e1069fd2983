"""No random stream is carried along: every draw has a generator of its own, made from what it is for.

So a run that was killed and resumed draws what an undisturbed one draws, whatever the number of
reading threads, and ranks, who draw for the whole batch and take their rows, draw what one process does.
"""

import hashlib

import torch


def generator(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """The generator of one purpose at one step; always on the host, so that devices draw the same."""
    return torch.Generator().manual_seed(number(seed, purpose, step))


def number(seed: int, purpose: str, step: int = 0) -> int:
    """63 bits that belong to (seed, purpose, step) and to nothing else."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
