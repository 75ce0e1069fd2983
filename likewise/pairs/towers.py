"""The network that is trained: a backbone and its head, from views to the embeddings that the loss compares."""

from typing import Any

from torch import Tensor, nn


class Tower(nn.Module):
    """Maps views (n, ...) to embeddings (n, d)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, views: Tensor) -> Tensor:
        return self.head(self.encoder(views))  # type: ignore[no-any-return]

    @property
    def keys(self) -> nn.Module:
        """The module that encodes keys; the momentum copy is a copy of it."""
        return self

    def queries_and_keys(self, output: Any) -> tuple[Any, Any]:
        """Split the tower's output into queries and keys."""
        return output, output

    @property
    def saved(self) -> dict[str, nn.Module]:
        """The modules that a run saves, by the names of their files; the encoder comes last."""
        return {"head": self.head, "encoder": self.encoder}


class PredictingTower(Tower):
    """Maps views (n, ...) to predictions (n, d), which are queries, and to embeddings (n, d), which are keys.

    The predictor follows the head, for queries only (Grill et al., 2020; Chen et al., 2021; Dwibedi et al., 2021).
    """

    def __init__(self, encoder: nn.Module, head: nn.Module, predictor: nn.Module) -> None:
        super().__init__(encoder, head)
        self.predictor = predictor

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        embeddings = super().forward(views)
        return self.predictor(embeddings), embeddings

    @property
    def keys(self) -> nn.Module:
        return Tower(self.encoder, self.head)

    @property
    def saved(self) -> dict[str, nn.Module]:
        return {"predictor": self.predictor, **super().saved}

    def queries_and_keys(self, output: Any) -> tuple[Any, Any]:
        predictions, embeddings = output
        return predictions, embeddings
