"""Series in arrays (n, t, c): floats that are no images, ragged where NaN fills them up."""

import numpy as np
import pytest

from likewise import data

X = np.random.default_rng(0).normal(size=(6, 20, 3))


@pytest.mark.parametrize("store", ["in memory", ".npy", ".npz", "in two parts"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_that_are_not_square_are_series(tmp_path, store, dtype):
    x = X.astype(dtype)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    parts = {"x_train": x[:4], "x_test": x[4:]}
    items = data.open({"in memory": x, ".npy": tmp_path / "x.npy", ".npz": tmp_path / "x.npz"}.get(store, parts))
    assert (items.kind, len(items), items.native, items.rate) == ("sequence", 6, 20, 0)
    assert items.array.dtype == np.float32
    assert items.channels == ("0", "1", "2")
    np.testing.assert_array_equal(items[np.array([5, 0])], X[[5, 0]].astype(np.float32))
    assert items.fingerprint == data.open(parts).fingerprint if store == "in two parts" else data.open(X).fingerprint


@pytest.mark.parametrize("x", [np.rint(X * 9).astype(np.int64) % 256, X > 0, np.abs(X[:, :3]) % 1])
def test_whole_numbers_and_squares_are_images(x):
    assert data.open(x).kind == "image"


def test_an_npy_file_of_single_precision_is_mapped_and_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    assert isinstance(data.open(tmp_path / "x.npy").array, np.memmap)


def test_rate_channels_labels_and_groups():
    known = {
        "y": [0, 1] * 3,
        "subject": np.arange(6),
        "rate": 50,
        "channels": ["x", "y", "z"],
        "class_names": ["a", "b"],
    }
    items = data.open({"x": X, **known})
    assert (items.rate, items.channels, items.classes) == (50, ("x", "y", "z"), ("a", "b"))
    assert items.groups.tolist() == [*range(6)]
    with pytest.raises(data.DataError, match=r"^channels must name all 3 channels of arrays x, channels, got 2$"):
        data.open({"x": X, "channels": ["x", "y"]})


def test_nan_behind_the_end_makes_a_series_shorter_and_nan_within_leaves_it_out():
    x = X.copy()
    x[0, 12:] = np.nan
    x[1, 5] = np.nan  # a whole row, but not at the end
    x[2, 19, 1] = np.nan  # at the end, but not a whole row
    x[3] = np.nan
    x[4, 15:] = np.nan
    items = data.open(
        {"x": x, "y": np.arange(6), "group": np.arange(6) * 10, "is_test": [1, 1, 0, 0, 0, 1]}, gaps="skip"
    )
    assert [(skip.path, skip.reason) for skip in items.skipped] == [(f"series {i}", "holds NaN") for i in (1, 2, 3)]
    assert items.lengths.tolist() == [12, 15, 20]
    assert items.labels.tolist() == [0, 4, 5]
    assert items.groups.tolist() == [0, 40, 50]
    assert items.test.tolist() == [True, False, True]
    np.testing.assert_array_equal(items[np.arange(3)], x[[0, 4, 5]].astype(np.float32))


def test_series_in_which_nothing_happens():
    x = X.copy()
    x[0] = [1, 2, 3]
    x[1, :, 0] = 1  # one channel that stands still is no harm
    x[2, 1:] = np.nan
    x[3, 3, 0] = 1e300
    items = data.open(x)
    assert {skip.path: skip.reason for skip in items.skipped} == {
        "series 0": "all values are the same",
        "series 2": "fewer than 2 samples",
        "series 3": "holds infinity",
    }
    with pytest.raises(
        data.DataError, match=r"^no usable sequence in an array of .*: series 5: all values are the same$"
    ):
        data.open(np.ones((6, 20, 3)))
    with pytest.raises(data.DataError, match=r"^items must not be empty, got \(6, 0, 3\) in an array of"):
        data.open(X[:, :0])


def test_the_fingerprint_follows_lengths():
    a, b = np.full((2, 10, 1), np.nan), np.full((2, 10, 1), np.nan)
    a[0, :4, 0], a[1, :6, 0] = np.arange(4), np.arange(4, 10)
    b[0, :5, 0], b[1, :5, 0] = np.arange(5), np.arange(5, 10)
    assert data.open(a).array.tolist() == data.open(b).array.tolist()
    assert data.open(a).fingerprint != data.open(b).fingerprint
    assert data.open(a).fingerprint == data.open(a.copy()).fingerprint
