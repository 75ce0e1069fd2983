"""The cache: decoded once, whole or not at all, one writer at a time."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from filelock import FileLock

from likewise import data
from likewise.data import cache as caching
from likewise.data import images
from tests.data.conftest import noise, plain, save


@pytest.fixture
def photos(tmp_path):
    return save(tmp_path / "photos", **{f"{i:02}": noise(16, 16, 3, seed=i) for i in range(40)})


@pytest.fixture
def decoded(monkeypatch):
    """The calls of the decoder so far."""
    calls = []
    decode = images.decode
    monkeypatch.setattr(images, "decode", lambda *given: calls.append(given[1]) or decode(*given))
    return calls


def test_a_second_opening_decodes_nothing(photos, decoded):
    first = data.open(photos)
    assert len(decoded) == 40
    second = data.open(photos)
    assert len(decoded) == 40
    assert isinstance(second.array, np.memmap)
    np.testing.assert_array_equal(first.array, second.array)
    assert first.fingerprint == second.fingerprint
    assert (first.paths, first.native) == (second.paths, second.native)


def test_the_default_size_given_by_hand_is_the_same_entry(photos, decoded):
    assert data.open(photos, size=data.open(photos).array.shape[-1]).array.shape[-1] == 16
    assert len(decoded) == 40


def test_another_size_is_another_entry(photos, decoded):
    data.open(photos)
    assert data.open(photos, size=8).array.shape == (40, 3, 8, 8)
    assert len(decoded) == 80


def test_a_changed_file_is_decoded_anew(photos):
    first = data.open(photos)
    plain((1, 2, 3), 16).save(photos / "07.png")
    second = data.open(photos)
    assert second.array[7, :, 0, 0].tolist() == [1, 2, 3]
    assert second.fingerprint != first.fingerprint


def test_a_touched_file_is_decoded_anew_to_the_same_fingerprint(photos, decoded):
    first = data.open(photos)
    os.utime(photos / "07.png", ns=(1, 1))
    assert data.open(photos).fingerprint == first.fingerprint
    assert len(decoded) == 80


def test_another_decoder_is_another_entry(photos, decoded, monkeypatch):
    data.open(photos)
    monkeypatch.setattr(caching, "DECODER", images.DECODER + 1)
    data.open(photos)
    assert len(decoded) == 80


def test_what_was_skipped_is_remembered(photos, decoded):
    (photos / "05.png").write_text("no")
    for _ in range(2):
        items = data.open(photos)
        assert len(items) == 39
        assert [skip.path for skip in items.skipped] == ["05.png"]
        assert items.paths[5] == "06.png"
        np.testing.assert_array_equal(items.array[5], noise(16, 16, 3, seed=6).transpose(2, 0, 1))
    assert len(decoded) == 40


def test_a_failing_drive_is_not_remembered_as_damaged_images(photos, cache, monkeypatch):
    def failing(*given):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failure:
        failure.setattr(images, "decode", failing)
        with pytest.raises(OSError, match="Input/output error"):
            data.open(photos)
    assert not [path for path in cache.iterdir() if path.suffix in (".npy", ".json", ".tmp")]
    assert len(data.open(photos)) == 40


def test_the_place_of_the_cache(photos, tmp_path, cache):
    data.open(photos, cache=tmp_path / "given")
    assert list((tmp_path / "given").glob("*.npy"))
    assert not list(cache.iterdir())
    data.open(photos)
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".lock", ".lock", ".note", ".npy"]


@pytest.mark.parametrize("damage", ["short", "no rows", "torn JSON", "no JSON"])
def test_a_damaged_entry_is_made_anew(photos, decoded, cache, damage):
    known = np.array(data.open(photos).array)
    rows, record = next(cache.glob("*.npy")), next(cache.glob("*.json"))
    if damage == "short":
        rows.write_bytes(rows.read_bytes()[:-1])
    elif damage == "no rows":
        rows.unlink()
    elif damage == "torn JSON":
        record.write_text(record.read_text()[:50])
    else:
        record.unlink()
    np.testing.assert_array_equal(data.open(photos).array, known)
    assert len(decoded) == 80


def test_a_full_disk_is_one_sentence_and_leaves_nothing(photos, cache, monkeypatch):
    def full(self, pixels):
        with caching._writing(self.place):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching._Writer, "append", full)
    with pytest.raises(OSError, match="cannot write") as refused:
        data.open(photos)
    sentence = f"cannot write the cache in {cache}: no space left on device; set LIKEWISE_CACHE to another folder"
    assert str(refused.value) == sentence
    assert refused.value.errno == errno.ENOSPC
    assert not [path for path in cache.iterdir() if path.suffix in (".npy", ".json", ".tmp")]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_at_the_very_end(photos, cache, monkeypatch):
    class Full(caching._Writer):
        def __post_init__(self):
            super().__post_init__()
            self.file.close()
            # all fits the buffer, and is refused when that is written out
            self.file = open("/dev/full", "wb", buffering=1 << 20)  # noqa: SIM115

    monkeypatch.setattr(caching, "_Writer", Full)
    with pytest.raises(OSError, match="no space left on device"):
        data.open(photos)
    assert not [path for path in cache.iterdir() if path.suffix in (".npy", ".json", ".tmp")]


def test_a_cache_that_cannot_be_made_is_one_sentence(photos, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        OSError, match=r"^cannot write the cache in .*file/below: not a directory; set LIKEWISE_CACHE to"
    ):
        data.open(photos, cache=tmp_path / "file" / "below")


def test_an_interrupted_writer_leaves_nothing(photos, cache, monkeypatch):
    def interrupted(self, record):
        raise KeyboardInterrupt

    monkeypatch.setattr(caching._Writer, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.open(photos)
    assert not [path for path in cache.iterdir() if path.suffix in (".npy", ".json", ".tmp")]


OPENER = """
import os, signal, sys, time
from likewise import data
from likewise.data import images
decode, log, slow, deadly = images.decode, sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
count = [0]
def watched(*given):
    count[0] += 1
    if count[0] == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(slow)
    with open(log, "a") as file:
        file.write(".")
    return decode(*given)
