"""`.npy` and `.npz` files that promise what they do not hold, or hold more than a machine does."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from likewise import data
from likewise.data import archives, memory
from tests.data.conftest import noise, refused

X = noise(4, 8, 8)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def promising(path, shape, content=b"", descr="|u1"):
    """Write an array whose header says this shape."""
    with open(path, "wb") as file:
        npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        file.write(content)
    return path


def zipped(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.write(member)
    return path


LONG = "9" * 4000


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((10**30, 8), f"must hold ({10**30}, 8) of uint8, as its header says, got 64 bytes"),
        ((3, 8, 8), "must hold (3, 8, 8) of uint8, as its header says, got 64 bytes"),
        ((int(LONG), 8), f"must hold ({LONG[:99]}… of uint8, as its header says, got 64 bytes"),
        ((-1, 64), "the shape of {} must not be negative, got (-1, 64)"),
        ((-2, -32), "the shape of {} must not be negative, got (-2, -32)"),
    ],
    ids=["more than any machine has", "more than is there", "longer than a line", "negative", "negative twice"],
)
def test_a_header_that_promises_what_is_not_there(kind, shape, sentence):
    promising("x.npy", shape, bytes(64))
    what = "it" if kind == "npy" else "x"
    if kind == "npz":
        zipped("x.npz", "x.npy")
    sentence = sentence.format(what) if "{}" in sentence else f"{what} {sentence}"
    assert refused(f"x.{kind}") == f"cannot read x.{kind}: {sentence}"


def test_a_header_that_cannot_be_understood():
    np.save("x.npy", X)
    path = Path("x.npy")
    whole = path.read_bytes()
    for content in (
        whole[:9],
        whole[:50],
        whole.replace(b"'descr'", b"'decsr'"),
        whole.replace(b"|u1", b"|q9"),
        whole[:6],
    ):
        path.write_bytes(content)
        assert refused("x.npy").startswith("cannot read x.npy: ")
        assert refused(zipped("x.npz", "x.npy")).startswith("cannot read x.npz: ")


def patched(path, flags=None, method=None, size=None):
    """Change flags, method or size of the only member of an archive, where it begins and in the list at the end."""
    content = bytearray(Path(path).read_bytes())
    local, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")
    for start, places in ((local, (6, 8, 22)), (central, (8, 10, 24))):
        for place, value, kind in zip(places, (flags, method, size), ("<H", "<H", "<I"), strict=True):
            if value is not None:
                content[start + place : start + place + struct.calcsize(kind)] = struct.pack(kind, value)
    Path(path).write_bytes(content)


@pytest.fixture
def archive():
    """An archive of one compressed array, as numpy.savez_compressed writes it but for the sizes, which are in place."""
    np.save("x.npy", X)
    with zipfile.ZipFile("x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.write("x.npy")
    return "x.npz"


def test_an_encrypted_archive(archive):
    patched(archive, flags=1)
    sentence = "cannot read x.npz: x.npy is encrypted, expected an archive without password"
    assert refused(archive) == sentence


def test_a_compression_that_is_not_known(archive):
    patched(archive, method=97)
    assert refused(archive) == "cannot read x.npz: x.npy must be compressed as by numpy, got method 97"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_is_another_one(archive, method):
    patched(archive, method=method)
    assert refused(archive).startswith("cannot read x.npz: ")


@pytest.mark.parametrize("size", [0, 100, 200, 2**31])
def test_a_size_that_is_not_the_true_one(archive, size, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 40)
    patched(archive, size=size)
    assert refused(archive).startswith("cannot read x.npz: ")


def test_a_member_that_is_no_array():
    with zipfile.ZipFile("x.npz", "w") as file:
        file.writestr("x.npy", "no array")
        file.writestr("y", "nor this")
    assert refused("x.npz") == "cannot read x.npz: x is not an .npy array"


def test_an_array_that_grows_out_of_all_proportion(monkeypatch):
    monkeypatch.setattr(archives, "LARGE", 1 << 20)
    bomb = np.zeros((4, 1024, 1024), np.uint8)
    np.savez_compressed("x.npz", x=bomb)
    monkeypatch.setattr(npy, "read_array", lambda *_, **__: pytest.fail("it was read"))
    assert refused("x.npz") == (
        "cannot read x.npz: x.npy would grow from 0.0 MiB to 0.0 GiB, as a decompression bomb does; "
        "save it without compression, with numpy.savez"
    )


def test_the_same_array_without_compression_is_no_bomb(monkeypatch):
    monkeypatch.setattr(archives, "LARGE", 1 << 10)
    np.savez("x.npz", x=np.zeros((4, 32, 32), np.uint8))
    assert len(data.open("x.npz")) == 4
    np.savez_compressed("x.npz", x=noise(4, 32, 32))
    assert len(data.open("x.npz")) == 4


def test_arrays_that_do_not_fit_into_memory(monkeypatch):
    np.savez("x.npz", x=noise(4, 64, 64), other=np.zeros(10**6))
    np.save("vectors.npy", np.zeros((4, 4096)))
    np.save("series.npy", np.random.default_rng(0).normal(size=(4, 2048, 2)))
    assert len(data.open("x.npz")) == 4
    monkeypatch.setattr(memory, "free_memory", lambda: 10 << 10)
    assert refused("x.npz") == "x.npz would take about 16 KiB of memory, and 10 KiB are free"
    assert refused("vectors.npy") == "vectors.npy would take about 64 KiB of memory, and 10 KiB are free"
    assert refused("series.npy") == "series.npy would take about 64 KiB of memory, and 10 KiB are free"
    monkeypatch.setattr(memory, "free_memory", lambda: 20 << 10)
    assert len(data.open("x.npz")) == 4, "what nobody asked for does not count"


@pytest.mark.parametrize("order", ["<", ">"])
def test_characters_that_do_not_exist(tmp_path, order):
    captions = np.array(["a dog", "a cat"], dtype=f"{order}U5")
    captions.view(f"{order}u4")[3] = 0x110000
    np.savez(tmp_path / "x.npz", x=noise(2, 8, 8, 3), captions=captions)
    with pytest.raises(data.DataError, match=r"^captions of .*x\.npz must hold text, got invalid characters"):
        data.open(tmp_path / "x.npz")
