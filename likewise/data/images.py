"""Decode image files to uint8 RGB squares, cropped, padded or stretched.

Palettes, alpha, CMYK, 16 bits and EXIF rotation are all handled here. A file that cannot be decoded yields the reason
instead of pixels.
"""

import contextlib
import errno
import importlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, features

from likewise.data.items import NO_CAPTION, Captions, DataError, Skipped

DECODER = 1  # increase it when the same file decodes to other pixels, so that old cache entries are not used
LARGEST_DEFAULT = 64  # the largest stored side, unless the user asks for a size


def _reads_avif() -> bool:
    """Return whether Pillow reads AVIF, which it can since version 11.3 unless built without it."""
    try:
        return bool(features.check_module("avif"))
    except ValueError:  # an older Pillow does not know the module
        return False


def _reads_heif() -> bool:
    """Return whether pillow-heif is installed, and if so register it with Pillow."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except (ImportError, OSError):  # not installed, or its shared library is missing
        return False
    return True


# Formats by extension. Only these are decoded, because some other formats run programs or read other files.
KINDS = {
    **dict.fromkeys(("jpg", "jpeg"), "JPEG"),
    **{"png": "PNG", "webp": "WEBP", "bmp": "BMP", "gif": "GIF"},
    **dict.fromkeys(("tif", "tiff"), "TIFF"),
    **({"avif": "AVIF"} if _reads_avif() else {}),
    **(dict.fromkeys(("heic", "heif"), "HEIF") if _reads_heif() else {}),
}
EXTENSIONS, FORMATS = tuple(KINDS), tuple(dict.fromkeys(KINDS.values()))
ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
PEEKED = 64  # how many headers are read to estimate the size of the images
# Errors of the machine and not of the file: these must not be cached as a damaged image.
PASSING = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.ENOTCONN)
CHUNK = 16  # images decoded by one task

ONE_AT_A_TIME = threading.Lock()

Opener = Callable[[], BinaryIO]
Fit = Callable[[Image.Image, int], Image.Image]  # turns any image into a square of the given side


@dataclass(frozen=True)
class Listing:
    """Encoded images in sorted order, before any is decoded."""

    paths: tuple[str, ...]
    openers: Callable[[Sequence[int]], Iterator[Opener]]  # openers of some rows, given in increasing order
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    test: NDArray[np.bool_] | None = None
    groups: NDArray[np.int64] | None = None
    peek: Sequence[int] | None = None  # rows that are cheap to read; None: all are
    captions: Captions | None = None  # an image whose entry is empty is left out
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


def median_side(listing: Listing) -> int:
    """Return the median shorter side of up to `PEEKED` images, read from their headers."""
    count = len(listing.paths)
    rows = listing.peek
    if rows is None:
        rows = sorted({round(row) for row in np.linspace(0, count - 1, min(count, PEEKED))})
    sides = []
    with quiet():
        for opener in listing.openers(rows):
            with contextlib.suppress(Exception), opener() as stream, Image.open(stream, formats=FORMATS) as image:
                sides.append(min(image.size))
    return int(np.median(sides)) if sides else LARGEST_DEFAULT


def decoding(
    listing: Listing, size: int, fit: str, oblong: list[bool]
) -> Iterator[Callable[[], list[NDArray[np.uint8] | str]]]:
    """Yield tasks that decode all images in order, a chunk each: an image's pixels, or why it has none.

    For each decoded image, in no particular order, `oblong` is appended whether it is not square.
    """
    chunk: list[Opener] = []
    for row, opener in enumerate(listing.openers(range(len(listing.paths)))):
        chunk.append(opener if listing.captions is None or listing.captions[row] else _uncaptioned)
        if len(chunk) == CHUNK:
            yield partial(_pixels_or_reasons, chunk, size, fit, oblong)
            chunk = []
    if chunk:
        yield partial(_pixels_or_reasons, chunk, size, fit, oblong)


def _uncaptioned() -> BinaryIO:
    raise DataError(NO_CAPTION)


def _pixels_or_reasons(openers: list[Opener], size: int, fit: str, oblong: list[bool]) -> list[NDArray[np.uint8] | str]:
    return [_pixels_or_reason(opener, size, fit, oblong) for opener in openers]


def _pixels_or_reason(opener: Opener, size: int, fit: str, oblong: list[bool]) -> NDArray[np.uint8] | str:
    try:
        with opener() as stream:
            decoded = decode(stream, size, fit)
    except Exception as error:  # decoders raise almost any exception on a damaged file
        if isinstance(error, OSError) and error.errno in PASSING:
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return " ".join(reason.split())[:200] or type(error).__name__
    oblong.append(decoded.oblong)  # safe from several threads, because appending is atomic
    return decoded.pixels


class Decoded(NamedTuple):
    pixels: NDArray[np.uint8]  # (3, size, size)
    oblong: bool  # whether the image was not square


def decode(stream: BinaryIO, size: int, fit: str = "crop") -> Decoded:
    """Decode an image to an upright square of this size."""
    try:
        image: Image.Image = Image.open(stream, formats=FORMATS)
    except UnidentifiedImageError:
        raise DataError(f"not an image of a known kind ({', '.join(FORMATS)})") from None
    with image:
        width, height = image.size
        if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
            raise DataError(f"{width} × {height} pixels are more than {Image.MAX_IMAGE_PIXELS}: a decompression bomb")
        image.draft(None, (2 * size, 2 * size))  # JPEG only: decode at 1/2, 1/4 or 1/8 scale
        image.load()
        with contextlib.suppress(Exception):  # ignore a damaged EXIF block
            ImageOps.exif_transpose(image, in_place=True)
        square = FITS[fit](as_rgb(image), size)
    return Decoded(np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1)), width != height)


def crop(image: Image.Image, size: int) -> Image.Image:
    """Crop an image to its central square and resize that."""
    (width, height), side = image.size, min(image.size)
    left, top = (width - side) / 2, (height - side) / 2
    return _resized(image, (size, size), (left, top, left + side, top + side))


def pad(image: Image.Image, size: int) -> Image.Image:
    """Resize a whole image to fit into a white square, centred."""
    width, height = (max(1, round(side * size / max(image.size))) for side in image.size)
    square = Image.new(image.mode, (size, size), "white")
    square.paste(_resized(image, (width, height)), ((size - width) // 2, (size - height) // 2))
    return square


def stretch(image: Image.Image, size: int) -> Image.Image:
    """Resize an image to a square without keeping its aspect ratio."""
    return _resized(image, (size, size))


def _resized(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Image.Image:
    if image.size == size:
        return image
    return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


FITS: dict[str, Fit] = {"crop": crop, "pad": pad, "stretch": stretch}  # how images are made square


def as_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB: alpha over white, 16 bits scaled, which `convert` would clip at 255."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray(sixteen_bits(np.asarray(image)))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(_wide_to_uint8(np.asarray(image)))
    if image.mode in ALPHA or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def sixteen_bits(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale pixels in 0..65535 to 0..255, rounded."""
    return ((pixels.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def over_white(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend images (n, 4, h, w) with alpha over white, giving (n, 3, h, w)."""
    colour, alpha = pixels[:, :3].astype(np.uint32), pixels[:, 3:].astype(np.uint32)
    return ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def _wide_to_uint8(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    low, high = float(pixels.min()), float(pixels.max())
    if pixels.dtype.kind == "f" and low >= 0 and high <= 1:
        return _rounded(pixels * 255)
    if low >= 0 and high <= 255:
        return _rounded(pixels)
    if pixels.dtype.kind == "i" and low >= 0 and high <= 65535:
        return sixteen_bits(pixels)
    raise DataError(f"pixels must be in 0..1, 0..255 or 0..65535, got {low:g}..{high:g}")


def _rounded(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    whole: NDArray[np.uint8] = np.rint(pixels).astype(np.uint8)
    return whole


def extension(path: str) -> str:
    """Return what follows the last point of a file's name, in lower case."""
    return path.rpartition("/")[2].rpartition(".")[2].lower()


def from_memory(content: bytes) -> Opener:
    return lambda: io.BytesIO(content)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings: `decode` raises an error on a decompression bomb, and no one can act on the rest.

    Warning filters belong to the whole process, so this surrounds all decoding threads, one source at a time.
    """
    with ONE_AT_A_TIME, warnings.catch_warnings():
        Image.init()  # not thread-safe, so call it before threads open the first images
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
