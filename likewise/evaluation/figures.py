"""All figures of one embedding, measured in the same way for raw input, untrained, trained and foreign encoders."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from likewise.evaluation.clustering import Clustering, clustering
from likewise.evaluation.cross_modal import CrossModal, cross_modal
from likewise.evaluation.few_labels import FewLabels, few_labels
from likewise.evaluation.geometry import Geometry, alignment, geometry, verdict
from likewise.evaluation.information import Information, information
from likewise.evaluation.knn import KNN, knn
from likewise.evaluation.linear import Linear, linear_probe
from likewise.evaluation.retrieval import Retrieval, retrieval
from likewise.evaluation.zero_shot import ZeroShot, zero_shot

PER_CLASS = (1, 5, 10)


@dataclass(frozen=True)
class Embedded:
    """The embeddings of one encoder, and those of two views of some test items if views can be made."""

    train: Tensor  # (n, d)
    test: Tensor  # (m, d)
    views: tuple[Tensor, Tensor] | None = None  # (v, d) each
    keys: tuple[Tensor, Tensor] | None = None  # the same views after the head, as the loss compares them
    texts: tuple[Tensor, Tensor] | None = None  # captions (t, d), and pairs of test item and caption (p, 2)
    named: tuple[Tensor, Tensor] | None = None  # test labels (m,), and prompts of the classes (classes, templates, d)


@dataclass(frozen=True)
class Figures:
    """All measured figures; those that need labels, views or captions are None without them."""

    geometry: Geometry
    verdict: str
    alignment: float | None = None
    information: Information | None = None
    cross_modal: CrossModal | None = None
    zero_shot: ZeroShot | None = None
    knn: KNN | None = None
    linear: Linear | None = None
    few_labels: Mapping[int, FewLabels] | None = None
    retrieval: Retrieval | None = None
    clustering: Clustering | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name as plain numbers and text, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def measure(
    embedded: Embedded,
    train_labels: Tensor | None,
    test_labels: Tensor | None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    loss_temperature: float = 0.1,
    seed: int = 0,
) -> Figures:
    """Measure all figures; `temperature` is for the k-NN vote, `loss_temperature` for the information bound."""
    shape = geometry(embedded.test)
    figures = Figures(
        geometry=shape,
        verdict=verdict(shape),
        alignment=None if embedded.views is None else alignment(*embedded.views),
        information=None if embedded.keys is None else information(*embedded.keys, temperature=loss_temperature),
    )
    if embedded.texts is not None:
        figures = replace(figures, cross_modal=cross_modal(embedded.test, *embedded.texts))
    if embedded.named is not None:
        figures = replace(figures, zero_shot=zero_shot(embedded.test, *embedded.named))
    if train_labels is None or test_labels is None:
        return figures
    parts = (embedded.train, train_labels, embedded.test, test_labels)
    return replace(
        figures,
        knn=knn(*parts, k=k, temperature=temperature),
        linear=linear_probe(*parts, seed=seed),
        few_labels={count: few_labels(*parts, per_class=count, seed=seed) for count in PER_CLASS},
        # If no test item shares a class with a training item, there is nothing to retrieve.
        retrieval=retrieval(embedded.test, test_labels, embedded.train, train_labels)
        if torch.isin(test_labels[test_labels >= 0], train_labels).any()
        else None,
        clustering=clustering(embedded.test, test_labels, seed=seed),
    )
