"""What is asked of embeddings and labels."""

from torch import Tensor


def rows_of(part: str, rows: Tensor) -> Tensor:
    """Embeddings (n, d), at least one, all of them numbers."""
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"{part} must be embeddings (n, d), at least one, got shape {tuple(rows.shape)}")
    if not rows.isfinite().all():
        raise ValueError(f"{part} embeddings must be finite, got NaN or infinity")
    rows = rows.detach()
    return rows if rows.is_floating_point() else rows.float()


def labelled(part: str, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that have a label, and their labels."""
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ValueError(f"{part} must be (n, d) with labels (n,), got {tuple(rows.shape)} and {tuple(labels.shape)}")
    kept = labels >= 0
    if not kept.any():
        raise ValueError(f"{part} must have at least one labelled item, got none")
    if not rows.isfinite().all():
        raise ValueError(f"{part} embeddings must be finite, got NaN or infinity")
    rows = rows.detach()
    return (rows if rows.is_floating_point() else rows.float())[kept], labels[kept]
