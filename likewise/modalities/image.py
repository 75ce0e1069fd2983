"""Define the image modality: photos, drawings, digits; (c, h, w) uint8 with one channel or three."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from likewise import encoders
from likewise.data import Items
from likewise.data import images as decoding
from likewise.data import open as open_data
from likewise.data.images import EXTENSIONS
from likewise.data.items import CAPTION, IMAGE, DataError
from likewise.data.parts import ROWS_AT_ONCE, Ids, Part
from likewise.encoders import layout_of
from likewise.modalities.image_export import RESIZED, picture_in_code, picture_in_words
from likewise.modalities.modality import BATCHES, About, Choice, Exported, Modality, accelerated
from likewise.modalities.tiles import Tiles, shrunk
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError
from likewise.views import images, preset, sounds, texts, vectors, windows
from likewise.views.augmentation import PLAIN, Augmentation
from likewise.views.colour import LUMA
from likewise.views.crops import centre_square
from likewise.views.images import PlainViews

KEPT_AS_SEEN = 64  # pixels per side; up to here, images are stored at the size that the encoder sees
PRESETS_OF_OTHERS = {*vectors.PRESETS, *windows.PRESETS, *sounds.PRESETS, *texts.PRESETS} - {
    PLAIN
}  # presets of other modalities
MOST_PIXELS = 50_000_000  # of an uploaded image, at most, once decoded
# Where studies/settings.py found that smaller views in the first half of the steps pay: in colour images of at least so
# many pixels per side, if both views teach the encoder. Digits of 28 pixels and MoCo lost by them.
SMALLEST_GROWN = 32
SMALL_BATCH = 128
COMPARED = 32  # pixels per side, at most, of the images that the baseline compares, to save memory


def stored_size(size: int) -> int:
    """Return the resolution at which images are stored for views of `size`; larger images leave room to crop."""
    return size if size <= KEPT_AS_SEEN else size * 8 // 7


class ImageModality(Modality):
    name = noun = IMAGE
    presets = images.PRESETS
    axes_behind_channels = 2
    channels_last = True

    def method(self, items: Items) -> tuple[str, str]:
        if CAPTION in items.parts:
            return "clip", "the images have captions"
        if items.array.shape[1] == 1:
            return "moco", "for drawings in one channel it needs the fewest labels"
        return "simclr", "both views teach the encoder, which learns most in a short run"

    def describe_views(self, part: Part, recipe: Recipe) -> str:
        name = recipe.pairs.preset
        augmentations = "no augmentations" if name == PLAIN else f"{name} augmentations"
        early = f", {recipe.data.early_size} in the first half of the steps" if recipe.data.early_size else ""
        return f", {augmentations} to {recipe.data.size} pixels{early}"

    def check_data(self, part: Part, recipe: Recipe, name: str) -> None:
        """Accept any `data.fit`, which exists for images."""

    def settled(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        return {"data.size": recipe.data.size or min(part.array.shape[2:])}

    def choices(self, part: Part, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        if not recipe.encoder.name:
            yield Choice("encoder.name", *accelerated("resnet18", "resnet_tiny"))
        if part.array.shape[1] == 1:
            yield Choice("pairs.preset", self.default_preset(part), "the images have one channel")
        elif not recipe.pairs.preset:
            yield Choice("pairs.preset", self.default_preset(part), "they are colour images")

    def view_choices(self, part: Part, recipe: Recipe, *, keys_learn: bool) -> Iterator[Choice]:
        if torch.accelerator.is_available():
            return
        # On a CPU, the time of a step is proportional to its number of pixels.
        yield Choice("training.batch_size", SMALL_BATCH, "there is no accelerator, and many small steps learn more")
        grows = keys_learn and part.array.shape[1] == 3 and recipe.data.size >= SMALLEST_GROWN
        if grows and encoders.takes_any_size(recipe.encoder.name):
            side = round(recipe.data.size * 5 / 32) * 4
            why = "there is no accelerator, and smaller views make the first half of the steps faster"
            yield Choice("data.early_size", side, why)

    def default_preset(self, part: Part) -> str:
        return "greyscale" if part.array.shape[1] == 1 else "simclr"

    def check(self, part: Part, recipe: Recipe, name: str) -> None:
        # A name that no modality knows raises an error later, when the preset is built, with the nearest known name.
        if recipe.pairs.preset in PRESETS_OF_OTHERS:
            super().check(part, recipe, name)
        early, size, encoder = recipe.data.early_size, recipe.data.size, recipe.encoder.name
        if early and not 2 <= early <= size:
            raise RecipeError(f"data.early_size must be 0, or from 2 to data.size, which is {size}, got {early}")
        if early and not (encoders.takes_any_size(encoder) or ":" in encoder):
            raise RecipeError(
                f"data.early_size needs an encoder that takes images of any size, such as resnet_tiny, got {encoder}"
            )

    def numbers_per_step(self, part: Part, recipe: Recipe) -> dict[tuple[str, ...], int]:
        pixels = part.array.shape[1] * recipe.data.size**2
        return {("data.size", "training.batch_size"): 2 * recipe.training.batch_size * pixels}

    def fit(self, part: Part, train: Ids, recipe: Recipe) -> dict[str, Any]:
        channels, size = part.array.shape[1], recipe.data.size
        views = preset(recipe.pairs.preset, size=size, channels=channels)
        about = {"channels": channels, "size": size, "stored": recipe.data.stored, "fit": recipe.data.fit}
        return about | {"mean": list(views.mean), "std": list(views.std)}

    def augmentation(self, recipe: Recipe, about: About) -> Augmentation:
        return preset(recipe.pairs.preset, size=about["size"], channels=about["channels"])

    def early_augmentation(self, recipe: Recipe, about: About) -> Augmentation | None:
        if not recipe.data.early_size:
            return None
        return preset(recipe.pairs.preset, size=recipe.data.early_size, channels=about["channels"])

    def plain(self, part: Part, train: Ids, size: int | None) -> Augmentation:
        return PlainViews(size or min(part.array.shape[2:]), part.array.shape[1])

    def shape(self, channels: int, size: int) -> tuple[int, int]:
        return channels, channels * size**2

    def build(self, recipe: Recipe, about: About) -> nn.Module:
        options = recipe.encoder
        return encoders.build(options.name, channels=about["channels"], size=about["size"], stem=options.stem)

    def build_named(self, name: str, part: Part, size: int | None) -> nn.Module:
        return encoders.build(name, channels=part.array.shape[1], size=size or min(part.array.shape[2:]))

    def describe_features(self, recipe: Recipe, about: About, layer: str) -> str:
        words = super().describe_features(recipe, about, layer)
        if not recipe.encoder.name.startswith("resnet"):
            return words
        stem = encoders.stem_for(recipe.encoder.stem, about["size"])
        return f"{words}, {stem} stem"

    def baseline_in_words(self, by_frame: bool) -> str:
        return "raw pixels"

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        side = min(COMPARED, *part.array.shape[2:])
        parts = np.array_split(ids, max(1, -(-len(ids) // ROWS_AT_ONCE)))
        return torch.cat([centre_square(torch.from_numpy(part[rows]), side).flatten(1) / 255 for rows in parts])

    def baseline_of_views(self, views: Tensor, augmentation: Augmentation) -> Tensor | None:
        pixels = _unnormalised(views, augmentation)
        if pixels.shape[-1] > COMPARED:
            pixels = nn.functional.interpolate(pixels, size=COMPARED, mode="area")
        return pixels.flatten(1)

    def exported(self, network: nn.Sequential, recipe: Recipe, about: About, plain: Augmentation) -> Exported:
        channels, size, rng = about["channels"], about["size"], generator(0, "export")
        noise = [torch.rand(n, channels, 4, 4, generator=rng) for n in BATCHES]
        pixels = [nn.functional.interpolate(part, (size, size), mode="bilinear").mul(255).byte() for part in noise]
        fit = about.get("fit", "crop")
        record = {"input": "pixels", "shape": ["n", channels, size, size], "stored": about["stored"]}
        record |= {"decode": "rotated as EXIF says, alpha over white", "fit": fit}
        record |= {"resize": f"{RESIZED[fit]}, then to `size`, bilinear", "values": "from 0 to 1"}
        record |= layout_of(network[0])
        mean, std = (torch.tensor(x)[:, None, None] for x in (plain.mean, plain.std))
        given, prepared = [part / 255 for part in pixels], [plain.plain(part) for part in pixels]
        return Exported(given, prepared, record, mean, std)

    def input_in_words(self, record: Mapping[str, Any]) -> str:
        return picture_in_words(record)

    def input_in_code(self, record: Mapping[str, Any]) -> str:
        return picture_in_code(record)

    def build_in_code(self, record: Mapping[str, Any]) -> str:
        stem = f', stem="{record["stem"]}"' if "stem" in record else ""
        shape = f"channels={record['channels']}, size={record['size']}"
        return f"encoders.build({json.dumps(record['encoder'])}, {shape}{stem})"

    file_kind = "image"
    extensions = EXTENSIONS

    def open_file(self, path: Path, part: Part, about: About) -> Items:
        with path.open("rb") as stream, decoding.quiet():
            pixels = decoding.decode(stream, min(part.array.shape[2:]), about.get("fit", "crop")).pixels
        if part.array.shape[1] == 1 and len(pixels) == 3:
            pixels = np.rint(np.tensordot(LUMA, pixels, 1))[None].astype(np.uint8)
        return open_data({"x": np.stack([pixels, pixels])}, progress=False)  # twice: `open` needs two items

    def measure_file(self, path: Path, name: str) -> list[tuple[int, int, str]]:
        try:
            # The format is recognized by the content, not by the name, and only these formats are decoded.
            with decoding.quiet(), Image.open(path, formats=decoding.FORMATS) as image:
                return [(image.width * image.height, MOST_PIXELS, "pixels")]
        except UnidentifiedImageError:
            kinds = ", ".join(decoding.FORMATS)
            raise DataError(f"{name} must be an image ({kinds}), got something else") from None

    def pictures(self, part: Part, ids: Ids) -> Tiles:
        return shrunk(part[ids])

    def pictures_of_views(self, views: Tensor, augmentation: Augmentation, part: Part) -> Tiles:
        pixels = _unnormalised(views, augmentation) * 255
        return shrunk(pixels.round().clamp(0, 255).to(torch.uint8).cpu().numpy())


def _unnormalised(views: Tensor, augmentation: Augmentation) -> Tensor:
    """Undo the normalisation of views (n, c, size, size), giving values of 0 to 1."""
    mean, std = (torch.tensor(x, device=views.device)[:, None, None] for x in (augmentation.mean, augmentation.std))
    return views * std + mean
