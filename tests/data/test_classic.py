"""MNIST's and CIFAR's own files; a pickle that would run something is refused."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest

from likewise import data
from likewise.data import memory
from tests.data.conftest import noise


def write_idx(path, array):
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture(params=["", ".gz"])
def mnist(request, tmp_path):
    for part, count in {"train": 6, "t10k": 3}.items():
        write_idx(tmp_path / f"{part}-images-idx3-ubyte{request.param}", noise(count, 28, 28, seed=count))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte{request.param}", np.arange(count, dtype=np.uint8))
    return tmp_path


def test_idx_folder(mnist):
    items = data.open(mnist)
    np.testing.assert_array_equal(
        items.array[:, 0], np.concatenate([noise(6, 28, 28, seed=6), noise(3, 28, 28, seed=3)])
    )
    assert items.labels.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert items.test.tolist() == [False] * 6 + [True] * 3


def test_one_idx_file_finds_its_labels(mnist):
    path = next(mnist.glob("t10k-images*"))
    items = data.open(path)
    assert items.labels.tolist() == [0, 1, 2]
    assert items.test is None
    next(mnist.glob("t10k-labels*")).unlink()
    assert data.open(path, size=14).labels is None


def test_a_cut_idx_file(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, noise(3, 4, 4))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(data.DataError, match=r"must hold 48 bytes for \(3, 4, 4\), got 47"):
        data.open(path)
    path.write_bytes(b"GIF89a")
    with pytest.raises(data.DataError, match="must start like an idx file of bytes, 00 00 08, got 47 49 46"):
        data.open(path)


def test_an_idx_file_that_holds_or_promises_too_much(tmp_path, monkeypatch):
    """What is compressed is unpacked no further than its header promises, and that has to fit."""
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = bytes([0, 0, 8, 3]) + struct.pack(">3i", 3, 4, 4) + bytes(100_000)
    path.write_bytes(gzip.compress(content))
    with pytest.raises(data.DataError, match=r"must hold 48 bytes for \(3, 4, 4\), got more$"):
        data.open(path)
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 30)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + b"\x7f\xff\xff\xff" * 3))
    with pytest.raises(data.DataError, match=r"would take about .* TiB of memory, and 1.0 GiB are free$"):
        data.open(path)
    for start in (b"", b"\0\0\x08", b"\0\0\x08\x03\0\0"):
        path.write_bytes(gzip.compress(start))
        with pytest.raises(data.DataError, match="must start like an idx file of bytes, 00 00 08, got "):
            data.open(path)


ROWS = noise(12, 3072)


def as_python_2(batch):
    """The same dictionary as Python 2 pickled it: text as byte strings, numpy by its old names."""
    content = pickle.dumps({key: value for key, value in batch.items() if key != "data"}, protocol=2)
    data_ = batch["data"]
    text = lambda value: b"U" + bytes([len(value)]) + value.encode()  # noqa: E731
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text("b") + b"tR"  # _reconstruct(...)
        b"(K\x01(J" + struct.pack("<i", len(data_)) + b"M" + struct.pack("<H", 3072) + b"t"  # version, shape
        b"cnumpy\ndtype\n(" + text("u1") + b"K\x00K\x01tR"  # dtype("u1", 0, 1)
        b"(K\x03" + text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        b"\x89T" + struct.pack("<i", data_.nbytes) + data_.tobytes() + b"tb"
    )
    assert content.endswith(b".")
    return content[:-1] + text("data") + array + b"s."


def python_3(batch):
    return pickle.dumps(batch)


@pytest.mark.parametrize("pickled", [python_3, as_python_2])
def test_cifar_10_in_python(tmp_path, pickled):
    for i in range(5):
        batch = {"data": ROWS[2 * i : 2 * i + 2], "labels": [i, i + 1], "batch_label": "x"}
        (tmp_path / f"data_batch_{i + 1}").write_bytes(pickled(batch))
    (tmp_path / "test_batch").write_bytes(pickled({"data": ROWS[10:], "labels": [0, 9]}))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"c%d" % i for i in range(10)]}))
    items = data.open(tmp_path)
    np.testing.assert_array_equal(items.array, ROWS.reshape(12, 3, 32, 32))
    assert items.labels.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 0, 9]
    assert items.test.tolist() == [False] * 10 + [True] * 2
    assert items.classes == tuple(f"c{i}" for i in range(10))


def test_cifar_100_in_python(tmp_path):
    for name, rows in {"train": ROWS[:8], "test": ROWS[8:]}.items():
        batch = {b"data": rows, b"fine_labels": [*range(len(rows))], b"coarse_labels": [0] * len(rows)}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": list("abcdefgh"), "coarse_label_names": ["z"]}))
    items = data.open(tmp_path, size=16)
    assert items.array.shape == (12, 3, 16, 16)
    assert items.labels.tolist() == [*range(8), *range(4)]
    assert items.classes == tuple("abcdefgh")
    assert items.test.sum() == 4


@pytest.mark.parametrize(("train", "test", "coarse"), [("data_batch_1", "test_batch", 0), ("train", "test", 1)])
def test_cifar_binary(tmp_path, train, test, coarse):
    labels = np.arange(12, dtype=np.uint8)[:, None]
    rows = np.concatenate([np.full((12, coarse), 7, np.uint8), labels, ROWS], axis=1)
    (tmp_path / f"{train}.bin").write_bytes(rows[:9].tobytes())
    (tmp_path / f"{test}.bin").write_bytes(rows[9:].tobytes())
    items = data.open(tmp_path)
    np.testing.assert_array_equal(items.array, ROWS.reshape(12, 3, 32, 32))
    assert items.labels.tolist() == [*range(12)]
    assert items.test.tolist() == [False] * 9 + [True] * 3


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "function", [os.system, eval, exec, getattr, __import__], ids=lambda function: function.__name__
)
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, protocol, function):
    trace = tmp_path / "trace"
    hostile = Hostile(function, f"open({str(trace)!r}, 'w')" if function is not os.system else f"touch {trace}")
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": hostile, "labels": []}, protocol=protocol))
    with pytest.raises(data.DataError, match=rf"is not a CIFAR batch: it would load \w+\.{function.__name__}$"):
        data.open(tmp_path)
    assert not trace.exists()


def test_names_inside_of_names_are_refused(tmp_path):
    content = b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.fromfile\x93."  # STACK_GLOBAL with a dotted name
    content = content.replace(b"\x0dndarray.fromfile", b"\x10ndarray.fromfile")
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(data.DataError, match=r"it would load numpy\.ndarray\.fromfile$"):
        data.open(tmp_path)


def test_a_damaged_batch_is_one_sentence(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}")
    with pytest.raises(data.DataError, match="data_batch_1 is not a CIFAR batch: "):
        data.open(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": ROWS[:, :9], "labels": [0] * 12}))
    with pytest.raises(data.DataError, match=r"must hold data of shape \(n, 3072\) of uint8, got \(12, 9\) of uint8"):
        data.open(tmp_path)
