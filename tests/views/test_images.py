"""The batched augmentations against slow loops over pixels, and the contract of drawing apart from applying."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from likewise import views as augment
from likewise.views import images as module
from likewise.views.blur import Blur, radius_for
from likewise.views.colour import Jitter
from likewise.views.crops import Affine, Crop
from likewise.views.images import DrawingViews, PhotoViews, PlainViews
from likewise.views.vectors import VectorViews
from tests.views import slow

IMAGE_PRESETS = ["moco_v1", "moco_v2", "simclr", "captions", "greyscale", "none"]
EVERYTHING = {
    "jitter": Jitter(0.8, 0.8, 0.8, 0.3, p=0.8),
    "grey": 0.3,
    "blur": Blur(2, sigma=(0.3, 2.0), p=0.5),
    "solarise": 0.5,
}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n, c, h, w, seed=0):
    return torch.randint(0, 256, (n, c, h, w), generator=rng(seed), dtype=torch.uint8)


def row(draws, i):
    return {name: value[i].tolist() for name, value in draws.values.items()}


@pytest.fixture(params=["by matrices", "in small chunks", "one by one"])
def path(request, monkeypatch):
    """Both ways of making a view, and the first in chunks of one or two images."""
    monkeypatch.setattr(module, "LARGE", 0 if request.param == "one by one" else 10**9)
    if request.param == "in small chunks":
        monkeypatch.setattr(module, "CHUNK", 400)
    return request.param


def assert_photos(views, batch, draws, tolerance=2e-5):
    expected = np.stack([slow.photo(image, row(draws, i), views) for i, image in enumerate(batch.numpy())])
    if views.solarise:  # a pixel on the threshold may fall to either side of it
        edge = np.array([views.threshold * (1 / s) - m / s for m, s in zip(views.mean, views.std, strict=True)])
        near = lambda x: np.abs(x - edge[:, None, None]) < 1e-4  # noqa: E731
        mirrored = np.array([(1 - 2 * m) / s for m, s in zip(views.mean, views.std, strict=True)])[:, None, None]
        expected = np.where(near(expected) | near(mirrored - expected), np.nan, expected)
    got = views.apply(batch, draws)
    assert got.dtype == torch.float32
    got = np.where(np.isnan(expected), np.nan, got.numpy())
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


# --- against loops ---------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("h", "w", "size"), [(9, 9, 9), (13, 8, 6), (6, 10, 11), (25, 31, 5)])
def test_photos_are_what_the_loops_make(path, channels, h, w, size):
    views = PhotoViews(size, channels, crop=Crop((0.1, 1.0)), **EVERYTHING)
    batch = images(6, channels, h, w)
    assert_photos(views, batch, views.draw(6, rng(1)))


@pytest.mark.parametrize("part", ["none", *EVERYTHING])
def test_each_part_alone(path, part):
    views = PhotoViews(7, crop=Crop((0.2, 1.0)), **{part: EVERYTHING[part]} if part != "none" else {})
    assert_photos(views, images(5, 3, 10, 12), views.draw(5, rng(2)))


@pytest.mark.parametrize("name", ["moco_v1", "moco_v2", "simclr"])
def test_the_presets_are_made_of_these_parts(path, name):
    views = augment.preset(name, size=33)
    assert_photos(views, images(2, 3, 16, 20), views.draw(2, rng(3)))


@pytest.mark.parametrize("blur", [None, Blur(1, p=0.5)])
@pytest.mark.parametrize("channels", [1, 3])
def test_drawings_are_what_the_loops_make(channels, blur):
    views = DrawingViews(8, channels, blur=blur)
    batch, draws = images(5, channels, 11, 14), views.draw(5, rng(1))
    square = batch[:, :, :, 1:12].numpy() / 255  # the middle 11 of 14 columns
    for got, image, i in zip(views.apply(batch, draws).numpy(), square, range(5), strict=True):
        draw = row(draws, i)
        view = slow.blur(slow.affine(slow.resize(image, 8), draw), draw.get("sigma", 0), 1)
        np.testing.assert_allclose(got, slow.normalise(view, views.mean, views.std), rtol=0, atol=5e-5)


@pytest.mark.parametrize("colours", [{"jitter": Jitter(0.5, 0.5, 0.5, 0.1, p=0.7)}, {"grey": 0.5}])
@pytest.mark.parametrize("channels", [1, 3])
def test_drawings_are_recoloured_as_the_loops_do(channels, colours):
    """After they were moved: what is cut to 0 to 1 is the view, and its mean is what contrast starts from."""
    views = DrawingViews(8, channels, **colours)
    batch, draws = images(6, channels, 8, 8), views.draw(6, rng(1))
    for got, image, i in zip(views.apply(batch, draws).numpy(), batch.numpy() / 255, range(6), strict=True):
        draw = row(draws, i)
        view = slow.affine(slow.resize(image, 8), draw)
        view = slow.jitter(view, draw) if draw.get("jitter") else view
        view = slow.grey(view) if draw.get("grey") else view
        expected = slow.normalise(np.clip(view, 0, 1), views.mean, views.std)
        np.testing.assert_allclose(got, expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize(("h", "w", "size"), [(8, 8, 8), (12, 9, 6), (5, 7, 12)])
@pytest.mark.parametrize("name", IMAGE_PRESETS)
def test_plain_is_the_centred_square_resized(name, h, w, size):
    views = augment.preset(name, size=size)
    batch = images(3, 3, h, w)
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    for got, image in zip(views.plain(batch).numpy(), batch.numpy(), strict=True):
        square = slow.resize(image[:, top : top + side, left : left + side] / 255, size)
        np.testing.assert_allclose(got, slow.normalise(square, views.mean, views.std), rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [16, 40, 100])
def test_crops_are_pillows(path, size):
    """Pillow rounds to whole grey levels after each of its two passes."""
    views = PhotoViews(size, crop=Crop((0.1, 1.0), flip=0.0), mean=(0.0,) * 3, std=(1 / 255,) * 3)
    batch, draws = images(8, 3, 50, 60), views.draw(8, rng())
    boxes = views.crop.boxes(draws.values, 50, 60).tolist()
    for image, view, (top, left, height, width) in zip(batch, views.apply(batch, draws), boxes, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).crop((left, top, left + width, top + height))
        expected = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        np.testing.assert_allclose(view.numpy(), expected, rtol=0, atol=1.1)


@pytest.mark.parametrize(("size", "taps"), [(8, 3), (32, 3), (64, 7), (96, 9), (224, 23)])
def test_a_kernel_is_a_tenth_of_the_side(size, taps):
    assert 2 * radius_for(size) + 1 == taps


def test_vectors_are_standardised_disturbed_and_dropped():
    views = VectorViews(3, noise=0.5, dropout=0.4, mean=(1.0, 2.0, 3.0), std=(1.0, 2.0, 4.0))
    vectors, draws = torch.randn(6, 3, generator=rng()), views.draw(6, rng(1))
    got = views.apply(vectors, draws)
    for i in range(6):
        for j in range(3):
            standard = (vectors[i, j].item() - views.mean[j]) / views.std[j]
            expected = 0 if draws.values["dropped"][i, j] else standard + draws.values["noise"][i, j].item()
            assert got[i, j].item() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(views.plain(vectors), (vectors - torch.tensor(views.mean)) / torch.tensor(views.std))


def test_fitted_vectors_have_mean_zero_and_deviation_one():
    vectors = torch.randn(500, 4, generator=rng()) * torch.tensor([1.0, 10.0, 0.1, 0.0]) + 5
    plain = VectorViews.fitted(vectors).plain(vectors)
    torch.testing.assert_close(plain.mean(0), torch.zeros(4), rtol=0, atol=1e-4)
    torch.testing.assert_close(plain.std(0, correction=0), torch.tensor([1.0, 1.0, 1.0, 0.0]), rtol=0, atol=1e-4)


# --- the contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index", [slice(2, 5), slice(None, None, 2), torch.tensor([6, 0, 3]), torch.tensor([True] * 7)]
)
@pytest.mark.parametrize("name", IMAGE_PRESETS)
def test_some_rows_are_the_same_rows_of_all(path, name, index):
    views = augment.preset(name, size=12)
    batch, draws = images(7, 3, 15, 10), views.draw(7, rng())
    some = views.apply(batch[index], draws.rows(index))
    torch.testing.assert_close(some, views.apply(batch, draws)[index], rtol=0, atol=2e-6)


def test_some_vectors_are_the_same_rows_of_all():
    views = augment.preset("vector", size=5)
    vectors, draws = torch.randn(7, 5, generator=rng()), views.draw(7, rng())
    assert torch.equal(views.apply(vectors[2:4], draws.rows(slice(2, 4))), views.apply(vectors, draws)[2:4])


@pytest.mark.parametrize("name", augment.PRESETS)
def test_the_generator_decides_and_nothing_else(name):
    views = augment.preset(name, size=8)
    items = torch.randn(4, 8, generator=rng()) if name == "vector" else images(4, 3, 8, 8)
    before = torch.get_rng_state()
    first, again, other = (views.draw(4, rng(seed)) for seed in (5, 5, 6))
    assert torch.equal(views.apply(items, first), views.apply(items, again))
    if name != "none":
        assert not torch.equal(views.apply(items, first), views.apply(items, other))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(len(value) == 4 and value.device.type == "cpu" for value in first.values.values())
    assert len(first) == 4


@pytest.mark.parametrize("name", IMAGE_PRESETS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("h", "w", "size"), [(28, 28, 28), (20, 33, 16), (9, 12, 30), (1, 1, 8), (90, 100, 96)])
def test_views_are_of_the_size_asked_for_and_finite(name, channels, h, w, size):
    views = augment.preset(name, size=size, channels=channels)
    batch = images(3, channels, h, w)
    for view in (views.apply(batch, views.draw(3, rng())), views.plain(batch)):
        assert view.shape == (3, channels, size, size)
        assert view.dtype == torch.float32
        assert view.is_contiguous()
        low = torch.tensor([-m / s for m, s in zip(views.mean, views.std, strict=True)])[:, None, None]
        high = torch.tensor([(1 - m) / s for m, s in zip(views.mean, views.std, strict=True)])[:, None, None]
        assert torch.all((view >= low - 1e-5) & (view <= high + 1e-5))


@pytest.mark.parametrize("name", IMAGE_PRESETS)
def test_no_rows_are_no_views(name):
    views = augment.preset(name, size=8)
    assert views.apply(images(0, 3, 9, 9), views.draw(0, rng())).shape == (0, 3, 8, 8)


def test_images_may_lie_in_memory_as_they_like(path):
    views = augment.preset("moco_v2", size=10)
    batch, draws = images(3, 3, 12, 14), views.draw(3, rng())
    strided = batch.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(views.apply(strided, draws), views.apply(batch, draws))


def test_autocast_and_the_default_dtype_change_nothing(path):
    views = augment.preset("moco_v2", size=10)
    batch, draws = images(3, 3, 12, 14), views.draw(3, rng())
    expected = views.apply(batch, draws)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(views.apply(batch, draws), expected)
    torch.set_default_dtype(torch.float64)
    try:
        got = views.apply(batch, views.draw(3, rng()))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(got, expected)


# --- what is drawn ---------------------------------------------------------------------------------


def test_crops_are_drawn_from_their_ranges():
    crop, h, w = Crop((0.2, 0.7)), 360, 360
    top, left, height, width = crop.boxes(crop.draw(4000, rng()), h, w).double().unbind(1)
    share, ratio = height * width / (h * w), width / height
    assert torch.all((top >= 0) & (left >= 0) & (top + height <= h) & (left + width <= w))
    assert share.min() > 0.195 and share.max() < 0.705  # noqa: PT018
    assert ratio.min() > 0.74 and ratio.max() < 1.35  # noqa: PT018
    assert ratio.log().mean().abs() < 0.02  # log-uniform: as many wide as tall
    free = (h - height > 20) & (w - width > 20)
    assert (top / (h - height))[free].mean() == pytest.approx(0.5, abs=0.02)
    assert (left / (w - width))[free].mean() == pytest.approx(0.5, abs=0.02)
    assert crop.draw(4000, rng())["flip"].double().mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("h", "w", "box"), [(400, 3, (198, 0, 4, 3)), (3, 400, (0, 198, 3, 4))])
def test_an_image_too_thin_for_ten_tries_gives_its_middle(h, w, box):
    crop = Crop((0.5, 1.0))
    assert crop.boxes(crop.draw(20, rng()), h, w).tolist() == [list(box)] * 20


def test_the_first_try_that_fits_counts():
    crop = Crop()
    draws = {
        "crop_area": torch.tensor([[0.9, 0.25] + [0.5] * 8], dtype=torch.float64),
        "crop_ratio": torch.tensor([[1.3] + [1.0] * 9], dtype=torch.float64),
        "crop_place": torch.tensor([[0.0, 0.999999]], dtype=torch.float64),
        "flip": torch.tensor([False]),
    }
    assert crop.boxes(draws, 20, 20).tolist() == [[0, 10, 10, 10]]


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_probabilities_of_nought_and_one_are_certain(p):
    views = PhotoViews(8, crop=Crop(flip=p), jitter=Jitter(p=p), grey=1.0, blur=Blur(1, p=p), solarise=1.0)
    drawn = views.draw(200, rng()).values
    for name in ("flip", "jitter"):
        assert torch.all(drawn[name] == bool(p))
    assert torch.all((drawn["sigma"] > 0) == bool(p))
    assert torch.all(drawn["grey"])
    assert torch.all(drawn["solarise"])


def test_nothing_drawn_is_the_image_itself(path):
    views = PhotoViews(
        9, crop=Crop((1.0, 1.0), (1.0, 1.0), flip=0.0), jitter=Jitter(p=0.0), grey=1e-12, blur=Blur(1, p=0.0)
    )
    batch = images(4, 3, 9, 9)
    torch.testing.assert_close(views.apply(batch, views.draw(4, rng())), views.plain(batch), rtol=0, atol=1e-5)


def test_jitter_is_drawn_from_its_ranges():
    drawn = Jitter(0.4, 0.8, 1.5, 0.1, p=0.8).draw(4000, rng())
    for name, low, high in [("brightness", 0.6, 1.4), ("contrast", 0.2, 1.8), ("saturation", 0.0, 2.5)]:
        assert low <= drawn[name].min() < low + 0.01
        assert high - 0.01 < drawn[name].max() <= high
    assert 0.099 < drawn["hue"].abs().max() <= 0.1
    assert drawn["jitter"].double().mean() == pytest.approx(0.8, abs=0.03)
    assert torch.equal(drawn["order"].sort(1).values, torch.arange(4).expand(4000, 4))
    assert len(drawn["order"].unique(dim=0)) == 24


def test_grey_pixels_stay_grey_whatever_the_hue():
    views = PhotoViews(6, jitter=Jitter(0, 0, 0, 0.5, p=1.0), mean=(0.0,) * 3, std=(1.0,) * 3)
    batch = images(5, 1, 6, 6).expand(5, 3, 6, 6)
    got = views.apply(batch, views.draw(5, rng()))
    torch.testing.assert_close(got, got[:, :1].expand_as(got), rtol=0, atol=1e-5)


def test_hue_turns_red_towards_green_and_then_blue():
    """The way HSV's hue turns: a third of a turn up makes green the largest channel, a third down blue."""
    views = PhotoViews(2, jitter=Jitter(p=1.0, hue=0.5))
    red = torch.tensor([200, 40, 40], dtype=torch.uint8)[None, :, None, None].expand(2, 3, 2, 2)
    drawn = views.draw(2, rng()).values
    still = {name: torch.ones_like(drawn[name]) for name in ("brightness", "contrast", "saturation")}
    draws = augment.Draws({**drawn, **still, "hue": torch.tensor([1 / 3, -1 / 3], dtype=torch.float64)})
    view = replace(views, mean=(0.0,) * 3, std=(1.0,) * 3).apply(red, draws)
    assert view[:, :, 0, 0].argmax(1).tolist() == [1, 2]


