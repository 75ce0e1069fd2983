"""Whiten features: a linear map after which they vary by about the same amount in every direction.

Kessy et al., 2018 (ZCA), with a ridge. It is fitted once training has ended, and then belongs to the encoder.
"""

import torch
from torch import Tensor, nn


class Whitening(nn.Module):
    """Map features (n, dim) to (x − mean) (C + σ² I)^(−½), C their covariance when it was fitted, σ² its mean variance.

    The ridge σ² keeps directions that hardly vary, and are mostly noise, from being blown up. Until `fit` is called,
    features stay as they are.
    """

    mean: Tensor  # (dim,)
    matrix: Tensor  # (dim, dim)

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("matrix", torch.eye(dim))

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.matrix

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Fit mean and matrix to features (n, dim), at least one of them."""
        rows = features.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        variances, directions = torch.linalg.eigh(centred.T @ centred / len(rows))
        ridge = variances.mean().clamp(min=torch.finfo(torch.float32).tiny)  # features may all be the same
        matrix = directions * (variances.clamp(min=0) + ridge).rsqrt() @ directions.T
        self.mean.copy_(mean)
        self.matrix.copy_(matrix)
