"""Views per second compared with other libraries: MoCo v2's augmentations, drawn for each image, two threads.

make bench
python -m benchmarks.augmentation               # in an environment with the peers
"""

from collections.abc import Callable
from dataclasses import dataclass

import kornia.augmentation as kornia
import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn

from benchmarks import peers  # noqa: F401 - before torchvision, which it helps to load
from benchmarks.measure import describe_machine, race, table, write_section

from torchvision import transforms as v1  # isort: skip
from torchvision.transforms import v2  # isort: skip

from likewise.views import preset
from likewise.views.blur import radius_for
from likewise.views.images import MEAN, STD

OURS = "likewise"
HEADER = ["views", "", "time", "views a second", "time / ours"]


@dataclass(frozen=True)
class Case:
    batch: int
    source: int
    size: int
    repeats: int
    wanted: float  # times the fastest peer

    @property
    def title(self) -> str:
        return f"{self.batch} of {self.size} px, from {self.source} px"


CASES = [Case(256, 32, 32, 20, 5.0), Case(64, 256, 224, 7, 3.0)]


def likewise_views(case: Case, images: Tensor) -> Callable[[], Tensor]:
    views = preset("moco_v2", size=case.size)
    rng = torch.Generator().manual_seed(0)
    return lambda: views.apply(images, views.draw(len(images), rng))


def kornia_views(case: Case, images: Tensor, taps: int, cropping: str) -> Callable[[], Tensor]:
    """Batched, on float tensors."""
    chain = nn.Sequential(
        kornia.RandomResizedCrop((case.size, case.size), scale=(0.2, 1.0), cropping_mode=cropping),
        kornia.RandomHorizontalFlip(p=0.5),
        kornia.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        kornia.RandomGrayscale(p=0.2),
        kornia.RandomGaussianBlur((taps, taps), (0.1, 2.0), p=0.5),
        kornia.Normalize(torch.tensor(MEAN[3]), torch.tensor(STD[3])),
    )
    return torch.no_grad()(lambda: chain(images.float() / 255))


def pil_views(case: Case, images: Tensor) -> Callable[[], Tensor]:
    """torchvision image by image on Pillow's images, with Pillow's blur, as MoCo was published."""

    def blur(image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(torch.empty(1).uniform_(0.1, 2.0).item()))

    chain = v1.Compose(
        [
            v1.RandomResizedCrop(case.size, scale=(0.2, 1.0)),
            v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v1.RandomGrayscale(p=0.2),
            v1.RandomApply([v1.Lambda(blur)], p=0.5),
            v1.RandomHorizontalFlip(),
            v1.ToTensor(),
            v1.Normalize(MEAN[3], STD[3]),
        ]
    )
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    return lambda: torch.stack([chain(picture) for picture in pictures])


def tensor_views(case: Case, images: Tensor, taps: int) -> Callable[[], Tensor]:
    """torchvision image by image on tensors; on a batch it would draw once for all images."""
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(case.size, scale=(0.2, 1.0), antialias=True),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(taps, (0.1, 2.0))], p=0.5),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN[3], STD[3]),
        ]
    )
    return lambda: torch.stack([chain(image) for image in images])


def compare(case: Case) -> tuple[list[list[str]], str]:
    images = torch.randint(0, 256, (case.batch, 3, case.source, case.source), dtype=torch.uint8)
    taps = 2 * radius_for(case.size) + 1
    contestants = {
        OURS: likewise_views(case, images),
        "kornia": kornia_views(case, images, taps, "resample"),
        "torchvision on Pillow": pil_views(case, images),
        "torchvision on tensors": tensor_views(case, images, taps),
    }
    for name, run in contestants.items():
        got = run()
        assert got.shape == (case.batch, 3, case.size, case.size), name
    times = race(contestants, case.repeats)
    rows = [
        [
            case.title if name == OURS else "",
            name,
            f"{time * 1e3:,.1f} ms",
            f"{case.batch / time:,.0f}",
            f"{time / times[OURS]:.2f}×",
        ]
        for name, time in times.items()
    ]
    best = min(time for name, time in times.items() if name != OURS) / times[OURS]
    short = "" if best >= case.wanted else ", **short**"
    return rows, f"{case.title}: {best:.1f}× the fastest other, {case.wanted:g}× wanted{short}"


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    rows: list[list[str]] = []
    verdicts = []
    for case in CASES:
        found, verdict = compare(case)
        rows += found
        verdicts.append(f"- {verdict}")
        print(table(HEADER, found), verdict, sep="\n", flush=True)
    text = "\n\n".join(
        [
            describe_machine(["kornia", "torchvision", "pillow"]),
            "MoCo v2's views of uint8 images, normalised float32: crop, flip, colour jitter, greyscale, blur; every "
            "image its own draw, drawing included; best of several repeats taken in turns.",
            table(HEADER, rows),
            "\n".join(verdicts),
        ]
    )
    write_section("Augmentation", text)


if __name__ == "__main__":
    main()
