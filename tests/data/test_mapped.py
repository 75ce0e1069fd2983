"""Mapped files that change while they are used: it is noticed, and what would be a bus error is a sentence."""

import os
import subprocess
import sys

import numpy as np
import pytest

from likewise import data
from likewise.data.mapped import change_of, map_array
from tests.data.conftest import noise, save
from tests.training.conftest import ROOT


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5000, 10), dtype=np.float32))
    return tmp_path / "x.npy"


def test_an_undisturbed_file_has_not_changed_nor_has_an_array_in_memory(path):
    array = map_array(path)
    assert change_of(array) == change_of(array[3:].reshape(-1)) == change_of(np.asarray(array)) == ""
    assert change_of(np.array(array)) == change_of(np.ones(3)) == ""


def test_a_file_that_is_overwritten_in_place_is_noticed(path):
    array = map_array(path)
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    os.utime(path, ns=(1, 1))  # clocks may be too coarse to show that it was written just now
    for part in (array, array[2:], array.reshape(-1)):
        assert change_of(part) == f"{path} was written to after it was opened"


def test_a_file_of_another_size_is_noticed(path):
    array = map_array(path)
    os.truncate(path, 1000)
    assert change_of(array) == f"{path} had 200,128 bytes when it was opened, and has 1,000 now"


def test_a_file_that_is_replaced_by_another_is_still_the_one_that_is_mapped(path, tmp_path):
    array = map_array(path)
    np.save(tmp_path / "new.npy", np.zeros((3, 10), dtype=np.float32))
    (tmp_path / "new.npy").replace(path)
    assert change_of(array) == ""
    assert array[4999].tolist() == [1.0] * 10


@pytest.mark.parametrize("kind", ["vectors", "images", "series", "cached images"])
def test_what_is_opened_is_known_by_its_file(tmp_path, cache, kind):
    rows = {
        "vectors": np.ones((20, 3), dtype=np.float32),
        "images": noise(20, 8, 8, 3),
        "series": np.random.default_rng(0).normal(size=(20, 30, 2)).astype(np.float32),
        "cached images": noise(20, 8, 8, 3),
    }[kind]
    if kind == "cached images":
        source = save(tmp_path / "photos", **{str(i): image for i, image in enumerate(rows)})
        items = data.open(source)
        (file,) = cache.glob("*.npy")
    else:
        source = file = tmp_path / "x.npy"
        np.save(source, rows)
        items = data.open(source)
    assert change_of(items.array) == ""
    os.utime(file, ns=(1, 1))
    assert change_of(items.array) == f"{file} was written to after it was opened"


READER = """
import os, sys
import numpy as np
from likewise import data
items = data.open(sys.argv[1], progress=False)
os.truncate(sys.argv[2], 1000)
print(items[np.array([1, len(items) - 1])].sum())
"""


def test_bytes_that_are_gone_end_the_process_with_a_sentence(path):
    """As a process of its own, because it ends."""
    program = [sys.executable, "-c", READER, str(path), str(path)]
    read = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert (read.returncode, read.stdout) == (1, "")
    assert read.stderr == (
        f"likewise: the data cannot be read any more: {path} had 200,128 bytes when it was opened, and has 1,000 now\n"
    )


def test_whoever_handles_bus_errors_already_keeps_them(path):
    program = [sys.executable, "-X", "faulthandler", "-c", READER, str(path), str(path)]
    read = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert read.returncode < 0
    assert read.stderr.startswith("Fatal Python error: Bus error")
