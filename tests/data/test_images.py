"""Files of every format and mode, as the pixels they stand for."""

import io

import numpy as np
import pytest
from PIL import Image

from likewise import data
from likewise.data.images import FORMATS
from tests.data.conftest import colours, noise, plain, save

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.mark.parametrize("kind", ["png", "bmp", "tif", "tiff", "PNG", "webp"])
def test_a_lossless_format_keeps_its_pixels(tmp_path, kind):
    pixels = noise(2, 8, 8, 3)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.{kind}", lossless=True)
    items = data.open(tmp_path)
    assert items.array.dtype == np.uint8
    assert items.kind == "image"
    assert items.native == 8
    np.testing.assert_array_equal(items.array, pixels.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("kind", ["jpg", "jpeg", "JPEG", "gif"])
def test_a_lossy_format_comes_close(tmp_path, kind):
    for i, colour in enumerate([(200, 100, 50), (10, 20, 200)]):
        plain(colour, 16).save(tmp_path / f"{i}.{kind}")
    np.testing.assert_allclose(colours(data.open(tmp_path)), [(200, 100, 50), (10, 20, 200)], atol=3)


def palette(transparent):
    image = plain(0, mode="P")
    image.putpalette([*RED, *GREEN])
    image.putpixel((0, 0), 1)
    return image, ({"transparency": 1} if transparent else {})


def test_a_palette_is_looked_up_and_its_transparent_colour_is_white(tmp_path):
    for name, transparent in {"opaque": False, "transparent": True}.items():
        image, options = palette(transparent)
        image.save(tmp_path / f"{name}.png", **options)
    opaque, transparent = data.open(tmp_path).array
    assert tuple(opaque[:, 0, 0]) == GREEN
    assert tuple(transparent[:, 0, 0]) == (255, 255, 255)
    assert tuple(opaque[:, 1, 1]) == tuple(transparent[:, 1, 1]) == RED


def test_alpha_is_over_white(tmp_path):
    save(tmp_path, a=plain((255, 0, 0, 0), mode="RGBA"), b=plain((0, 0, 0, 51), mode="RGBA"))
    save(tmp_path, c=plain((0, 255), mode="LA"), d=plain((0, 0), mode="LA"))
    assert colours(data.open(tmp_path)) == [(255, 255, 255), (204, 204, 204), (0, 0, 0), (255, 255, 255)]


def test_grey_and_black_and_white_become_rgb(tmp_path):
    save(tmp_path, a=plain(77, mode="L"), b=plain(1, mode="1"))
    assert colours(data.open(tmp_path)) == [(77, 77, 77), (255, 255, 255)]


def test_cmyk_becomes_rgb(tmp_path):
    for i, ink in enumerate([(0, 255, 255, 0), (0, 0, 0, 255)]):
        plain(ink, 16, mode="CMYK").save(tmp_path / f"{i}.jpg", quality=100)
    np.testing.assert_allclose(colours(data.open(tmp_path)), [RED, (0, 0, 0)], atol=3)


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    ramp = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    Image.fromarray(ramp).save(tmp_path / "b.tif")
    expected = np.rint(ramp / 65535 * 255)
    for image in data.open(tmp_path).array:
        np.testing.assert_array_equal(image, np.stack([expected] * 3))


def test_floating_point_and_32_bit_tiffs(tmp_path):
    Image.fromarray(np.full((8, 8), 0.2, np.float32)).save(tmp_path / "a.tif")
    Image.fromarray(np.full((8, 8), 65535, np.int32)).save(tmp_path / "b.tif")
    Image.fromarray(np.full((8, 8), -3.5, np.float32)).save(tmp_path / "c.tif")
    items = data.open(tmp_path)
    assert colours(items) == [(51, 51, 51), (255, 255, 255)]
    assert items.skipped == (data.Skipped("c.tif", "pixels must be in 0..1, 0..255 or 0..65535, got -3.5..-3.5"),)


def test_only_the_first_frame_counts(tmp_path):
    frames = [plain(RED), plain(BLUE)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "b.tif", save_all=True, append_images=frames[1:])
    assert colours(data.open(tmp_path)) == [RED, RED]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_honoured(tmp_path, orientation):
    upright = np.zeros((32, 32, 3), np.uint8)
    upright[:16, :16], upright[:16, 16:] = RED, GREEN  # red, green above black, black
    turn = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # what undoes it, by Pillow's numbers
    stored = Image.fromarray(upright)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = stored if turn is None else stored.transpose(Image.Transpose(turn))
    for name in ("a.jpg", "b.png"):
        stored.save(tmp_path / name, exif=exif, **({"quality": 95} if name == "a.jpg" else {}))
    for image in data.open(tmp_path).array:
        np.testing.assert_allclose(image[:, 4, 4], RED, atol=12)
        np.testing.assert_allclose(image[:, 4, 27], GREEN, atol=12)
        np.testing.assert_allclose(image[:, 27, 4], 0, atol=12)


def test_the_middle_square_is_kept_and_the_shorter_side_scaled(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = RED
    save(tmp_path, wide=wide, tall=wide.transpose(1, 0, 2))
    items = data.open(tmp_path, size=10)
    assert items.array.shape == (2, 3, 10, 10)
    for image in items.array:
        np.testing.assert_allclose(image[:, 2:-2, 2:-2].mean(axis=(1, 2)), RED, atol=1)


WIDE = np.zeros((20, 60, 3), np.uint8)  # green, red, blue, from left to right
WIDE[:, :20], WIDE[:, 20:40], WIDE[:, 40:] = GREEN, RED, BLUE
WHITE = (255, 255, 255)
FITTED = {  # what stands at the middle of the left edge, of the upper one, and at the centre
    "crop": (RED, RED, RED),
    "pad": (GREEN, WHITE, RED),
    "stretch": (GREEN, RED, RED),
}


@pytest.mark.parametrize("fit", FITTED)
def test_how_an_image_becomes_a_square(tmp_path, fit):
    save(tmp_path, tall=WIDE.transpose(1, 0, 2), wide=WIDE)
    for _ in range(2):  # decoded, and from the cache
        tall, wide = data.open(tmp_path, size=30, fit=fit).array
        for found, expected in zip((wide[:, 15, 1], wide[:, 1, 15], wide[:, 15, 15]), FITTED[fit], strict=True):
            np.testing.assert_allclose(found, expected, atol=30)
        np.testing.assert_array_equal(tall, wide.transpose(0, 2, 1))


@pytest.mark.parametrize("fit", FITTED)
def test_a_square_is_the_same_by_every_fit(tmp_path, fit):
    save(tmp_path, a=noise(24, 24, 3), b=noise(24, 24, 3, seed=1))
    np.testing.assert_array_equal(data.open(tmp_path, size=9, fit=fit).array, data.open(tmp_path, size=9).array)


def test_a_very_long_image_is_not_lost_by_padding(tmp_path):
    save(tmp_path, a=noise(1, 900, 3), b=noise(8, 8, 3))
    assert data.open(tmp_path, size=8, fit="pad").array.shape == (2, 3, 8, 8)


def test_images_that_are_not_square_are_counted(tmp_path):
    save(tmp_path, a=noise(20, 30, 3), b=noise(24, 40, 3), c=noise(26, 26, 3))
    (tmp_path / "torn.png").write_text("no")
    for _ in range(2):  # decoded, and from the cache
        assert data.open(tmp_path).oblong == 2
    assert data.open(tmp_path, fit="pad").oblong == 2


def test_another_fit_is_another_entry_of_the_cache(tmp_path):
    save(tmp_path, a=WIDE, b=WIDE)
    found = {data.open(tmp_path, size=8, fit=fit).fingerprint for fit in (*FITTED, *FITTED)}
    assert len(found) == 3


@pytest.mark.parametrize("fit", ["squeeze", "", None, 3, {}])
def test_fits_that_there_are_not(tmp_path, fit):
    with pytest.raises(data.DataError, match=rf"^fit must be crop, pad or stretch, got {fit!r}$"):
        data.open(tmp_path, fit=fit)


def test_a_large_jpeg_is_scaled_without_aliasing(tmp_path):
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    for name in "ab":
        Image.fromarray(stripes).save(tmp_path / f"{name}.jpg", quality=95)
    np.testing.assert_allclose(data.open(tmp_path, size=32).array, 127, atol=4)


def test_the_default_size_is_the_median_shorter_side_and_at_most_64(tmp_path):
    small = save(tmp_path / "small", a=noise(20, 30, 3), b=noise(24, 40, 3), c=noise(90, 26, 3))
    assert data.open(small).array.shape == (3, 3, 24, 24)
    large = save(tmp_path / "large", a=noise(100, 200, 3), b=noise(100, 100, 3))
    assert data.open(large).array.shape == (2, 3, 64, 64)
    assert data.open(large).native == 100


def test_what_cannot_be_read_is_skipped_and_said(tmp_path, monkeypatch):
    save(tmp_path, good=plain(RED), more=plain(BLUE), bomb=plain(GREEN, 40), worse=plain(GREEN, 60))
    jpeg = io.BytesIO()
    Image.fromarray(noise(32, 32, 3)).save(jpeg, "JPEG")
    (tmp_path / "cut.jpg").write_bytes(jpeg.getvalue()[:-400])
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)  # 40 × 40 is warned of, 60 × 60 raises
    items = data.open(tmp_path, size=8)
    assert items.paths == ("good.png", "more.png")
    assert colours(items) == [RED, BLUE]
    reasons = {skip.path: skip.reason for skip in items.skipped}
    assert reasons.keys() == {"bomb.png", "broken.png", "cut.jpg", "empty.png", "text.jpg", "worse.png"}
    assert reasons["bomb.png"] == "40 × 40 pixels are more than 1500: a decompression bomb"
    assert "decompression bomb" in reasons["worse.png"]
    assert "truncated" in reasons["cut.jpg"]
    assert reasons["broken.png"] == "No such file or directory"
    assert reasons["text.jpg"] == f"not an image of a known kind ({', '.join(FORMATS)})"


def test_a_format_that_is_not_asked_for_is_not_decoded_under_another_name(tmp_path):
    save(tmp_path, a=plain(RED), b=plain(RED))
    plain(RED).save(tmp_path / "c.eps")
    (tmp_path / "c.eps").rename(tmp_path / "c.png")
    assert [skip.path for skip in data.open(tmp_path).skipped] == ["c.png"]


def test_a_damaged_exif_block_does_not_lose_the_image(tmp_path):
    for name in "ab":
        plain(RED, 16).save(tmp_path / f"{name}.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert len(data.open(tmp_path)) == 2
