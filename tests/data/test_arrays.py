"""Arrays in memory, in .npy and in .npz: layouts, depths, labels."""

import numpy as np
import pytest

from likewise import data
from tests.data.conftest import noise

GREY, COLOUR = noise(5, 9, 9), noise(5, 9, 9, 3)


@pytest.mark.parametrize("store", ["in memory", "in a file"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GREY, GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        (GREY[:, None], GREY[:, None]),
        (COLOUR, COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR.transpose(0, 3, 1, 2)),
        (noise(4, 3, 4, 4), noise(4, 3, 4, 4)),  # 4 could be channels: square images win
        (noise(4, 4, 4, 3), noise(4, 4, 4, 3).transpose(0, 3, 1, 2)),
        (noise(4, 6, 9, 3), noise(4, 6, 9, 3).transpose(0, 3, 1, 2)),  # not square, and left so
    ],
)
def test_layouts(tmp_path, store, given, expected):
    if store == "in a file":
        np.save(tmp_path / "x.npy", given)
    items = data.open(tmp_path / "x.npy" if store == "in a file" else given)
    assert items.kind == "image"
    np.testing.assert_array_equal(items.array, expected)
    np.testing.assert_array_equal(items[np.array([3, 1])], expected[[3, 1]])
    assert items[np.array([3, 1])].flags.c_contiguous
    assert items.native == min(expected.shape[2:])
    assert (items.labels, items.classes, items.test, items.paths, items.skipped) == (None, (), None, None, ())


def test_an_npy_file_of_bytes_is_mapped_and_not_copied(tmp_path, cache):
    np.save(tmp_path / "x.npy", COLOUR)
    items = data.open(tmp_path / "x.npy")
    assert isinstance(items.array, np.memmap)
    assert not list(cache.iterdir())
    assert items.fingerprint == data.open(COLOUR).fingerprint


@pytest.mark.parametrize("store", ["in memory", "in a file"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GREY.astype(np.float32) / 255, GREY),
        (GREY.astype(np.float64), GREY),
        (GREY.astype(np.int64), GREY),
        (GREY.astype(np.uint16) * 257, GREY),
        (GREY.astype(">u2") * 257, GREY),
        (GREY.astype(np.uint16), GREY),  # all below 256: eight bits in a wider type
        (GREY > 99, (GREY > 99) * 255),
    ],
)
def test_depths(tmp_path, store, given, expected):
    if store == "in a file":
        np.save(tmp_path / "x.npy", given)
    items = data.open(tmp_path / "x.npy" if store == "in a file" else given)
    assert items.array.dtype == np.uint8
    np.testing.assert_array_equal(items.array, expected[:, None])


def test_alpha_in_arrays_is_over_white():
    x = np.zeros((2, 4, 5, 5), np.uint8)
    x[1, 3] = 51
    x[1, 0] = 255
    items = data.open(x)
    assert items.array.shape == (2, 3, 5, 5)
    assert items.array[:, :, 0, 0].tolist() == [[255, 255, 255], [255, 204, 204]]


@pytest.mark.parametrize("store", ["in memory", "in a file"])
@pytest.mark.parametrize(("x", "c"), [(noise(300, 8, 12), 1), (noise(3, 8, 12, 3), 3), (noise(3, 8, 8, 4), 3)])
def test_a_size_makes_squares(tmp_path, store, x, c):
    np.save(tmp_path / "x.npy", x)
    items = data.open(tmp_path / "x.npy" if store == "in a file" else x, size=4)
    assert items.array.shape == (len(x), c, 4, 4)
    assert items.native == 8
    if x.shape[-1] == 12:  # one by one, each from its own image
        middle = x[:, :, 2:10].reshape(len(x), 4, 2, 4, 2).mean(axis=(2, 4))
        np.testing.assert_allclose(items.array[:, 0], middle, atol=80)
        assert np.corrcoef(items.array[:, 0].ravel(), middle.ravel())[0, 1] > 0.9


def test_items_are_returned_as_they_are_unless_another_size_is_asked_for():
    items = data.open(GREY)
    assert data.open(items) is items
    assert data.open(items, size=9) is items
    assert data.open(items, size=3).array.shape == (5, 1, 3, 3)


def test_vectors(tmp_path):
    x = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    for items in (data.open(x), data.open(tmp_path / "x.npy", size=7)):
        assert items.kind == "vector"
        assert items.array.dtype == np.float32
        assert items.native == 3
        np.testing.assert_array_equal(items.array, x)


def test_npz_with_a_test_part(tmp_path):
    train, test = noise(4, 8, 8), noise(2, 8, 8, seed=1)
    np.savez(tmp_path / "x.npz", x_train=train, x_test=test, y_train=[0, 2, 1, 0], y_test=[[1], [2]], other=[1, 2])
    items = data.open(tmp_path / "x.npz")
    np.testing.assert_array_equal(items.array, np.concatenate([train, test])[:, None])
    assert items.labels.tolist() == [0, 2, 1, 0, 1, 2]
    assert items.classes == ("0", "1", "2")
    assert items.test.tolist() == [False] * 4 + [True] * 2


