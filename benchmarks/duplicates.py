"""Near-duplicates: how many resized, recompressed and cropped copies are found, and how many false ones?

    python -m benchmarks.duplicates cifar10_10k.npz

Two folders each hold half of the pictures, so that they share none, and copies of 200 of them. An encoder is trained on
the first. The threshold is chosen on the second, and the pairs that it then finds in the first are counted. Pictures
that have a near-duplicate in the original data are left out, because right and wrong would be unclear for them.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import avg_pool2d

import likewise
from benchmarks.measure import describe_machine, table, write_section
from likewise.commands.search import Searcher
from likewise.search import Index, duplicates
from likewise.training.encoder import load

COPIES = 200
AREA = 0.9  # of the picture that a crop keeps
SIDES = (0.6, 1.5)  # of a resized copy, as a share of the picture's
QUALITIES = (50, 90)  # of JPEG
MOVED = (0, 3, 6)  # pixels of 32
ALIKE, ALIKE_IN_DETAIL = 0.8, 0.65  # correlations of pixels from which on two pictures are taken for near-duplicates
METHOD, ENCODER, STEPS = "moco", "resnet_tiny", 1000
# Views that are moved a little, and keep their colours, as copies do; a low temperature heeds what is nearly alike.
SETTINGS: dict[str, Any] = {"pairs.preset": "greyscale", "loss.temperature": 0.1}
THRESHOLDS = np.arange(0.998, 0.5, -0.002).round(3).tolist()  # tried from above, until 200 are wrong
WANTED = 0.95

Pictures = NDArray[np.uint8]  # (n, h, w, 3)
Pair = tuple[str, str]  # of files, in the order of their names
Groups = Callable[[float], Sequence[Sequence[str]]]  # the files of each group, by threshold


@dataclass(frozen=True)
class Planted:
    """A folder of pictures with copies of some, and which is a copy of which, by what was done to it."""

    folder: Path
    kinds: Mapping[Pair, str]


@dataclass(frozen=True)
class Found:
    """Pairs of files that are in one group, right and wrong."""

    right: frozenset[Pair]
    wrong: frozenset[Pair]
    planted: int

    @property
    def precision(self) -> float:
        return len(self.right) / max(1, len(self.right) + len(self.wrong))

    @property
    def recall(self) -> float:
        return len(self.right) / self.planted


def resized(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    share = rng.uniform(*SIDES)
    return picture.resize((round(picture.width * share), round(picture.height * share)), Image.Resampling.BICUBIC)


def cropped(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A rectangle of the picture's proportions, anywhere in it, at the picture's size: edges need not be on pixels."""
    w, h = picture.width * AREA**0.5, picture.height * AREA**0.5
    left, top = rng.uniform(0, picture.width - w), rng.uniform(0, picture.height - h)
    return picture.resize(picture.size, Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))


# What is done to a copy, in this order, before it is written.
KINDS: dict[str, tuple[Callable[[Image.Image, np.random.Generator], Image.Image], ...]] = {
    "resized": (resized,),
    "recompressed": (),
    "cropped": (cropped,),
    "all three": (cropped, resized),
}
JPEG = ("recompressed", "all three")


def pictures(path: str) -> Pictures:
    with np.load(path, allow_pickle=False) as arrays:
        return np.concatenate([arrays[name] for name in ("x", "x_train", "x_test") if name in arrays.files])


