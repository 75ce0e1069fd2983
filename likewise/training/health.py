"""Notes about the health of a run: what goes wrong, and what to do about it. Each is printed once.

"Is my loss curve healthy?" is the most frequent question, and a few numbers of each logged step answer most of it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.guide import see
from likewise.losses.temperature import MIN_TEMPERATURE

LOOKED_AT = 512  # rows


@dataclass(frozen=True)
class Signs:
    """The numbers of a logged step that tell whether a run is healthy."""

    step: int
    total: int
    loss: float
    similarity: str  # empty for CPC, whose dot products are not normalised
    temperature: float | None
    learnable: bool
    candidates: float | None  # None if the loss has no chance level, as with loss.policy
    dim: int
    length: float  # mean norm of the queries as they leave the head
    largest: float  # largest similarity between a query and a key, before the temperature
    alike: float  # mean cosine between queries of different items
    queue_fill: float | None  # None: not a queue


@torch.no_grad()
def shape_of_batch(query: Tensor, positive: Tensor) -> tuple[float, float, float]:
    """Return the mean norm of the queries, the largest |query · key| and the mean cosine of different queries."""
    if not len(query):  # no queries, as all sequences are too short: report healthy values
        return 1.0, 0.0, 0.0
    query, positive = query.float(), positive.float()
    rows = normalize(query[:LOOKED_AT:2], dim=1)  # every other row: a neighbour may be a view of the same item
    length = query.norm(dim=1).mean()
    largest = (query[:LOOKED_AT] @ positive[:LOOKED_AT].T).abs().max()
    others = max(1, len(rows) * (len(rows) - 1))
    alike = (rows.sum(dim=0).square().sum() - len(rows)) / others
    return tuple(torch.stack([length, largest, alike]).tolist())


def chance(candidates: float) -> float:
    """Return log N, the loss of guessing uniformly among N candidates."""
    return math.log(candidates)


def at_random(candidates: float, dim: int, temperature: float) -> float:
    """Return the expected loss of random unit embeddings, log N + 1/(2dτ²)."""
    return math.log(candidates) + 1 / (2 * dim * temperature**2)


class Health:
    """Check each logged step for problems, and report each kind once."""

    def __init__(self) -> None:
        self.said: set[str] = set()  # names of what was said; a checkpoint keeps them

    def look(self, signs: Signs) -> list[str]:
        """Return the notes on this step that were not reported before, each with the section that explains it."""
        new = {name: f"{words} {see(name)}" for name, words in diagnose(signs).items() if name not in self.said}
        self.said.update(new)
        return list(new.values())


def diagnose(signs: Signs) -> dict[str, str]:
    """Return a sentence for each problem that this step shows, by its name."""
    found: dict[str, str] = {}
    late = signs.step >= max(100, 0.2 * signs.total)
    if signs.queue_fill is not None and signs.queue_fill < 1:
        found["filling"] = (
            f"the queue is still filling ({signs.queue_fill:.0%}): more negatives make a harder look-up, "
            "so a rising loss is normal here"
        )
    elif late and signs.candidates is not None and signs.temperature is not None:
        level = chance(signs.candidates)
        if signs.loss > level - 0.02:
            random = at_random(signs.candidates, signs.dim, signs.temperature)
            of_units = f" (random unit embeddings give {random:.3f})" if signs.similarity == "cosine" else ""
            found["chance"] = (
                f"the loss, {signs.loss:.3f}, is at chance, log {signs.candidates:,.0f} = {level:.3f}{of_units}: "
                "nothing is learned yet; "
                "try another optimizer.lr, a longer warm-up, or weaker augmentations"
            )
    if signs.alike > 0.95 and signs.step > 10:
        found["collapse"] = (
            f"embeddings collapse: two different items have a mean cosine of {signs.alike:.3f}; "
            "lower optimizer.lr, or raise loss.temperature"
        )
    if signs.similarity == "dot":
        if abs(signs.length - 1) > 0.5:
            found["length"] = (
                f"embeddings have a mean norm of {signs.length:.2f}, and loss.similarity = dot does not normalise "
                "them: use cosine unless you want that"
            )
        if signs.largest > 100:
            found["range"] = (
                f"similarities are out of range: they reach {signs.largest:.0f} before the temperature divides them; "
                "use loss.similarity = cosine, or a larger temperature"
            )
    if signs.learnable and signs.temperature is not None and signs.temperature <= MIN_TEMPERATURE * 1.001:
        found["temperature"] = (
            f"the learned temperature is at its clamp, {MIN_TEMPERATURE:g}: it can no longer sharpen the look-up; "
            "lower optimizer.lr, or fix the temperature (loss.learnable = false)"
        )
    return found
