"""An index comes back as it was, wherever its folder went, or is refused: of another encoder, altered, torn."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from likewise.search import Index, SearchError, files
from tests.search.clouds import clouds

KINDS = ["flat", "hnsw", "ivfpq"]
OWNER = "0123456789abcdef"
AGAIN = "delete the folder or name another --index"


@pytest.fixture(scope="module")
def indices():
    vectors = clouds(10_000, 8, 40)
    return {kind: Index.build(vectors, kind, belongs_to=OWNER) for kind in KINDS}


@pytest.fixture
def folder(tmp_path, indices, kind):
    indices[kind].save(tmp_path / "deep" / "kept")
    return tmp_path / "deep" / "kept"


def names(folder):
    return sorted(path.name.partition("-")[0] for path in folder.iterdir() if path.name != "index.lock")


def refusal(folder, owner=OWNER):
    with pytest.raises(SearchError) as error:
        Index.load(folder, owner)
    return str(error.value)


def large_file(folder, kind):
    (path,) = folder.glob("vectors-*" if kind == "flat" else "structure-*")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_wherever_its_folder_went(tmp_path, folder, indices, kind):
    index, queries = indices[kind], clouds(30, 8, 40, seed=1)
    assert names(folder) == ["index.json", *([] if kind == "flat" else ["structure"]), "vectors"]
    shutil.move(folder, tmp_path / "moved")
    found = Index.load(tmp_path / "moved", OWNER)
    assert (found.kind, found.belongs_to, len(found)) == (kind, OWNER, 10_000)
    assert isinstance(found.vectors, np.memmap)
    assert np.array_equal(found.vectors, index.vectors)
    for ours, theirs in zip(found.search(queries, 10), index.search(queries, 10), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["flat"])
def test_what_is_written_into_its_vectors_does_not_reach_the_disk(folder):
    Index.load(folder, OWNER).vectors[:] = 0
    assert Index.load(folder, OWNER).vectors.any()


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize(
    ("owner", "short"),
    [("fedcba9876543210", "fedcba987654"), (f"{OWNER} fedcba9876543210", "0123456789ab fedcba987654"), ("", "nothing")],
)
def test_another_encoder_is_refused(folder, owner, short):
    assert refusal(folder, owner) == (
        f"the index in {folder} belongs to another encoder or other data, expected {short}, got 0123456789ab: {AGAIN}"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [0, 0.1, 0.5, 0.999])
def test_an_altered_byte_is_refused(folder, kind, where):
    path = large_file(folder, kind)
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(data)
    assert refusal(folder) == f"{path} is damaged, its SHA-256 is not the recorded one: {AGAIN}"


@pytest.mark.parametrize("kind", ["flat"])
def test_any_altered_byte_of_the_json_is_refused(folder):
    path = folder / "index.json"
    data = path.read_bytes()
    for place in range(0, len(data), 3):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert refusal(folder) == (f"the index in {folder} is damaged, its JSON has another SHA-256: {AGAIN}")
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        assert "damaged" in refusal(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [0, 100])
def test_a_torn_file_is_refused(folder, kind, left):
    path = large_file(folder, kind)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:left])
    assert refusal(folder) == f"{path} is incomplete, expected {size} bytes, got {left}: {AGAIN}"


@pytest.mark.parametrize("kind", ["hnsw"])
@pytest.mark.parametrize("name", ["vectors", "structure"])
def test_a_missing_file_is_refused(folder, name):
    next(folder.glob(f"{name}-*")).unlink()
    assert refusal(folder) == f"the index in {folder} cannot be read: no such file or directory: {AGAIN}"


@pytest.mark.parametrize("kind", ["hnsw"])
def test_faiss_sees_no_byte_that_was_not_written_by_it(folder, kind, monkeypatch):
    monkeypatch.setattr(files.structures, "read", lambda *_: pytest.fail("it was handed to FAISS"))
    path = large_file(folder, kind)
    path.write_bytes(path.read_bytes()[::-1])
    assert "damaged" in refusal(folder)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize(("key", "value"), [("n", 9_999), ("d", 9)])
def test_rows_of_another_shape_are_refused(folder, key, value):
    assert_refused_when(folder, key, value)


@pytest.mark.parametrize("kind", ["hnsw"])
def test_a_structure_of_another_kind_is_refused(folder):
    assert_refused_when(folder, "kind", "ivfpq")


def assert_refused_when(folder, key, value):
    """The JSON says so, and its own digest is right."""
    path = folder / "index.json"
    about = json.loads(path.read_bytes())["index"] | {key: value}
    path.write_bytes(files._document(json.dumps(about).encode()))
    assert refusal(folder) == f"the index in {folder} cannot be read by the installed FAISS and NumPy: {AGAIN}"


@pytest.mark.parametrize("kind", ["flat"])
def test_a_name_in_the_json_leads_nowhere_else(folder, tmp_path):
    outside = tmp_path / "vectors.npy"
    shutil.copy(next(folder.glob("vectors-*")), outside)
    path = folder / "index.json"
    about = json.loads(path.read_bytes())["index"]
    about["files"]["vectors"]["file"] = str(outside)
    path.write_bytes(files._document(json.dumps(about).encode()))
    assert "no such file" in refusal(folder)


def test_no_index_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^index not found: {tmp_path / 'index.json'}$"):
        Index.load(tmp_path, OWNER)


@pytest.mark.parametrize("kind", ["hnsw"])
def test_a_new_index_takes_the_place_of_the_old_and_leaves_others_files_alone(folder, indices):
    (folder / "notes-000000000000.npy").write_bytes(b"mine")
    (folder / "vectors.99999.tmp").write_bytes(b"left by a killed writer")
    old = Index.load(folder, OWNER)
    Index.build(clouds(50, 8, 40, seed=5), belongs_to="new").save(folder)
    assert names(folder) == ["index.json", "notes", "vectors"]
    assert len(Index.load(folder, "new")) == 50
    assert np.array_equal(old.vectors, indices["hnsw"].vectors)  # still mapped
    old.save(folder)
    assert names(folder) == ["index.json", "notes", "structure", "vectors"]
    assert len(Index.load(folder, OWNER)) == 10_000


@pytest.mark.parametrize("kind", ["flat"])
def test_an_index_saved_over_itself_is_the_same(folder):
    index = Index.load(folder, OWNER)
    before = sorted(path.name for path in folder.iterdir())
    index.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert np.array_equal(Index.load(folder, OWNER).vectors, index.vectors)


@pytest.mark.parametrize("kind", ["hnsw"])
@pytest.mark.parametrize("at", range(6))
def test_a_writer_that_dies_leaves_the_old_index_whole(folder, indices, at, monkeypatch):
    """Killed before any flush or rename, the index before is still there; after the last rename, the new one is."""
    seen = []

    def dies(*args, real):
        seen.append(args)
        if len(seen) == at + 1:
            raise KeyboardInterrupt
        return real(*args)

    new = Index.build(indices["hnsw"].vectors[:200], "hnsw", belongs_to="new")
    monkeypatch.setattr(os, "fsync", lambda *args, real=os.fsync: dies(*args, real=real))
    monkeypatch.setattr(Path, "replace", lambda *args, real=Path.replace: dies(*args, real=real))
    with pytest.raises(KeyboardInterrupt):
        new.save(folder)
    monkeypatch.undo()
    assert len(seen) == at + 1
    assert len(Index.load(folder, OWNER)) == 10_000
    new.save(folder)
    assert names(folder) == ["index.json", "structure", "vectors"]
    assert len(Index.load(folder, "new")) == 200


@pytest.mark.parametrize("kind", ["hnsw"])
def test_a_full_disk_is_one_sentence_and_leaves_the_old_index(folder, tmp_path, kind):
    """Files that may not grow: the rows do not fit, and then what FAISS made of them."""
    code = (
        "import resource, signal, sys\n"
        "from likewise.search import Index\n"
        "from tests.search.clouds import clouds\n"
        "new = Index.build(clouds(5000, 8, 4), 'hnsw', belongs_to='new')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "for limit in (40_000, 170_000):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "    try: new.save(sys.argv[1])\n"
        "    except OSError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert run.stdout == 2 * f"the index could not be written to {folder}: file too large\n"
    assert names(folder) == ["index.json", "structure", "vectors"]
    assert len(Index.load(folder, OWNER)) == 10_000


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    index = Index.build(clouds(5, 3, 1), belongs_to=OWNER)
    with pytest.raises(
        OSError, match=f"^the index could not be written to {tmp_path / 'file' / 'kept'}: not a directory$"
    ):
        index.save(tmp_path / "file" / "kept")


def test_an_index_that_needs_faiss_says_so_when_it_is_loaded(tmp_path, indices, monkeypatch):
    indices["hnsw"].save(tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ValueError, match=r"^search needs faiss: pip install 'likewise\[search\]'$"):
        Index.load(tmp_path, OWNER)
