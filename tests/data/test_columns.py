"""Columns: another key or another column for a role, and what is said of a name that is not there."""

import numpy as np
import pytest

from likewise import data
from tests.data.conftest import noise, plain, save

SPOKEN = {
    "audio": np.random.default_rng(0).integers(-9999, 9999, 4000, dtype=np.int16),
    "offsets": np.arange(0, 4001, 1000),
    "rate": 8000,
    "digit": [7, 1, 7, 0],
    "speaker": [0, 0, 1, 1],
    "speaker_names": ["george", "jackson"],
    "class_names": ["wrong"],
}


def refused(source, **columns):
    with pytest.raises(data.DataError) as error:
        data.open(source, columns=columns)
    return str(error.value)


@pytest.mark.parametrize("store", ["in memory", "in a file"])
def test_labels_and_groups_by_another_key(tmp_path, store):
    np.savez(tmp_path / "x.npz", **SPOKEN)
    source = SPOKEN if store == "in memory" else tmp_path / "x.npz"
    assert data.open(source).labels is None
    digits = data.open(source, columns={"y": "digit"})
    assert digits.labels.tolist() == [7, 1, 7, 0]
    assert digits.classes == tuple("01234567")
    assert digits.groups.tolist() == [0, 0, 1, 1]
    speakers = data.open(source, columns={"y": "speaker", "group": "digit"})
    assert speakers.classes == ("george", "jackson")
    assert speakers.labels.tolist() == [0, 0, 1, 1]
    assert speakers.groups.tolist() == [7, 1, 7, 0]


def test_images_and_vectors_by_another_key():
    pictures, vectors = noise(4, 8, 8), np.eye(4)
    source = {
        "pixels": pictures,
        "codes": vectors,
        "kind": [0, 1, 1, 0],
        "kind_names": ["a", "b"],
        "held": [0, 0, 1, 1],
    }
    items = data.open(source, columns={"x": "pixels", "y": "kind", "is_test": "held"})
    np.testing.assert_array_equal(items.array[:, 0], pictures)
    assert items.classes == ("a", "b")
    assert items.test.tolist() == [False, False, True, True]
    assert data.open(source, columns={"x": "codes"}).kind == "vector"


def test_a_key_in_two_parts_is_one_name():
    x = noise(4, 8, 8)
    source = {"x_train": x, "x_test": x, "y_train": [0] * 4, "y_test": [0] * 4}
    source |= {"fine_train": [1, 2, 3, 4], "fine_test": [5, 6, 7, 8]}
    items = data.open(source, columns={"y": "fine"})
    assert items.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert items.test.sum() == 4


def test_an_array_of_its_own_name_makes_way():
    source = {"x": noise(4, 8, 8), "y": [0, 0, 0, 0], "other": [1, 2, 1, 2], "class_names": ["one"]}
    items = data.open(source, columns={"y": "other"})
    assert items.labels.tolist() == [1, 2, 1, 2]
    assert items.classes == ("0", "1", "2")
    both = SPOKEN | {"x": noise(4, 8, 8)}
    assert data.open(both).kind == "image"
    assert data.open(both, columns={"audio": "audio"}).kind == "sequence"


def test_names_and_roles_that_are_not_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", **SPOKEN)
    names = "audio, class_names, digit, offsets, rate, speaker, speaker_names"
    assert refused("x.npz", y="digits") == f"expected a column of x.npz as y, one of {names}, got 'digits'"
    assert refused("x.npz", label="digit").startswith("expected a column for one of ")
    assert refused("x.npz", grup="digit") == "expected a column for one of group, group_test, group_train, got 'grup'"
    with pytest.raises(data.DataError, match=r'^columns must be names by role such as {"y": "digit"}, got \[\'y\'\]$'):
        data.open("x.npz", columns=["y"])


def test_sources_whose_parts_have_no_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "photos", a=plain(1), b=plain(2))
    np.save("x.npy", noise(4, 8, 8))
    known = data.open("x.npy")
    named = {"photos": "photos", "x.npy": "x.npy", "digits": "digits"}
    for source, name in [*named.items(), (known, "x.npy"), (noise(4, 8, 8), "an array of shape (4, 8, 8)")]:
        kinds = ".npz, .csv, .tsv, .jsonl and Parquet files and in a folder's captions.csv or metadata.csv"
        assert refused(source, y="z") == f"columns can be named in {kinds}, got {name}"
    assert len(data.open("photos", columns={})) == 2
