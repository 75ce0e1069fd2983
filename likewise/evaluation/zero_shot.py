"""Zero-shot classification: is an image's label the class whose prompts it is most alike?

Radford et al., 2021 (CLIP): a class is the mean of its prompts' unit rows, made a unit row again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.cross_modal import best_ranks
from likewise.evaluation.inputs import labelled


@dataclass(frozen=True)
class ZeroShot:
    """Shares of the images, and everything that they depend on."""

    accuracy: float
    top5: float  # the label is among the first five; always, with five classes or fewer
    balanced_accuracy: float  # the mean over the classes that occur among the labels
    images: int
    classes: int
    templates: int


@torch.no_grad()
def zero_shot(images: Tensor, labels: Tensor, prompts: Tensor) -> ZeroShot:
    """How often images (n, d) have the highest cosine with the class of their label; labels −1 are left out.

    `prompts` (c, t, d) are the texts of t templates for each of c classes. A tie with another class
    counts against the label, so that a collapsed encoder gets no credit.
    """
    images, labels = labelled("images", images, labels)
    if labels.is_floating_point():
        raise ValueError(f"labels must be whole numbers, got {labels.dtype}")
    if prompts.ndim != 3 or not prompts.shape[0] * prompts.shape[1]:
        raise ValueError(f"prompts must be (c, t, d), at least one, got shape {tuple(prompts.shape)}")
    if prompts.shape[2] != images.shape[1]:
        raise ValueError(f"images and prompts must have one d, got {images.shape[1]} and {prompts.shape[2]}")
    if not prompts.isfinite().all():
        raise ValueError("prompts embeddings must be finite, got NaN or infinity")
    if labels.max() >= len(prompts):
        raise ValueError(f"labels must be below {len(prompts)}, the classes that have prompts, got {labels.max()}")
    labels = labels.to(images.device, torch.int64)
    prompts = prompts.to(torch.promote_types(prompts.dtype, torch.float32))
    classes = normalize(prompts, dim=2).mean(dim=1)  # (c, d)
    ranks = best_ranks(images, classes, torch.stack([torch.arange(len(labels), device=labels.device), labels], dim=1))
    right = ranks == 1
    of_class, right_of_class = labels.bincount(), labels[right].bincount(minlength=int(labels.max()) + 1)
    occurs = of_class > 0
    return ZeroShot(
        accuracy=int(right.sum()) / len(labels),
        top5=int((ranks <= 5).sum()) / len(labels),
        balanced_accuracy=float((right_of_class[occurs].double() / of_class[occurs]).mean()),
        images=len(labels),
        classes=len(prompts),
        templates=prompts.shape[1],
    )
