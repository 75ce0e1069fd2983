"""What is trained: a backbone and its head, from views to the rows that the loss compares."""

from torch import Tensor, nn


class Tower(nn.Module):
    """Views (n, ...) to embeddings (n, d)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, views: Tensor) -> Tensor:
        return self.head(self.encoder(views))  # type: ignore[no-any-return]

    @property
    def keys(self) -> nn.Module:
        """What makes keys of views; a momentum copy is a copy of it."""
        return self

    @property
    def saved(self) -> dict[str, nn.Module]:
        """The modules that a run keeps, by the names of their files; the encoder comes last."""
        return {"head": self.head, "encoder": self.encoder}
