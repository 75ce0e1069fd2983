"""Validate embeddings and labels."""

from torch import Tensor

from likewise.guide import see


def rows_of(name: str, rows: Tensor) -> Tensor:
    """Check that `rows` are at least one embedding (n, d) and finite, and return them in floating point."""
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"{name} must be of shape (n, d) with n >= 1, got {tuple(rows.shape)}")
    if not rows.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity {see('not finite')}")
    rows = rows.detach()
    return rows if rows.is_floating_point() else rows.float()


def labelled(name: str, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check embeddings and their labels, and return the rows that have a label (not −1) with their labels."""
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ValueError(f"{name} must be (n, d) with labels (n,), got {tuple(rows.shape)} and {tuple(labels.shape)}")
    has_label = labels >= 0
    if not has_label.any():
        raise ValueError(f"{name} must have at least one label, got none")
    if not rows.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity {see('not finite')}")
    rows = rows.detach()
    return (rows if rows.is_floating_point() else rows.float())[has_label], labels[has_label]
