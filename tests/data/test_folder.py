"""Folders: which files, in which order, under which labels."""

import os

import numpy as np
import pytest

from likewise import data
from tests.data.conftest import noise, plain, save


def test_class_folders_give_labels(tmp_path):
    save(tmp_path, dog__b=plain(1, mode="L"), cat__deep__a=plain(2, mode="L"), cat__c=plain(3, mode="L"))
    items = data.open(str(tmp_path))
    assert items.paths == ("cat/c.png", "cat/deep/a.png", "dog/b.png")
    assert items.classes == ("cat", "dog")
    assert items.labels.dtype == np.int64
    assert items.labels.tolist() == [0, 0, 1]
    assert items.array[:, 0, 0, 0].tolist() == [3, 2, 1]
    assert items.test is None
    assert items.groups is None
    assert items.name == str(tmp_path)


def test_train_and_test_folders_are_not_classes(tmp_path):
    save(tmp_path, train__cat__a=plain(1), train__dog__b=plain(2), val__cat__c=plain(3), test__dog__d=plain(4))
    items = data.open(tmp_path)
    assert items.paths == ("test/dog/d.png", "train/cat/a.png", "train/dog/b.png", "val/cat/c.png")
    assert items.classes == ("cat", "dog")
    assert items.labels.tolist() == [1, 0, 1, 0]
    assert items.test.tolist() == [True, False, False, True]


def test_train_and_test_without_classes(tmp_path):
    items = data.open(save(tmp_path, train__a=plain(1), test__b=plain(2)))
    assert items.labels is None
    assert items.test.tolist() == [True, False]


def test_a_train_folder_alone_is_all_there_is(tmp_path):
    items = data.open(save(tmp_path, train__cat__a=plain(1), train__dog__b=plain(2)))
    assert items.classes == ("cat", "dog")
    assert items.test is None


@pytest.mark.parametrize("loose", ["z", "a"])
def test_an_image_outside_the_class_folders_means_no_labels(tmp_path, loose):
    items = data.open(save(tmp_path, **{loose: plain(1), "cat__b": plain(2), "dog__c": plain(3)}))
    assert items.labels is None
    assert items.classes == ()


@pytest.mark.parametrize("names", [("cat__a", "cat__b"), ("train__cat__a", "test__cat__b")])
def test_one_class_folder_is_no_class(tmp_path, names):
    """Pictures often lie in one subfolder, whose name k-NN would find in every case."""
    items = data.open(save(tmp_path, **{name: plain(1) for name in names}))
    assert (items.labels, items.classes) == (None, ())


def test_a_class_whose_files_cannot_be_read_does_not_count(tmp_path):
    save(tmp_path, cat__a=plain(1), cat__b=plain(2), dog__c=plain(3))
    (tmp_path / "dog" / "c.png").write_text("no")
    for _ in range(2):  # decoded, and from the cache
        assert data.open(tmp_path).labels is None


def test_hidden_and_other_files_do_not_count(tmp_path):
    save(tmp_path, a=plain(1), b=plain(2), **{".c": plain(3), ".hidden__d": plain(4)})
    (tmp_path / "notes.txt").write_text("about a and b")
    assert data.open(tmp_path).paths == ("a.png", "b.png")


def test_links_are_followed_loops_are_not_and_no_file_counts_twice(tmp_path):
    elsewhere = save(tmp_path / "elsewhere", x=plain(1), y=plain(2))
    root = save(tmp_path / "root", real__a=plain(3))
    (root / "real" / "up").symlink_to(root)
    (root / "again").symlink_to(root / "real")
    (root / "linked").symlink_to(elsewhere)
    (root / "self").symlink_to(root / "self")
    (root / "real" / "one.png").symlink_to(elsewhere / "x.png")
    assert data.open(root).paths == ("linked/x.png", "linked/y.png", "real/a.png", "real/one.png")


def test_a_pipe_is_not_opened(tmp_path):
    save(tmp_path, a=plain(1), b=plain(2))
    os.mkfifo(tmp_path / "c.png")
    assert len(data.open(tmp_path)) == 2


def test_names_of_any_kind(tmp_path):
    for name in ("é ü.png", "日本.png", os.fsdecode(b"\xff.png")):
        plain(1).save(tmp_path / name)
    first, second = data.open(tmp_path), data.open(tmp_path)
    assert first.paths == second.paths
    assert set(first.paths) == {"é ü.png", "日本.png", "\udcff.png"}


def test_rows_by_id_are_a_copy(tmp_path):
    items = data.open(save(tmp_path, a=noise(8, 8, 3), b=noise(8, 8, 3, seed=1), c=noise(8, 8, 3, seed=2)))
    rows = items[np.array([2, 0, 2])]
    assert rows.shape == (3, 3, 8, 8)
    assert rows.flags.c_contiguous
    assert rows.flags.writeable
    np.testing.assert_array_equal(rows, np.asarray(items.array)[[2, 0, 2]])


def test_the_fingerprint_follows_content_labels_and_order_not_place_or_time(tmp_path):
    def fingerprint(name, **images):
        return data.open(save(tmp_path / name, **images)).fingerprint

    a, b = noise(8, 8, 3), noise(8, 8, 3, seed=1)
    known = fingerprint("one", cat__a=a, dog__b=b)
    assert known == fingerprint("two", cat__a=a, dog__b=b)
    assert known != fingerprint("three", cat__a=b, dog__b=a)
    assert known != fingerprint("four", cat__a=a, cat__b=b)
    c = b.copy()
    c[0, 0, 0] ^= 1
    assert known != fingerprint("five", cat__a=a, dog__b=c)
