"""Every figure about one kind of embedding, with one ruler for all kinds: raw input, untrained, learned, anyone's."""

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
    """Items as one encoder sees them; of two views of some test items too, where views can be made."""

    train: Tensor  # (n, d)
    test: Tensor  # (m, d)
    views: tuple[Tensor, Tensor] | None = None  # (v, d) each
    keys: tuple[Tensor, Tensor] | None = None  # the same views as the loss compares them: after the head
    texts: tuple[Tensor, Tensor] | None = None  # captions (t, d), and which test item has which, (p, 2)
    named: tuple[Tensor, Tensor] | None = None  # test labels (m,), and prompts of their classes (classes, templates, d)


@dataclass(frozen=True)
class Figures:
    """What was measured; None where there are no labels, no views, or no words."""

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
        """Plain numbers and words by name."""
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
    """All figures. `temperature` is that of the k-NN's vote, `loss_temperature` that of the information bound."""
    shape = geometry(embedded.test)
    found = Figures(
        geometry=shape,
        verdict=verdict(shape),
        alignment=None if embedded.views is None else alignment(*embedded.views),
        information=None if embedded.keys is None else information(*embedded.keys, temperature=loss_temperature),
    )
    if embedded.texts is not None:
        found = replace(found, cross_modal=cross_modal(embedded.test, *embedded.texts))
    if embedded.named is not None:
        found = replace(found, zero_shot=zero_shot(embedded.test, *embedded.named))
    if train_labels is None or test_labels is None:
        return found
    parts = (embedded.train, train_labels, embedded.test, test_labels)
    return replace(
        found,
        knn=knn(*parts, k=k, temperature=temperature),
        linear=linear_probe(*parts, seed=seed),
        few_labels={count: few_labels(*parts, per_class=count, seed=seed) for count in PER_CLASS},
        # Where no class of the test items is known there is nothing to be found.
        retrieval=retrieval(embedded.test, test_labels, embedded.train, train_labels)
        if torch.isin(test_labels[test_labels >= 0], train_labels).any()
        else None,
        clustering=clustering(embedded.test, test_labels, seed=seed),
    )
