"""Embeddings of anyone's, by the names that people give them."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from likewise.data import DataError
from likewise.data.embeddings import read_embeddings

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("names", ["x y is_test", "vectors labels test", "embeddings targets test"])
def test_an_npz_by_any_usual_names(tmp_path, names):
    columns = dict(
        zip(names.split(), (VECTORS, np.array([1, 0, -1, 2]), np.array([False, False, True, True])), strict=True)
    )
    np.savez(tmp_path / "e.npz", **columns, paths=np.array(["a", "b", "c", "d"]))
    items = read_embeddings(tmp_path / "e.npz")
    np.testing.assert_array_equal(items.array, VECTORS)
    assert items.labels.tolist() == [1, 0, -1, 2]
    assert items.test.tolist() == [False, False, True, True]


def test_an_npz_in_two_parts(tmp_path):
    parts = {"x_train": VECTORS, "y_train": [0, 1, 0, 1], "x_test": VECTORS[:2], "y_test": [1, 0]}
    np.savez(tmp_path / "e.npz", **parts)
    items = read_embeddings(tmp_path / "e.npz")
    assert (len(items), items.test.sum(), items.labels.tolist()) == (6, 2, [0, 1, 0, 1, 1, 0])


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed lists", "lists"])
def test_parquet_with_names_for_labels(tmp_path, fixed):
    kind = pyarrow.list_(pyarrow.float32(), 3 if fixed else -1)
    table = pyarrow.table(
        {
            "id": [0, 1, 2, 3],
            "vector": pyarrow.array(VECTORS.tolist(), type=kind),
            "label": ["cat", "dog", None, "cat"],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    items = read_embeddings(str(tmp_path / "e.parquet"))
    np.testing.assert_array_equal(items.array, VECTORS)
    assert (items.labels.tolist(), items.classes, items.test) == ([0, 1, -1, 0], ("cat", "dog"), None)


def test_mistakes_are_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^embeddings not found: "):
        read_embeddings(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", z=VECTORS)
    with pytest.raises(DataError, match=r"^expected vectors in .*other\.npz, named x or vectors, got none$"):
        read_embeddings(tmp_path / "other.npz")
    np.savez(tmp_path / "images.npz", x=np.zeros((2, 8, 8, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"^embeddings must be \(n, d\), got \(2, 3, 8, 8\) in "):
        read_embeddings(tmp_path / "images.npz")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=r"^cannot read .*torn\.npz: "):
        read_embeddings(tmp_path / "torn.npz")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"^cannot read .*torn\.parquet: "):
        read_embeddings(tmp_path / "torn.parquet")
    ragged = pyarrow.table({"vector": [[1.0, 2.0], [3.0]]})
    pyarrow.parquet.write_table(ragged, tmp_path / "ragged.parquet")
    with pytest.raises(DataError, match=r"^vector must be vectors of one length in .*, got lengths \[2, 1\]$"):
        read_embeddings(tmp_path / "ragged.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "y": [0, 1]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match=r"^x must be vectors of one length in .*, got double$"):
        read_embeddings(tmp_path / "numbers.parquet")
    np.savez(tmp_path / "two.npz", x=VECTORS, features=VECTORS)
    with pytest.raises(DataError, match=r"two\.npz must have one of x and features, got both$"):
        read_embeddings(tmp_path / "two.npz")
