"""The three similarities, each as an inner product of prepared rows.

`score(query, key) = ⟨prepared query, prepared key⟩`, where the query is already divided by the
temperature. So the scores of every similarity are one matrix product, and the gradient for the
temperature follows from the gradient for the (n, d) queries at no extra cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Similarity = Literal["cosine", "dot", "euclidean"]
SIMILARITIES = ("cosine", "dot", "euclidean")


@dataclass(frozen=True)
class Prepared:
    """Queries ready for a product with `key_rows(keys)`, and limits of the scores."""

    query: Tensor  # (n, d), or (n, d + 2) for euclidean
    key_rows: Callable[[Tensor], Tensor]  # (..., d) -> (..., d) or (..., d + 2)
    bound: float | None = None  # the largest possible |score|, or None if the host does not know it
    lowest: float | Tensor | None = None  # the lowest possible score, or None if there is none


def prepare(similarity: str, query: Tensor, temperature: float | Tensor, dtype: torch.dtype) -> Prepared:
    """Divide queries (n, d) by the temperature, in `dtype`, and return them with the function that prepares keys."""
    query = query.to(dtype)
    if similarity == "cosine":
        return Prepared(
            unit(query) / temperature,
            lambda key: unit(key.to(dtype)),
            bound=cosine_bound(temperature),
            lowest=-1 / temperature,
        )
    if similarity == "dot":
        is_one = not isinstance(temperature, Tensor) and temperature == 1  # as in CPC: saves a pass over the queries
        return Prepared(query if is_one else query / temperature, lambda key: key.to(dtype))
    # -|a - b|² = 2ab - |a|² - |b|² loses digits if rows are near each other and far from 0. So it is
    # computed in float64, after subtracting the mean.
    dtype = torch.float64
    query = query.to(dtype)
    centre = query.detach().mean(dim=0)
    query = query - centre
    square = query.square().sum(dim=1, keepdim=True)
    query = torch.cat([2 * query, -square, -torch.ones_like(square)], dim=1) / temperature

    def key_rows(key: Tensor) -> Tensor:
        key = key.to(dtype) - centre
        square = key.square().sum(dim=-1, keepdim=True)
        return torch.cat([key, torch.ones_like(square), square], dim=-1)

    return Prepared(query, key_rows)


def check_similarity(similarity: str) -> None:
    if similarity not in SIMILARITIES:
        raise ValueError(f"similarity must be one of {', '.join(SIMILARITIES)}; got {similarity!r}")


def unit(rows: Tensor) -> Tensor:
    """Return rows of length one. A row shorter than 1e-12 is left as it is, so that its gradient stays finite."""
    normalized: Tensor = _Unit.apply(rows)  # type: ignore[no-untyped-call]
    return normalized


class _Unit(Function):
    """The whole normalisation as one autograd node, with half the calls and half the memory of separate operators."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        inverse = length.masked_fill_(length < 1e-12, 1).reciprocal_()
        ctx.save_for_backward(rows, inverse)
        return rows * inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rows, inverse = ctx.saved_tensors
        # The component of the gradient along the row would only change the row's length.
        along = (grad * rows).sum(dim=-1, keepdim=True) * inverse.square()
        d_rows: Tensor = torch.addcmul(grad, rows, along, value=-1).mul_(inverse)
        return d_rows


def cosine_bound(temperature: float | Tensor) -> float | None:
    """Return 1 / temperature, or None if the temperature is on an accelerator and would have to be read back."""
    if isinstance(temperature, Tensor) and temperature.device.type != "cpu":
        return None
    return 1 / (temperature.item() if isinstance(temperature, Tensor) else temperature)
