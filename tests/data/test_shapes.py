"""`shapes`: made up, the same for everyone, and what their captions say is what they show."""

import numpy as np
import pytest

from likewise import data
from likewise.data.shapes import COLOURS, COUNT, GROUNDS, KINDS, SIDE, SIZES, _generate

OUTERMOST = np.pad(np.zeros((SIDE - 2, SIDE - 2), dtype=bool), 1, constant_values=True)


@pytest.fixture(scope="module")
def items():
    return data.open("shapes")


@pytest.fixture(scope="module")
def words(items):
    """(size, colour, shape, ground) of each, by its first caption, which says all."""
    found = [texts[0].split() for texts in items.captions]
    assert all((a, on) == ("a", "on") for a, _, _, _, on, _ in found)
    return [(size, colour, kind, ground) for _, size, colour, kind, _, ground in found]


@pytest.fixture(scope="module")
def shares(items, words):
    """How much of a pixel is the shape's, (n, h, w): 0 is the ground, and about 1 the shape."""
    shares = np.empty((len(items), SIDE, SIDE))
    for i, (*_, ground) in enumerate(words):
        pixels = items.array[i].transpose(1, 2, 0) - np.array(GROUNDS[ground], dtype=float)
        way = inside(items.array[i], ground).mean(axis=0) - np.array(GROUNDS[ground], dtype=float)
        shares[i] = pixels @ way / (way @ way)
    return shares


def inside(image, ground):
    """The pixels (m, 3) of an image (3, h, w) that are farthest from the ground, which those of an edge are not."""
    pixels = image.reshape(3, -1).T.astype(float)
    far = np.linalg.norm(pixels - GROUNDS[ground], axis=1)
    return pixels[far > 0.85 * np.quantile(far, 1 - 8 / SIDE**2)]


def of_kind(words, kind, size="large"):
    return [i for i, word in enumerate(words) if (word[0], word[2]) == (size, kind)]


def test_they_are_twelve_hundred_pictures_of_six_kinds_each_with_captions(items):
    assert (items.kind, len(items), items.classes, items.native) == ("image", 1200, tuple(KINDS), 32)
    assert items.array.shape == (COUNT, 3, SIDE, SIDE)
    assert items.array.dtype == np.uint8
    assert np.bincount(items.labels).tolist() == [200] * 6
    assert min(len(set(texts)) for texts in items.captions) >= 2
    assert not items.skipped
    assert items.groups is None
    assert items.test is None


def test_they_are_the_same_each_time_whatever_else_is_drawn(items):
    np.random.seed(3)
    pixels, labels, captions = _generate.__wrapped__()
    np.testing.assert_array_equal(pixels.transpose(0, 3, 1, 2), items.array)
    np.testing.assert_array_equal(labels, items.labels)
    assert captions == items.captions
    assert data.open("shapes").fingerprint == items.fingerprint


def test_they_come_in_another_size_with_the_same_captions(items):
    smaller = data.open("shapes", size=16)
    assert smaller.array.shape == (COUNT, 3, 16, 16)
    assert smaller.captions == items.captions
    np.testing.assert_array_equal(smaller.labels, items.labels)


def test_every_caption_says_the_label_and_nothing_that_another_denies(items, words):
    for label, texts, (size, colour, kind, ground) in zip(items.labels, items.captions, words, strict=True):
        assert kind == items.classes[label]
        for text in texts:
            said = set(text.split())
            assert said & {*KINDS} == {kind}
            assert said & {*COLOURS} <= {colour}
            assert said & {*SIZES} <= {size}
            assert said & {*GROUNDS} <= {ground}
            assert text.split(" on ")[0].endswith(kind)


def test_the_colour_inside_is_nearest_to_the_one_that_is_named(items, words):
    names = list(COLOURS)
    for image, (_, colour, _, ground) in zip(items.array, words, strict=True):
        mean = inside(image, ground).mean(axis=0)
        away = [np.linalg.norm(mean - COLOURS[name]) for name in names]
        assert names[int(np.argmin(away))] == colour


def test_round_the_shape_is_the_ground_that_is_named(items, words):
    names = list(GROUNDS)
    for image, (*_, ground) in zip(items.array, words, strict=True):
        away = [np.linalg.norm(np.median(image[:, OUTERMOST], axis=1) - GROUNDS[name]) for name in names]
        assert names[int(np.argmin(away))] == ground
        assert min(away) < 5


def test_shapes_lie_inside_the_picture(shares):
    """An edge may touch the outermost pixels, but fills none of them; of one that went on, it would."""
    most = shares[:, OUTERMOST].max(axis=1)
    assert most.max() < 0.7
    assert (most < 0.2).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_shape_reaches_no_farther_than_its_place_leaves_room_for(kind):
    """1.1 of its scale each way, turned by as much as shapes are."""
    places = np.linspace(-1.5, 1.5, 301)
    x, y = places[None, :], places[:, None]
    for turn in (-0.2, -0.1, 0, 0.1, 0.2):
        found = KINDS[kind](x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn))
        rows, columns = np.nonzero(found)
        reach = max(abs(places[rows]).max(), abs(places[columns]).max())
        assert 0.75 < reach < 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_one_is_larger_than_a_small_one_by_the_square_of_their_scales(shares, words, kind):
    """On the average: each is drawn 10 % up or down."""
    small, large = (shares[of_kind(words, kind, size)].sum(axis=(1, 2)) for size in SIZES)
    assert large.min() > small.max()
    assert large.mean() / small.mean() == pytest.approx((SIZES["large"] / SIZES["small"]) ** 2, rel=0.1)


def test_a_shape_looks_as_it_is_called(shares, words):
    """How much of its box it fills, how much of the box's middle, and how far its middle lies below the box's."""

    def look(kind):
        filled, middle, below = [], [], []
        for i in of_kind(words, kind):
            rows, columns = np.nonzero(shares[i] > 0.5)
            top, left = rows.min(), columns.min()
            box = shares[i, top : rows.max() + 1, left : columns.max() + 1] > 0.5
            height, width = box.shape
            filled.append(box.mean())
            middle.append(box[height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1].mean())
            below.append((rows.mean() - top + 0.5) / height - 0.5)
        return np.mean(filled), np.mean(middle), np.mean(below)

    filled, middle, below = (dict(zip(KINDS, column, strict=True)) for column in zip(*map(look, KINDS), strict=True))
    assert filled["square"] > filled["circle"] + 0.03
    assert filled["circle"] == pytest.approx(np.pi / 4, abs=0.04)
    assert max(filled["cross"], filled["star"], filled["triangle"]) < 0.6
    assert middle["ring"] == 0
    assert min(share for kind, share in middle.items() if kind != "ring") == 1
    assert below["triangle"] > 0.1
    assert all(abs(share) < 0.05 for kind, share in below.items() if kind != "triangle")


def test_every_kind_comes_in_every_colour_and_on_every_ground(words):
    """So a label is not to be told by anything but the shape."""
    assert {(kind, colour) for _, colour, kind, _ in words} == {(kind, colour) for kind in KINDS for colour in COLOURS}
    assert {(kind, ground) for *_, kind, ground in words} == {(kind, ground) for kind in KINDS for ground in GROUNDS}
