"""Copies of training items among the test items: found by content, and nearly so."""

import numpy as np
import pytest
import torch

from likewise import data
from likewise.search import copies as module
from likewise.search.copies import copies, in_words

rng = np.random.default_rng(0)
PIXELS = rng.integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
TRAIN, TEST = np.arange(40), np.arange(40, 60)


def features(array):
    rows = torch.from_numpy(array).flatten(1).float()
    return rows[TRAIN], rows[TEST]


def found_in(array, **kinds):
    items = data.open({"x": array})
    return items, copies(items, TRAIN, items, TEST, features(array), **kinds)


def test_images_that_differ_are_no_copies():
    items, found = found_in(PIXELS)
    assert (found.exact, found.near, found.tested, found.searched, found.train) == ((), (), 20, 40, 40)
    assert in_words(found, items, items) is None


def test_exact_copies_are_told_with_their_first_original_and_near_ones_apart():
    array = PIXELS.copy()
    array[45] = array[7]
    array[50] = array[9]
    array[30] = array[9]  # a second original
    array[52] = np.clip(array[3].astype(int) + rng.integers(-3, 4, array[3].shape), 0, 255)
    items, found = found_in(array)
    assert found.exact == ((45, 7), (50, 9))
    assert found.near == ((52, 3),)
    assert in_words(found, items, items) == (
        "3 of the 20 test items are copies of training items: 2 exactly, such as item 45 of item 7, and 1 nearly, "
        "such as item 52 of item 3; figures on them are too good"
    )


def test_sequences_are_copies_if_they_are_as_long():
    samples = rng.normal(size=1000).clip(-1, 1).astype(np.float32)
    audio = np.concatenate([samples, samples, samples[:600]])
    items = data.open({"audio": audio, "offsets": np.array([0, 1000, 2000, 2600]), "rate": 8000})
    found = copies(items, np.array([0]), items, np.array([1, 2]), None)
    assert found.exact == ((1, 0),)


def test_two_sources_are_compared_with_each_other_and_named_by_their_files(tmp_path):
    from PIL import Image

    for folder, places in {"train": (0, 1, 2), "test": (9, 2)}.items():
        (tmp_path / folder).mkdir()
        for place in places:
            Image.fromarray(PIXELS[place, 0]).save(tmp_path / folder / f"{place}.png")
    items, tested = data.open(tmp_path / "train", progress=False), data.open(tmp_path / "test", progress=False)
    found = copies(items, np.arange(3), tested, np.arange(2), None)
    begin = "1 of the 2 test items is a copy of a training item: 1 exactly, such as 2.png of 2.png; "
    assert in_words(found, items, tested).startswith(begin)


def test_large_data_are_compared_in_part_and_that_is_said(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 20 * 64)
    monkeypatch.setattr(module, "MOST_PRODUCTS", 10)
    array = PIXELS.copy()
    array[40:] = array[:20]
    items, found = found_in(array)
    assert (found.searched, found.train) == (20, 40)
    assert 0 < len(found.exact) < 20
    assert found.near == ()
    assert "(among 20 of 40 that were compared)" in in_words(found, items, items)


@pytest.mark.parametrize("rows", [torch.zeros(5, 3), torch.ones(5, 3), torch.ones(1, 3)])
def test_constant_features_are_no_near_copies(rows):
    assert list(module._near(rows, rows)) == []


@pytest.mark.parametrize("width", [1, 2, 8])
def test_rows_of_few_features_are_not_taken_for_copies_of_each_other(width):
    """Different rows of few features have nearly the same direction by chance."""
    items = data.open(rng.normal(size=(60, width)).astype(np.float32))
    found = copies(items, TRAIN, items, TEST, features(items.array))
    assert (found.exact, found.near) == ((), ())