def distinct(given: Pictures) -> Pictures:
    """The pictures without those that are near-duplicates of one before, by their pixels.

    That is: the middle of one and a part of the other, moved by up to a tenth of the side, correlate, both in what is
    coarse and in what is fine.
    """
    rows = avg_pool2d(torch.from_numpy(given).permute(0, 3, 1, 2).float(), given.shape[1] // 32)
    parts = {(y, x): _coarse_and_fine(rows[:, :, y : y + 26, x : x + 26]) for y in MOVED for x in MOVED}
    kept = torch.ones(len(rows), dtype=torch.bool)
    for start in range(0, len(rows), 1000):
        rest = slice(start, start + 1000)
        alike = torch.zeros(len(rows[rest]), len(rows), dtype=torch.bool)
        for coarse, fine in parts.values():
            for one, other in ((parts[3, 3], (coarse, fine)), ((coarse, fine), parts[3, 3])):
                scores = [a[rest] @ b.T for a, b in zip(one, other, strict=True)]
                alike |= (scores[0] >= ALIKE) & (scores[1] >= ALIKE_IN_DETAIL)
        kept[rest] = ~alike.tril(start - 1).any(1)
    return given[kept.numpy()]


def _coarse_and_fine(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures at a quarter of their side, and at half of it without what is coarser, to be correlated."""
    half = avg_pool2d(rows, 2)
    return _unit(avg_pool2d(half, 2)), _unit(half - avg_pool2d(half, 5, 1, 2, count_include_pad=False))


def _unit(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.flatten(1) - rows.flatten(1).mean(1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-6)


def plant(folder: Path, given: Pictures, seed: int) -> Planted:
    """Write pictures as PNG, and copies of some beside them."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for place, pixels in enumerate(given):
        Image.fromarray(pixels).save(folder / f"{place:06}.png")
    sources = rng.permutation(len(given))[:COPIES]
    kinds = {}
    for source, kind in zip(sources, itertools.cycle(KINDS), strict=False):
        kinds[plant_copy(folder, f"{source:06}.png", kind, rng)] = kind
    return Planted(folder, kinds)


def plant_copy(folder: Path, name: str, kind: str, rng: np.random.Generator) -> Pair:
    picture = Image.open(folder / name)
    for change in KINDS[kind]:
        picture = change(picture, rng)
    if kind in JPEG:
        copy = f"copy-of-{name[:-4]}.jpg"
        picture.save(folder / copy, quality=int(rng.integers(*QUALITIES, endpoint=True)))
    else:
        copy = f"copy-of-{name}"
        picture.save(folder / copy)
    return name, copy


def found(groups: Groups, planted: Planted, threshold: float) -> Found:
    pairs = frozenset(pair for group in groups(threshold) for pair in itertools.combinations(sorted(group), 2))
    right = pairs & planted.kinds.keys()
    return Found(right, pairs - right, len(planted.kinds))


def by_encoder(run: Path, layer: str, planted: Planted) -> Groups:
    searcher = Searcher.open(run, planted.folder, layer=layer, progress=False)
    return lambda least: [[item["path"] for item in group["items"]] for group in searcher.duplicates(least)]


def by_pixels(run: Path, planted: Planted) -> Groups:
    """What pixels alone would do, as the encoder gets them: their correlation instead of a cosine of features."""
    items = load(run).open(planted.folder, progress=False)
    index = Index.build(_unit(torch.from_numpy(items[np.arange(len(items))]).float()).numpy(), "flat", belongs_to="")
    assert items.paths is not None
    paths = items.paths
    return lambda least: [[paths[place] for place in group.places] for group in duplicates(index, least)]


def choose(groups: Groups, planted: Planted) -> tuple[float, Found]:
    """The threshold where the smaller of precision and recall is largest, the middle one of several."""
    tried = {}
    for threshold in THRESHOLDS:
        tried[threshold] = found(groups, planted, threshold)
        if len(tried[threshold].wrong) > COPIES:
            break
    most = max(map(_smaller, tried.values()))
    best = [threshold for threshold, each in tried.items() if _smaller(each) == most]
    return (middle := best[len(best) // 2]), tried[middle]


def _smaller(each: Found) -> float:
    return min(each.precision, each.recall)


def picture_of(pairs: Sequence[Pair], folder: Path, path: Path) -> None:
    """Pairs of files beside each other, one pair a row, to be looked at."""
    side = 64
    sheet = Image.new("RGB", (2 * side, side * max(1, len(pairs))), "white")
    for row, pair in enumerate(pairs):
        for column, name in enumerate(pair):
            sheet.paste(Image.open(folder / name).resize((side, side)), (column * side, row * side))
    sheet.save(path)


def main(source: str, wrong: str | None = None) -> None:
    given = pictures(source)
    kept = distinct(given)
    kept = kept[np.random.default_rng(0).permutation(len(kept))]
    half = len(kept) // 2
    with tempfile.TemporaryDirectory() as name:
        os.environ["LIKEWISE_CACHE"] = f"{name}/cache"  # these folders are gone afterwards
        first = plant(Path(name) / "first", kept[:half], seed=1)
        second = plant(Path(name) / "second", kept[half:], seed=2)
        began = time.perf_counter()
        run = likewise.train(
            first.folder,
            method=METHOD,
            encoder=ENCODER,
            steps=STEPS,
            out=Path(name) / "run",
            settings=SETTINGS,
            progress=False,
        ).folder
        minutes = (time.perf_counter() - began) / 60
        ways: dict[str, Callable[[Planted], Groups]] = {
            "head": partial(by_encoder, run, "head"),
            "backbone": partial(by_encoder, run, "backbone"),
            "pixels": partial(by_pixels, run),
        }
        rows, chosen = [], {}
        for way, opened in ways.items():
            threshold, there = choose(opened(second), second)
            here = found(opened(first), first, threshold)
            chosen[way] = threshold, there, here
            shares = [f"{share:.3f}" for each in (there, here) for share in (each.precision, each.recall)]
            rows.append([way, f"{threshold:.4f}", *shares])
            print(rows[-1], flush=True)
        # Chosen where the threshold was: on the second folder.
        layer = max(("head", "backbone"), key=lambda way: _smaller(chosen[way][1]))
        threshold, _, here = chosen[layer]
        if wrong is not None:
            picture_of(sorted(here.wrong), first.folder, Path(wrong))
    by_layer = table(
        ["compared by", "threshold", "precision, chosen on", "recall, chosen on", "precision", "recall"], rows
    )
    by_kind = []
    for kind in (*KINDS, "all"):
        copies = {pair for pair, each in first.kinds.items() if kind in (each, "all")}
        hits = len(copies & here.right)
        misses = sum(bool({*pair} & {copy for _, copy in copies}) for pair in here.wrong)
        misses = len(here.wrong) if kind == "all" else misses
        precision, recall = hits / max(1, hits + misses), hits / len(copies)
        by_kind.append([kind, f"{len(copies)}", f"{hits}", f"{misses}", _said(precision), _said(recall)])
    by_kind_table = table(["copies", "planted", "found", "wrong pairs", "precision", "recall"], by_kind)
    asked = "".join(f", {key} {value}" for key, value in SETTINGS.items() if not key.endswith("_every"))
    text = "\n\n".join(
        [
            describe_machine([]),
            f"Two folders of {half:,} PNG files of {given.shape[1]} pixels, which share none, and in each copies of "
            f"{COPIES} of them: resized to {SIDES[0]} to {SIDES[1]} times the side; recompressed as JPEG of quality "
            f"{QUALITIES[0]} to {QUALITIES[1]}; cropped to {AREA:.0%} of the area; all three, one after the other. "
            f"{len(given) - len(kept):,} of {len(given):,} pictures were left out beforehand, since their pixels "
            f"correlate with another's, where they may be moved by three of 32 (by {ALIKE} when coarse, and by "
            f"{ALIKE_IN_DETAIL} in what is finer): the data's own copies, and scenes that are much alike.",
            f"{METHOD} ({ENCODER}, {STEPS:,} steps of 256{asked}) was trained on the first folder, copies included, in "
            f"{minutes:.1f} minutes. Threshold and layer ({layer}) were chosen on the second, for the largest smaller "
            f"one of precision and recall; then `duplicates({threshold:g})` was asked of the first. Every two files of "
            "a group are a pair; a pair is right if it is an original and its copy, else wrong. A kind's wrong pairs "
            f"are those with a copy of that kind in them; {WANTED} is wanted.",
            by_kind_table,
            "By either layer and by the correlation of pixels alone, each with a threshold of its own from the second "
            "folder:",
            by_layer,
        ]
    )
    write_section("Near-duplicates", text)
    print(text)


def _said(share: float) -> str:
    return f"{share:.3f}" + (", **short**" if share < WANTED else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