def test_affine_of_nothing_moves_nothing():
    still = Affine(rotation=0, zoom=(1.0, 1.0), ratio=(1.0, 1.0), shear=0, shift=0)
    views = DrawingViews(9, 1, affine=still)
    batch = images(3, 1, 9, 9)
    torch.testing.assert_close(views.apply(batch, views.draw(3, rng())), views.plain(batch), rtol=0, atol=1e-5)


def test_strengths_are_fields_that_can_be_replaced():
    views = replace(augment.preset("greyscale", size=28, channels=1), affine=Affine(rotation=90.0))
    assert views.draw(1000, rng()).values["rotation"].abs().max() > 1.5


def test_simclr_blurs_only_what_is_larger_than_cifar():
    assert augment.preset("simclr", size=32).blur is None
    assert augment.preset("simclr", size=33).blur is not None


def test_normalisation_is_imagenets_for_colours_and_a_half_for_grey():
    assert augment.preset("moco_v2", size=8).mean == (0.485, 0.456, 0.406)
    assert augment.preset("none", size=8).std == (0.229, 0.224, 0.225)
    grey = augment.preset("greyscale", size=8, channels=1)
    assert (grey.mean, grey.std) == ((0.5,), (0.5,))
    assert torch.equal(grey.plain(torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)), torch.ones(1, 1, 8, 8))


