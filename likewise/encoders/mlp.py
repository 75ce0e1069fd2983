"""Define an encoder of vectors: three linear layers, the first two followed by layer norm and ReLU.

Layer norm only depends on a single row. So a row cannot recognize its pair by shared batch statistics, and its features
do not depend on the rest of the batch.
"""

from torch import Tensor, nn

from likewise.encoders.inputs import check_whole


class MLP(nn.Module):
    """Map vectors (n, f) to features (n, dim)."""

    def __init__(self, features: int, *, hidden: int = 512, dim: int = 256) -> None:
        super().__init__()
        for name, number in {"features": features, "hidden": hidden, "dim": dim}.items():
            check_whole(name, number)
        self.features = features
        self.dim: int = dim
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, dim),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        if vectors.ndim != 2 or vectors.shape[1] != self.features:
            raise ValueError(f"vectors must be of shape (n, {self.features}), got {tuple(vectors.shape)}")
        return self.layers(vectors)  # type: ignore[no-any-return]
