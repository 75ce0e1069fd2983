"""What cannot be used is one sentence: what was expected, and what came."""

import errno
import os

import numpy as np
import pytest

from likewise import data
from likewise.data import images
from tests.data.conftest import noise, plain, save

X = noise(4, 8, 8)
LAYOUTS = (
    "items must be images (n, h, w), (n, h, w, c) or (n, c, h, w) with 1, 3 or 4 channels, "
    "views of them (n, v, …), or vectors (n, f), got "
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (noise(4), LAYOUTS + "(4,) in an array of shape (4,)"),
        (noise(4, 8, 8, 5), LAYOUTS + "(4, 8, 8, 5) in an array of shape (4, 8, 8, 5)"),
        (noise(4, 2, 8, 8, 5), LAYOUTS + "(4, 2, 8, 8, 5) in an array of shape (4, 2, 8, 8, 5)"),
        (noise(4, 0), "items must not be empty, got (4, 0) in an array of shape (4, 0)"),
        (X[:1], "expected at least 2 items in an array of shape (1, 8, 8), got 1"),
        (X[:0], "expected at least 2 items in an array of shape (0, 8, 8), got 0"),
        (X.astype(object), "items must be numbers, got object in an array of shape (4, 8, 8)"),
        (X * 1j, "items must be numbers, got complex128 in an array of shape (4, 8, 8)"),
        (
            np.linspace(-1, 1, 36).reshape(4, 3, 3),
            "pixels of float64 must be in 0..1 or whole numbers in 0..255, got -1..1 in an array of shape (4, 3, 3)",
        ),
        (
            np.linspace(0, 9, 36).reshape(4, 3, 3),
            "pixels of float64 must be in 0..1 or whole numbers in 0..255, got 0..9 with fractions "
            "in an array of shape (4, 3, 3)",
        ),
        (
            np.full((4, 3, 3), np.nan, np.float32),
            "pixels of float32 must be in 0..1 or whole numbers in 0..255, got nan..nan in an array of shape (4, 3, 3)",
        ),
        (
            np.full((4, 3, 3), 999),
            "pixels of int64 must be in 0..255, or uint16, got 999..999 in an array of shape (4, 3, 3)",
        ),
        (
            np.array([[1.0, 2.0], [np.inf, 0.0]]),
            "vectors must be finite, got nan or inf in row 1 of an array of shape (2, 2)",
        ),
        (np.array([[1.0], [1e300]]), "vectors must be finite, got nan or inf in row 1 of an array of shape (2, 1)"),
        ({"y": [1]}, "expected an array x, x_train, audio or text in arrays y, got y"),
        ({"x": X, "y": [1, 2]}, "labels must have one entry per item, 4 in arrays x, y, got 2"),
        ({"x": X, "y": [0.5] * 4}, "labels must be whole numbers or strings of shape (n,), got (4,) of float64"),
        ({"x": X, "is_test": [0.5] * 4}, "is_test must be true or false per item, got (4,) of float64"),
        (
            {"x": X, "y": [0, 1, 2, 3], "class_names": ["a", "b"]},
            "class names must name every label, got 2 names and label 3",
        ),
        (
            {"x": X, "y": ["a", "b", "c", "a"], "class_names": ["a", "b"]},
            "labels must be among the class names, got 'c'",
        ),
        (
            {"x_train": X, "x_test": noise(2, 9, 9)},
            "x_test must be like x_train, (8, 8) of uint8 per item, got (9, 9) of uint8 in arrays x_train, x_test",
        ),
        ({"x_train": X, "x_test": X, "y_test": [1]}, "y_test must have one entry per item, 4, got 1"),
        (
            7,
            "source must be a path, one of digits, mnist5k, sounds, shapes, an array, a dict of arrays "
            "or a list of texts, got int",
        ),
    ],
)
def test_arrays(source, sentence):
    with pytest.raises(data.DataError) as refused:
        data.open(source)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "32"])
def test_sizes(size):
    with pytest.raises(ValueError, match=rf"^size must be a whole number >= 1, got {size!r}$"):
        data.open(X, size=size)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("photos", "data not found: photos"),
        ("no/such/x.npz", "data not found: no/such/x.npz"),
        ("digit", "data not found: digit; the nearest built-in is digits"),
        ("mnist", "data not found: mnist; the nearest built-in is mnist5k"),
    ],
)
def test_missing(source, sentence):
    with pytest.raises(FileNotFoundError) as refused:
        data.open(source)
    assert str(refused.value) == sentence


def test_a_folder_of_other_files(here):
    (here / "photos").mkdir()
    endings = ", ".join((*images.EXTENSIONS, "wav, flac, ogg, opus, mp3, csv, txt"))
    expected = f"no images, audio, series or texts in photos/: expected {endings}; got "
    for got in ("no files", "1 file of other kinds (.md)", "2 files of other kinds (no ending, .md)"):
        with pytest.raises(data.DataError) as refused:
            data.open("photos/")
        assert str(refused.value) == expected + got
        (here / "photos" / ("README" if "1 file" in got else "a.md")).touch()


def test_a_folder_without_one_readable_image(here):
    (here / "photos").mkdir()
    for name in "ab":
        (here / "photos" / f"{name}.png").write_text("no")
    with pytest.raises(data.DataError) as refused:
        data.open("photos")
    reason = f"not an image of a known kind ({', '.join(images.FORMATS)})"
    assert str(refused.value) == f"no readable image in photos: a.png: {reason}"


def test_one_image_is_too_few(here):
    save(here / "photos", a=plain(1))
    with pytest.raises(data.DataError, match=r"^expected at least 2 items in photos, got 1$"):
        data.open("photos")


def test_a_folder_that_may_not_be_read(here, monkeypatch):
    save(here / "photos", a=plain(1), b=plain(2), secret__c=plain(3))
    scandir = os.scandir
    closed = [here / "photos" / "secret"]

    def refusing(path):
        if path in closed or str(path).rstrip("/") in map(str, closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert data.open(here / "photos").skipped == (data.Skipped("secret/", "permission denied"),)
    closed.append("photos")
    with pytest.raises(data.DataError, match=r"^cannot read photos/: permission denied$"):
        data.open("photos")


def test_files_of_other_kinds(here):
    kinds = (
        "a folder of images, audio or texts, .npy, .npz, .csv, .tsv, .jsonl, .txt, .parquet, .tar or an idx images file"
    )
    (here / "x.md").write_text("1,2")
    (here / "x.wav").write_text("no sound")
    plain(1).save(here / "x.png")
    (here / "x.npy").write_text("no array")
    (here / "x.npz").write_text("no archive")
    np.savez(here / "objects.npz", x=np.array([{}, {}]))
    np.save(here / "objects.npy", np.array([{}, {}]))
    np.savez(here / "keys.npz", a=X, b=X)
    for source, sentence in {
        "x.md": f"expected {kinds}, got x.md",
        "x.wav": f"expected {kinds}, got x.wav: open its folder",
        "x.png": f"expected {kinds}, got x.png: open its folder",
        "x.npy": "cannot read x.npy: it is not an .npy array",
        "x.npz": "cannot read x.npz: it is not an .npz archive",
        "objects.npz": "cannot read objects.npz: x holds Python objects, not arrays of numbers",
        "objects.npy": "cannot read objects.npy: it holds Python objects, not arrays of numbers",
        "keys.npz": "expected an array x, x_train, audio or text in keys.npz, got a, b",
    }.items():
        with pytest.raises(data.DataError) as refused:
            data.open(source)
        assert str(refused.value) == sentence
