"""Train lightly's SimCLR and MoCo with the settings of its own examples.

    python -m benchmarks.lightly_methods moco images.npy EPOCHS BATCH_SIZE WORKERS LOG_EVERY

trains on the images, (n, h, w, c) uint8, and prints a JSON list of objects like the rows of likewise's metrics: every
LOG_EVERY steps, the step and the images per second since the previous object. The start of the loader and the pauses
between epochs are included.

Views are made one image at a time by lightly's transforms, on PIL images in loader processes. The encoder is ours, so
that only the library around it differs.
"""

import copy
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks import peers  # noqa: F401 - prepares torchvision, which lightly imports
from likewise import encoders

from lightly.loss import NTXentLoss  # isort: skip
from lightly.models.modules import heads  # isort: skip
from lightly.models.utils import deactivate_requires_grad, update_momentum  # isort: skip
from lightly.transforms import MoCoV2Transform, SimCLRTransform  # isort: skip

QUEUE = 4096


class Pictures(Dataset[tuple[list[Tensor], int]]):
    """Images (n, h, w, c) uint8 as PIL images through a transform of lightly's."""

    def __init__(self, images: np.ndarray, transform: object) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int]:
        return self.transform(Image.fromarray(self.images[index])), index  # type: ignore[operator]


class LightlyRun:
    """One of lightly's methods around an encoder: `steps()` trains, one batch at a time."""

    def __init__(
        self, images: np.ndarray, size: int, batch_size: int, workers: int, transform: object, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.encoder = encoders.build("resnet_tiny", channels=3, size=size)
        self.loader = DataLoader(
            Pictures(images, transform),
            batch_size=batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        self.epoch = 0

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        raise NotImplementedError

    def steps(self) -> Iterator[float]:
        """Train for ever; the loss of each step."""
        while True:
            for (first, second), _ in self.loader:
                loss = self.loss(first, second)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                yield float(loss.detach())
            self.epoch += 1


class LightlySimCLR(LightlyRun):
    def __init__(self, images: np.ndarray, size: int, batch_size: int = 256, workers: int = 2, seed: int = 0) -> None:
        super().__init__(images, size, batch_size, workers, SimCLRTransform(input_size=size, gaussian_blur=0.0), seed)
        dim = self.encoder.dim
        self.model = nn.Sequential(self.encoder, heads.SimCLRProjectionHead(dim, dim, 128))
        self.criterion = NTXentLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.06)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        return self.criterion(self.model(first), self.model(second))


class LightlyMoCo(LightlyRun):
    def __init__(self, images: np.ndarray, size: int, batch_size: int = 256, workers: int = 2, seed: int = 0) -> None:
        super().__init__(images, size, batch_size, workers, MoCoV2Transform(input_size=size), seed)
        dim = self.encoder.dim
        self.model = nn.Sequential(self.encoder, heads.MoCoProjectionHead(dim, dim, 128))
        self.copy = copy.deepcopy(self.model)
        deactivate_requires_grad(self.copy)
        self.criterion = NTXentLoss(memory_bank_size=(QUEUE, 128))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.06)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        momentum = 1 - (1 - 0.996) * (math.cos(math.pi * min(self.epoch, 10) / 10) + 1) / 2
        update_momentum(self.model, self.copy, m=momentum)
        query = self.model(first)
        with torch.no_grad():
            key = self.copy(second)
        return self.criterion(query, key)


METHODS = {"simclr": LightlySimCLR, "moco": LightlyMoCo}


def main(method: str, path: str, epochs: int, batch_size: int, workers: int, log_every: int) -> None:
    images = np.load(path)
    run = METHODS[method](images, images.shape[1], batch_size, workers)
    total = epochs * len(run.loader)
    rows, since, seen = [], time.perf_counter(), 0
    for done, _ in enumerate(islice(run.steps(), total), start=1):
        if done % log_every == 0 or done == total:
            now = time.perf_counter()
            rows.append({"step": done, "items_per_second": (done - seen) * batch_size / (now - since)})
            since, seen = now, done
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
