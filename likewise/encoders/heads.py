"""Define projection heads, from the features of the encoder to the embeddings that the loss compares.

`linear` is MoCo v1's, `mlp` MoCo v2's (Chen et al., 2020), `mlp_bn` SimCLR's; with `none` the loss compares the
features themselves. The head is discarded after training.

CPC has a head of another kind, `StepsAhead`: one matrix for each step that it looks ahead.
"""

from collections.abc import Callable

from torch import Tensor, nn

from likewise.encoders.inputs import check_known, check_whole


class Head(nn.Sequential):
    """Map features (n, in_dim) to embeddings (n, dim)."""

    def __init__(self, dim: int, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.dim = dim


def linear(in_dim: int, out_dim: int, hidden: int) -> Head:
    return Head(out_dim, nn.Linear(in_dim, out_dim))


def mlp(in_dim: int, out_dim: int, hidden: int) -> Head:
    return Head(out_dim, nn.Linear(in_dim, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out_dim))


def mlp_bn(in_dim: int, out_dim: int, hidden: int) -> Head:
    """Return SimCLR's head; its layers have no biases, because the norms after them would cancel those."""
    return Head(
        out_dim,
        nn.Linear(in_dim, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out_dim, bias=False),
        nn.BatchNorm1d(out_dim),
    )


def none(in_dim: int, out_dim: int, hidden: int) -> Head:
    return Head(in_dim)


class StepsAhead(nn.Module):
    """Predict from contexts (n, f, in_dim) the frames k = 1 … horizon later, (n, f, horizon, dim): W_k of CPC."""

    def __init__(self, in_dim: int, dim: int, horizon: int) -> None:
        super().__init__()
        for name, number in {"in_dim": in_dim, "dim": dim, "horizon": horizon}.items():
            check_whole(name, number)
        self.dim, self.horizon = dim, horizon
        self.steps = nn.Linear(in_dim, horizon * dim, bias=False)

    def forward(self, contexts: Tensor) -> Tensor:
        return self.steps(contexts).unflatten(2, (self.horizon, self.dim))  # type: ignore[no-any-return]


HEADS: dict[str, Callable[[int, int, int], Head]] = {"linear": linear, "mlp": mlp, "mlp_bn": mlp_bn, "none": none}


def build_head(kind: str, in_dim: int, out_dim: int, hidden: int | None = None) -> Head:
    """Build a head of this kind; `hidden` defaults to in_dim. Its `dim` is out_dim, or in_dim for `none`."""
    check_known("head", kind, HEADS)
    hidden = in_dim if hidden is None else hidden
    for name, number in {"in_dim": in_dim, "out_dim": out_dim, "hidden": hidden}.items():
        check_whole(name, number)
    return HEADS[kind](in_dim, out_dim, hidden)
