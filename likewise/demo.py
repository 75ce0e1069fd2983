"""Every loss on the same small example: what it says of rows that do not agree yet, and of rows that do."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import losses
from likewise.evaluation.information import infonce_bound

ITEMS, DIM = 512, 64
SETTINGS = {"strangers": math.inf, "noisy views": 1.0, "close views": 0.2}  # noise in each view


@dataclass(frozen=True)
class DemoRow:
    """One line of the demo: a loss, its values from strangers to close views, and its value at chance."""

    loss: str
    values: list[float]
    chance: float | None


def run_demo(seed: int = 0) -> list[DemoRow]:
    """Score two views of 512 items that have nothing, something or nearly everything in common."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [_views(noise, generator) for noise in SETTINGS.values()]
    ids = torch.arange(ITEMS)
    same = torch.arange(ITEMS) % 2 == 0

    def others(rows: Tensor) -> Tensor:
        return rows.roll(1, dims=0)

    def pair_margin(a: Tensor, b: Tensor) -> Tensor:
        return losses.pair_margin(a, torch.where(same[:, None], b, others(b)), same)

    def nce(a: Tensor, b: Tensor) -> Tensor:
        log_partition = losses.estimate_log_partition(a, b, items=ITEMS, query_ids=ids, key_ids=ids)
        return losses.nce(a, b, b, log_partition=log_partition, items=ITEMS, query_ids=ids, key_ids=ids)

    chance = math.log(ITEMS)
    rows: list[tuple[str, Callable[[Tensor, Tensor], Tensor], float | None]] = [
        ("info_nce", lambda a, b: losses.info_nce(a, b, temperature=0.2), chance),
        ("nt_xent", lambda a, b: losses.nt_xent(a, b, temperature=0.2), math.log(2 * ITEMS - 1)),
        ("symmetric_info_nce", lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.2), chance),
        ("sigmoid", losses.sigmoid, None),
        ("nce", nce, None),
        (
            "sup_con",
            lambda a, b: losses.sup_con(torch.cat([a, b]), torch.cat([ids, ids]), temperature=0.2),
            math.log(2 * ITEMS - 1),
        ),
        ("pair_margin", pair_margin, None),
        ("triplet", lambda a, b: losses.triplet(a, b, others(b)), None),
    ]
    table = [DemoRow(name, [loss(a, b).item() for a, b in pairs], at_chance) for name, loss, at_chance in rows]
    bounds = [infonce_bound(value, ITEMS) for value in table[0].values]
    return [*table, DemoRow("InfoNCE bound, nats", bounds, 0.0)]


def _views(noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    item, first, second = (torch.randn(ITEMS, DIM, generator=generator) for _ in range(3))
    if math.isinf(noise):
        return torch.nn.functional.normalize(first, dim=1), torch.nn.functional.normalize(second, dim=1)
    a, b = item + noise * first, item + noise * second
    return torch.nn.functional.normalize(a, dim=1), torch.nn.functional.normalize(b, dim=1)
