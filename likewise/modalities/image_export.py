"""Explain how a picture becomes the input of an exported network, in code and in words."""

from collections.abc import Mapping
from typing import Any

GIVEN = """from PIL import Image, ImageOps

picture = Image.open("picture.png")
picture.draft(None, ({twice}, {twice}))  # decodes a large JPEG at a smaller scale
picture = ImageOps.exif_transpose(picture).convert("RGBA")
picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
{square}
bands = [band.convert("F").resize(({size}, {size}), Image.Resampling.BILINEAR) for band in picture.split()]
pixels = np.stack([np.asarray(band) for band in bands])[None] / np.float32(255)"""
# How a picture becomes a square of side {first}: in code (SQUARES) and in words (SQUARED).
SQUARES = {
    "crop": """(width, height), side = picture.size, min(picture.size)
box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
picture = picture.resize(({first}, {first}), Image.Resampling.BICUBIC, box, reducing_gap=3.0).convert("{mode}")""",
    "pad": """width, height = (max(1, round(side * {first} / max(picture.size))) for side in picture.size)
small = picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
picture = Image.new("RGB", ({first}, {first}), "white")
picture.paste(small, (({first} - width) // 2, ({first} - height) // 2))
picture = picture.convert("{mode}")""",
    "stretch": """picture = picture.resize(({first}, {first}), Image.Resampling.BICUBIC, reducing_gap=3.0)
picture = picture.convert("{mode}")""",
}
SQUARED = {
    "crop": "its largest centred square, scaled to {first} × {first} (bicubic)",
    "pad": "all of it, scaled to fit into {first} × {first} (bicubic), centred on white",
    "stretch": "each side scaled to {first} (bicubic)",
}
# How a picture becomes a square, before it is resized to what the encoder sees; written into the exported record.
RESIZED = {
    "crop": "largest centred square, resized to `stored` (to `size` if that is 0), bicubic",
    "pad": "longer side resized to `stored` (to `size` if that is 0), bicubic, centred on a white square",
    "stretch": "each side resized to `stored` (to `size` if that is 0), bicubic",
}


def picture_in_words(record: Mapping[str, Any]) -> str:
    """Return a description of how a picture becomes the input of a network."""
    size, first = int(record.get("size", 0)), _first(record)
    words = " from 0 to 1, of a picture with 8 bits per channel, rotated as its EXIF says, alpha over white: "
    words += SQUARED[record.get("fit", "crop")].format(first=first)
    return words + f" and then to {size} × {size} (bilinear)" * (size != first)


def picture_in_code(record: Mapping[str, Any]) -> str:
    """Return Python code that makes the input of a network from a picture."""
    mode, first = "L" if record.get("channels") == 1 else "RGB", _first(record)
    square = SQUARES[record.get("fit", "crop")].format(mode=mode, first=first)
    return GIVEN.format(square=square, twice=2 * first, **record)


def _first(record: Mapping[str, Any]) -> int:
    """Return the side that a picture is resized to first."""
    return int(record.get("stored") or record.get("size", 0))
