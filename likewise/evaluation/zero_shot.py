"""Zero-shot classification: an image gets the class whose prompts are most similar to it.

Radford et al., 2021 (CLIP): a class is the normalised mean of the unit rows of its prompts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise.evaluation.cross_modal import best_ranks
from likewise.evaluation.inputs import labelled
from likewise.guide import see


@dataclass(frozen=True)
class ZeroShot:
    """Zero-shot accuracies, with everything that they depend on."""

    accuracy: float
    top5: float  # the label is among the first five; always 1 with five classes or fewer
    balanced_accuracy: float  # the mean over the classes that occur among the labels
    images: int
    classes: int
    templates: int


@torch.no_grad()
def zero_shot(images: Tensor, labels: Tensor, prompts: Tensor) -> ZeroShot:
    """Measure how often images (n, d) have the highest cosine with the class of their label.

    `prompts` (c, t, d) are the embeddings of t templates for each of c classes. Images with label −1 are left
    out. A tie with another class counts as wrong, so that a collapsed encoder gets no credit.
    """
    images, labels = labelled("image embeddings", images, labels)
    if labels.is_floating_point():
        raise ValueError(f"labels must be whole numbers, got {labels.dtype}")
    if prompts.ndim != 3 or not prompts.shape[0] * prompts.shape[1]:
        raise ValueError(f"prompts must be of shape (c, t, d) with c, t >= 1, got {tuple(prompts.shape)}")
    if prompts.shape[2] != images.shape[1]:
        raise ValueError(f"images and prompts must have the same d, got {images.shape[1]} and {prompts.shape[2]}")
    if not prompts.isfinite().all():
        raise ValueError(f"prompts must be finite, got NaN or infinity {see('not finite')}")
    if labels.max() >= len(prompts):
        raise ValueError(f"labels must be below {len(prompts)}, the number of classes, got {labels.max()}")
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
