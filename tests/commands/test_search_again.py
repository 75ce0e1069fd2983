"""`search` after items were added, changed or removed: only what is new or changed passes the network."""

import shutil

import numpy as np
import pytest

from likewise import data
from likewise.explorer.scene import Scene
from likewise.search import SearchError
from likewise.search.searcher import Searcher
from tests.commands.counted import CHANGES, add, change, picture


@pytest.fixture
def run_folder(photos, counted, tmp_path, monkeypatch):
    """A copy of the run, whose encoder is counted wherever a searcher loads it."""
    monkeypatch.setattr("likewise.search.searcher.load", lambda folder, trust: counted.encoder)
    return shutil.copytree(photos, tmp_path / "run")


def opened(counted, *arguments, **options):
    """Open a searcher, and return it with the number of rows that passed the network."""
    before = counted.rows
    return Searcher.open(*arguments, progress=False, **options), counted.rows - before


def assert_vectors(counted, searcher, source):
    vectors = counted.encoder.embed(source, progress=False).vectors
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(searcher.index.vectors, units, rtol=1e-4, atol=1e-5)


def saved(run):
    return sorted(path.name for path in (run / "search").iterdir())


@pytest.mark.parametrize("happens", CHANGES)
def test_only_what_is_new_or_changed_passes_the_network(counted, run_folder, pictures, happens):
    assert opened(counted, run_folder, pictures)[1] == 10
    happens(pictures)
    _, new, changed, _ = CHANGES[happens]
    searcher, rows = opened(counted, run_folder, pictures)
    assert rows == new + changed
    assert_vectors(counted, searcher, pictures)
    assert opened(counted, run_folder, pictures)[1] == 0
    assert len(saved(run_folder)) == 1, "the index of the earlier state is gone"


def test_the_explorer_shares_the_index(counted, run_folder, pictures):
    opened(counted, run_folder, pictures)
    add(pictures)
    before = counted.rows
    scene = Scene.open(run_folder, pictures)
    assert counted.rows - before == 2
    assert len(scene.drawn) == 12


def test_an_index_of_another_source_is_used_and_stays(counted, run_folder, pictures, tmp_path):
    opened(counted, run_folder, pictures)
    others = shutil.copytree(pictures, tmp_path / "others")
    add(others)
    searcher, rows = opened(counted, run_folder, others)
    assert rows == 2
    assert_vectors(counted, searcher, others)
    assert len(saved(run_folder)) == 2
    assert opened(counted, run_folder, pictures)[1] == 0


def test_an_index_of_another_kind_has_the_same_vectors(counted, run_folder, pictures):
    opened(counted, run_folder, pictures, kind="auto")
    assert opened(counted, run_folder, pictures, kind="flat")[1] == 0
    assert len(saved(run_folder)) == 2


def test_another_layer_is_embedded_from_the_start(counted, run_folder, pictures):
    opened(counted, run_folder, pictures)
    assert opened(counted, run_folder, pictures, layer="head")[1] == 10


def test_a_damaged_index_is_not_taken(counted, run_folder, pictures):
    opened(counted, run_folder, pictures)
    (path,) = run_folder.glob("search/*/vectors-*.npy")
    path.write_bytes(path.read_bytes()[::-1])
    add(pictures)
    searcher, rows = opened(counted, run_folder, pictures)
    assert rows == 12
    assert_vectors(counted, searcher, pictures)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_named_index_is_brought_up_to_date_and_stays_of_its_kind(counted, pictures, tmp_path, kind):
    folder = tmp_path / "index"
    assert opened(counted, counted.encoder, pictures, index=folder, kind=kind)[1] == 10
    change(pictures)
    searcher, rows = opened(counted, counted.encoder, pictures, index=folder)
    assert (searcher.index.kind, rows) == (kind, 1)
    assert_vectors(counted, searcher, pictures)
    assert opened(counted, counted.encoder, pictures, index=folder)[1] == 0
    assert len(list(folder.glob("vectors-*"))) == 1


def test_a_named_index_of_other_data_stays(counted, pictures, tmp_path):
    folder = tmp_path / "index"
    opened(counted, counted.encoder, pictures, index=folder)
    before = (folder / "index.json").read_bytes()
    for number in range(30, 40):
        picture(tmp_path / "others", f"{number}.png", number)
    with pytest.raises(SearchError, match=r"^the index in .* belongs to another encoder or other data, expected "):
        opened(counted, counted.encoder, tmp_path / "others", index=folder)
    assert (folder / "index.json").read_bytes() == before
    assert opened(counted, counted.encoder, pictures, index=folder)[1] == 0


def test_arrays_in_memory_do_not_take_each_others_place(counted, run_folder):
    pixels = data.open("shapes").array[:20]
    assert opened(counted, run_folder, pixels)[1] == 20
    assert opened(counted, run_folder, pixels[10:])[1] == 0
    assert len(saved(run_folder)) == 2
