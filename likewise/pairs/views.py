"""Two views of one item are a pair: the pretext task of InstDisc, MoCo and SimCLR."""

import torch
from torch import Tensor


class Views:
    """An item's partner is the item itself, and its one id is its own."""

    columns = 1

    def partners(self, items: Tensor, rng: torch.Generator) -> Tensor:
        return items

    def ids(self, items: Tensor, partners: Tensor) -> Tensor:
        return items