def test_npz_with_everything_else(tmp_path):
    arrays = {"x": noise(4, 8, 8), "y": ["b", "a", "", "b"], "is_test": [0, 0, 1, 1], "speaker": ["u", "v", "u", "w"]}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    for items in (data.open(tmp_path / "x.npz"), data.open(arrays)):
        assert items.labels.tolist() == [1, 0, -1, 1]
        assert items.classes == ("a", "b")
        assert items.test.tolist() == [False, False, True, True]
        assert items.groups.tolist() == [0, 1, 0, 2]


def test_class_names():
    items = data.open({"x": GREY, "y": [0, 1, 1, -1, 0], "class_names": ["no", "yes"]})
    assert items.classes == ("no", "yes")
    assert items.labels.tolist() == [0, 1, 1, -1, 0]


def test_labels_missing_from_one_part_are_none():
    items = data.open({"x_train": GREY, "x_test": GREY, "y_train": ["a", "b", "a", "a", "a"]})
    assert items.labels.tolist() == [0, 1, 0, 0, 0] + [-1] * 5


@pytest.mark.parametrize("y", [[3] * 5, ["cat"] * 5, [0, -1, 0, -1, -1], [-1] * 5])
def test_one_value_for_all_items_is_no_label(y):
    for x in (GREY, GREY.reshape(5, -1), np.arange(90.0).reshape(5, 9, 2)):
        items = data.open({"x": x, "y": y})
        assert (items.labels, items.classes) == (None, ())


def test_large_numbers_are_names_of_classes():
    items = data.open({"x": GREY, "y": [10**9, 7, 7, -1, 10**9]})
    assert items.labels.tolist() == [1, 0, 0, -1, 1]
    assert items.classes == ("7", "1000000000")


def test_the_fingerprint_follows_labels_and_test_part():
    known = data.open({"x": GREY, "y": [0, 1, 0, 1, 0]}).fingerprint
    assert known == data.open({"x": GREY.copy(), "y": [0, 1, 0, 1, 0]}).fingerprint
    assert known != data.open({"x": GREY, "y": [0, 1, 0, 1, 1]}).fingerprint
    assert known != data.open({"x": GREY, "y": [0, 1, 0, 1, 0], "is_test": [0, 0, 0, 1, 1]}).fingerprint
    assert known != data.open({"x": GREY[::-1], "y": [0, 1, 0, 1, 0]}).fingerprint


def test_a_file_too_large_to_read_twice_is_known_by_its_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.data.items.LARGEST_DIGEST", 10)
    np.save(tmp_path / "x.npy", GREY)
    known = data.open(tmp_path / "x.npy").fingerprint
    assert known == data.open(tmp_path / "x.npy").fingerprint
    np.save(tmp_path / "x.npy", GREY[::-1])
    assert known != data.open(tmp_path / "x.npy").fingerprint


@pytest.mark.parametrize(("name", "shape"), [("digits", (1797, 1, 8, 8)), ("mnist5k", (5000, 1, 28, 28))])
def test_built_in_data(name, shape):
    items = data.open(name)
    assert items.array.shape == shape
    assert items.array.dtype == np.uint8
    assert (items.array.min(), items.array.max()) == (0, 255)
    assert items.classes == tuple("0123456789")
    assert np.bincount(items.labels).min() > 170
    assert items.name == name


def test_a_path_comes_before_a_built_in_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    with pytest.raises(data.DataError, match="no images, audio, series or texts in digits/"):
        data.open("digits")


def test_x_beside_x_test_is_the_training_part():
    """Left out without a word, a test part of one's own would become training items held out."""
    x = np.arange(40 * 5, dtype=np.float32).reshape(40, 5)
    items = data.open({"x": x[:30], "y": np.arange(30) % 3, "x_test": x[30:], "y_test": np.arange(10) % 3})
    assert (len(items), items.test.sum(), items.labels[30:].tolist()) == (40, 10, (np.arange(10) % 3).tolist())


@pytest.mark.parametrize("store", ["in memory", "in a file", "among others", "idx"])
def test_arrays_that_are_not_square_become_so_by_pad_and_stretch(tmp_path, store):
    x = np.zeros((3, 6, 18), np.uint8)
    x[:, :, 6:12] = 100  # black, grey, black
    source = x
    if store == "in a file":
        np.save(source := tmp_path / "x.npy", x)
    elif store == "among others":
        source = {"x": x, "y": [0, 1, 1]}
    elif store == "idx":
        source = tmp_path / "train-images-idx3-ubyte"
        source.write_bytes(bytes([0, 0, 8, 3]) + np.array(x.shape, ">i4").tobytes() + x.tobytes())
    plain, padded, stretched = (data.open(source, fit=fit) for fit in ("crop", "pad", "stretch"))
    assert (plain.array.shape, plain.oblong) == ((3, 1, 6, 18), 3), "left as they are"
    assert (padded.array.shape, padded.oblong, padded.native) == ((3, 1, 6, 6), 3, 6)
    assert padded.array[0, 0, :, 3].tolist() == [255, 255, *padded.array[0, 0, 2:4, 3], 255, 255]
    assert 60 < padded.array[0, 0, 2, 3] < 110
    assert (stretched.array.shape, stretched.oblong) == ((3, 1, 6, 6), 3)
    assert stretched.array[0, 0, :, 0].max() < 30
    assert stretched.array[0, 0, :, 2].min() > 60
    assert data.open(source, size=4, fit="pad").array.shape == (3, 1, 4, 4)
    assert data.open(plain, fit="pad").fingerprint == padded.fingerprint
    assert data.open(x[:, :, :6], fit="pad").oblong == 0