images.decode = watched
print(data.open(sys.argv[1], progress=False).fingerprint)
"""


def opener(photos, log, slow=0.0, deadly=0):
    arguments = [sys.executable, "-c", OPENER, str(photos), str(log), str(slow), str(deadly)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_two_processes_decode_once(photos, tmp_path, decoded):
    running = [opener(photos, tmp_path / "log", slow=0.02) for _ in range(2)]
    found = [process.communicate(timeout=600)[0].strip() for process in running]
    assert (tmp_path / "log").read_text() == "." * 40
    assert found[0] == found[1] == data.open(photos).fingerprint
    assert not decoded


def test_three_threads_decode_once(photos, decoded):
    found = []
    threads = [threading.Thread(target=lambda: found.append(data.open(photos).fingerprint)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 3
    assert len(decoded) == 40


def test_a_killed_writer_leaves_nothing_that_is_taken_for_whole(photos, tmp_path, cache, decoded):
    killed = opener(photos, tmp_path / "log", deadly=30)
    killed.communicate(timeout=600)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(cache.glob("*.tmp"))) == 1
    assert not list(cache.glob("*.npy"))
    assert len(data.open(photos)) == 40
    assert len(decoded) == 40
    assert not list(cache.glob("*.tmp"))


def test_what_a_killed_writer_left_goes_when_other_data_are_opened(photos, tmp_path, cache):
    killed = opener(photos, tmp_path / "log", deadly=30)
    killed.communicate(timeout=600)
    (left,) = cache.glob("*.tmp")
    os.utime(photos / "07.png", ns=(1, 1))  # its entry has another key now, so nobody will write the old one again
    data.open(photos)
    assert not left.exists()


def test_what_a_living_writer_has_not_finished_stays_and_so_do_files_of_others(photos, cache):
    unfinished, others = cache / f"{'a' * 40}.123.tmp", cache / "thesis.tmp"
    unfinished.touch()
    others.touch()
    with FileLock(cache / f"{'a' * 40}.lock"):
        data.open(photos)
    assert unfinished.exists()
    data.open(photos)
    assert not unfinished.exists()
    assert others.exists()


def test_an_entry_is_an_ordinary_npy_file_and_json(photos, cache):
    items = data.open(photos)
    np.testing.assert_array_equal(np.load(next(cache.glob("*.npy"))), items.array)
    record = json.loads(next(cache.glob("*.json")).read_text())
    assert record["paths"] == list(items.paths)
    assert record["source"] == str(photos)