# --- errors ----------------------------------------------------------------------------------------

PHOTOS, VECTORS = augment.preset("moco_v2", size=8), augment.preset("vector", size=3)
FOUR = PHOTOS.draw(4, rng())
ERRORS = {
    "images must be a tensor of torch.uint8, got torch.float32": lambda: PHOTOS.plain(torch.zeros(4, 3, 8, 8)),
    "images must be a tensor of torch.uint8, got ndarray": lambda: PHOTOS.apply(np.zeros((4, 3, 8, 8)), FOUR),
    "images must be of shape (n, 3, h, w), got (4, 1, 8, 8)": lambda: PHOTOS.apply(images(4, 1, 8, 8), FOUR),
    "images must be of shape (n, 3, h, w), got (8, 8, 3)": lambda: PHOTOS.plain(images(1, 8, 8, 3)[0]),
    "images must be of shape (n, 3, h, w), got (4, 3, 0, 8)": lambda: PHOTOS.plain(images(4, 3, 0, 8)),
    "draws must have 2 rows like images, got 4": lambda: PHOTOS.apply(images(2, 3, 8, 8), FOUR),
    "draws must have 2 rows like vectors, got 5": lambda: VECTORS.apply(torch.zeros(2, 3), VECTORS.draw(5, rng())),
    "vectors must be a floating-point tensor, got torch.int64": lambda: VECTORS.plain(torch.zeros(2, 3).long()),
    "vectors must be of shape (n, 3), got (2, 4)": lambda: VECTORS.plain(torch.zeros(2, 4)),
    "channels must be 1 or 3, got 4": lambda: augment.preset("simclr", size=8, channels=4),
    "size must be a whole number >= 2, got 1": lambda: PlainViews(1),
    "size must be a whole number >= 2, got 8.0": lambda: augment.preset("none", size=8.0),
    "size must be a whole number >= 1, got 0": lambda: augment.preset("vector", size=0),
    "mean and std must have 3 numbers each, got 1 and 3": lambda: PlainViews(8, mean=(0.5,)),
    "mean and std must have 2 numbers each, got 2 and 1": lambda: VectorViews(2, std=(0.5,)),
    "preset must be one of moco_v1, moco_v2, simclr, captions, greyscale, none, vector; got 'mocov2', "
    "did you mean 'moco_v2'?": lambda: augment.preset("mocov2", size=8),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_say_what_was_expected_and_what_came(message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        ERRORS[message]()
    assert str(caught.value) == message
