"""Define the vector modality: rows of features, (f,) float32."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from likewise import encoders
from likewise.data import Items
from likewise.data.items import VECTOR
from likewise.data.parts import Ids, Part, spread
from likewise.modalities.modality import BATCHES, About, Choice, Exported, Modality, standardised
from likewise.modalities.tiles import Tiles, shrunk
from likewise.randomness import generator
from likewise.recipe import Recipe
from likewise.views import vectors
from likewise.views.augmentation import Augmentation
from likewise.views.vectors import VectorViews

SCALED_BY = 1000  # how many vectors are used to find the range of each feature, from black to white


class VectorModality(Modality):
    name = noun = VECTOR
    presets = vectors.PRESETS

    def method(self, items: Items) -> tuple[str, str]:
        return "simclr", "vectors make large batches cheap, and a large batch has enough negatives"

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        return f", {recipe.pairs.preset} augmentations"

    def settled(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        return {"data.size": part.array.shape[1]}

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        if ":" not in recipe.encoder.name:  # the encoder that a method names may be an image encoder
            yield Choice("encoder.name", "mlp", "the items are vectors")
        yield Choice("pairs.preset", self.default_preset(part), "the items are vectors")

    def default_preset(self, part: Part) -> str:
        return "vector"

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        views = VectorViews.fitted(torch.from_numpy(part[train]))
        about = {"channels": 1, "size": recipe.data.size, "stored": recipe.data.stored}
        return about | {"mean": list(views.mean), "std": list(views.std)}

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        return VectorViews(about["size"], mean=tuple(about["mean"]), std=tuple(about["std"]))

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        return VectorViews.fitted(torch.from_numpy(part[train]))

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        return size, size

    def rows_in_words(self, channels: int, size: int) -> str:
        return f"vectors of {size} features"

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        return encoders.build(recipe.encoder.name, features=about["size"])

    def build_named(self, name: str, part: Part, size: int | None) -> nn.Module:
        return encoders.build(name, features=part.array.shape[1])

    def baseline_in_words(self, by_frame: bool) -> str:
        return "the vectors themselves"

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        return torch.from_numpy(part[ids]).float()

    def scaled_baseline(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        return standardised(train, test)

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> Exported:
        size, rng = about["size"], generator(0, "export")
        mean, std = torch.tensor(plain.mean), torch.tensor(plain.std)
        given = [torch.randn(n, size, generator=rng) * std + mean for n in BATCHES]
        record = {"input": "vectors", "shape": ["n", size]}
        return Exported(given, [plain.plain(part) for part in given], record, mean, std)

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        return f"\nvectors = np.zeros((1, {record['size']}), dtype=np.float32)  # your data"

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        return f"encoders.build({json.dumps(record['encoder'])}, features={record['size']})"

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        return _squares(part[ids], part[spread(np.arange(len(part)), SCALED_BY)])

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        rows = views.cpu().numpy()
        return _squares(rows, rows)


def _squares(rows: NDArray[Any], among: NDArray[Any]) -> Tiles:
    """Draw each vector (n, f) as a square, a pixel per feature, from black to white over the feature's range.

    The range of each feature is taken from the vectors `among` (m, f).
    """
    n, f = rows.shape
    side = max(2, int(np.ceil(np.sqrt(f))))
    low, high = np.quantile(among, 0.01, axis=0), np.quantile(among, 0.99, axis=0)
    greys = np.zeros((n, side * side), dtype=np.uint8)
    greys[:, :f] = np.clip((rows - low) / np.maximum(high - low, 1e-12), 0, 1) * 255
    return shrunk(greys.reshape(n, 1, side, side))
