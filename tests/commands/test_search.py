"""`search`: by file, id or words, over an index that is kept, and what neighbours tell of the data."""

import json
import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app
from likewise.commands import search as module
from likewise.commands.search import search
from likewise.evaluation.geometry import geometry, verdict
from likewise.search import Index, SearchError
from likewise.search.searcher import Searcher

TINY = {"encoder.name": "resnet_tiny", "training.batch_size": 32, "training.steps": 2, "data.workers": 0}


def command(*arguments):
    return CliRunner().invoke(app, ["search", *map(str, arguments)], env={"COLUMNS": "200"})


def units(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def searcher(run):
    return Searcher.open(run.folder, progress=False)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    return likewise.train("shapes", out=folder, settings=TINY, progress=False)


def test_an_id_finds_its_nearest_and_not_itself(run, searcher):
    vectors = units(run.encoder.embed("digits", progress=False).vectors)
    cosines = vectors @ vectors[7]
    cosines[7] = -2
    found = searcher.like(7, 5)
    assert [row["id"] for row in found] == np.argsort(-cosines, kind="stable")[:5].tolist()
    assert [row["similarity"] for row in found] == pytest.approx(np.sort(cosines)[::-1][:5].tolist(), abs=1e-4)
    assert [row["label"] for row in found] == [str(data.open("digits").labels[row["id"]]) for row in found]


def test_a_file_is_seen_as_the_items_are(searcher, tmp_path):
    """A digit's own picture, saved in colours, finds that digit first."""
    pixels = data.open("digits").array[11, 0]
    Image.fromarray(np.stack([pixels] * 3, axis=2)).save(tmp_path / "eleven.png")
    best = searcher.like(tmp_path / "eleven.png", 1)[0]
    assert best["id"] == 11
    assert best["similarity"] > 0.9999


def test_a_recording_finds_itself(tmp_path):
    run = likewise.train("sounds", out=tmp_path / "run", steps=1, batch_size=16, progress=False)
    clips = data.open("sounds")
    soundfile.write(tmp_path / "clip.wav", clips.array[clips.offsets[3] : clips.offsets[4], 0], clips.rate)
    best = search(run.folder, tmp_path / "clip.wav", k=1, progress=False)[0]
    assert (best["id"], best["label"]) == (3, clips.classes[clips.labels[3]])


def test_words_find_what_is_nearest_to_them(words):
    vectors = units(words.encoder.embed("shapes", progress=False).vectors)
    asked = units(words.encoder.embed_text(["a red star"]))[0]
    found = search(words.folder, "a red star", k=3, progress=False)
    assert [row["id"] for row in found] == np.argsort(-(vectors @ asked), kind="stable")[:3].tolist()
    assert found[0]["caption"] == data.open("shapes").captions[found[0]["id"]][0]


@pytest.mark.parametrize("query", ["gif", "a red star and " * 30], ids=["an ending", "longer than a file's name"])
def test_words_are_words(words, query):
    assert len(search(words.folder, query, k=2, progress=False)) == 2


def test_words_need_the_head(words):
    with pytest.raises(SearchError, match=r"^a search by words needs layer head, got backbone$"):
        search(words.folder, "a red star", layer="backbone", progress=False)


def test_a_folder_named_like_an_id_is_no_file(searcher, here):
    (here / "7").mkdir()
    assert searcher.like("7", 3) == searcher.like(7, 3)


@pytest.mark.parametrize("query", ["nowhere.jpg", "."])
def test_a_path_that_is_no_file_is_not_taken_for_words(words, query):
    with pytest.raises(SearchError, match=r"^QUERY must be an existing file, got "):
        search(words.folder, query, progress=False)


def test_the_index_is_kept_and_taken_again(run, tmp_path, monkeypatch):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    first = search(folder, 3, progress=False)

    def never(*arguments):
        raise AssertionError("embedded again")

    monkeypatch.setattr("likewise.encoders.known.features", never)
    assert search(folder, 3, progress=False) == first
    moved = shutil.move(folder, tmp_path / "moved")
    assert search(moved, 3, progress=False) == first


def test_an_index_of_another_encoder_is_refused(run, words, tmp_path):
    search(run.folder, 3, index=tmp_path / "index", progress=False)
    with pytest.raises(SearchError, match="belongs to"):
        search(words.folder, 3, index=tmp_path / "index", progress=False)
    with pytest.raises(SearchError, match="belongs to"):
        search(run.folder, 3, index=tmp_path / "index", layer="head", progress=False)


def test_another_kind_than_the_kept_one_is_refused(run, tmp_path):
    folder = tmp_path / "index"
    search(run.folder, 3, index=folder, kind="flat", progress=False)
    assert search(run.folder, 3, index=folder, progress=False), "auto takes what is there"
    again = "delete the folder or name another --index"
    with pytest.raises(SearchError, match=rf"^the index in {folder} must be hnsw, got flat: {again}$"):
        search(run.folder, 3, index=folder, kind="hnsw", progress=False)
    with pytest.raises(SearchError, match=r"^kind must be auto, flat, hnsw or ivfpq, got 'tree'$"):
        search(run.folder, 3, index=folder, kind="tree", progress=False)


def test_a_kind_that_cannot_be_is_refused_before_anything_is_embedded(run, tmp_path, monkeypatch):
    def never(*arguments):
        raise AssertionError("embedded")

    monkeypatch.setattr("likewise.encoders.known.features", never)
    options = {"index": tmp_path / "index", "progress": False}
    with pytest.raises(SearchError, match=r"^ivfpq needs at least 10,000 items, got 1,797"):
        search(run.folder, 3, kind="ivfpq", **options)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(data.DataError, match=r"^search needs faiss"):
        search(run.folder, 3, kind="hnsw", **options)


def test_an_encoder_stays_where_it_is(run, searcher, monkeypatch):
    """Whoever made it decides that."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    encoder = run.encoder
    assert search(encoder, 7, progress=False) == searcher.like(7)
    assert {value.device.type for value in encoder.state_dict().values()} == {"cpu"}


def test_duplicates_outliers_and_suspects(run, tmp_path):
    """A digit given twice, those least like their ten nearest, and one with a wrong label are what is found."""
    items = data.open("digits")
    pixels, labels = items.array[:300].copy(), items.labels[:300].copy()
    pixels[17] = pixels[4]
    wrong = int(np.flatnonzero(labels == 0)[5])
    labels[wrong] = 1
    np.savez(tmp_path / "digits.npz", x=pixels, y=labels)
    options = {"source": tmp_path / "digits.npz", "progress": False}
    assert {(4, 17)} == {
        tuple(item["id"] for item in group["items"]) for group in search(run.folder, duplicates=0.9999, **options)
    }
    cosines = units(run.encoder.embed(options["source"], progress=False).vectors)
    nearest = np.sort(cosines @ cosines.T - 3 * np.eye(300), axis=1)[:, -10:].mean(axis=1)
    lonely = search(run.folder, outliers=3, **options)
    assert [row["id"] for row in lonely] == np.argsort(nearest)[:3].tolist()
    found = search(run.folder, suspects=5, **options)
    assert (wrong, "1", "0") in [(row["id"], row["label"], row["suggested"]) for row in found]


def test_what_is_found_is_drawn(run, tmp_path):
    result = command(run.folder, 5, "-k", 4, "--grid", tmp_path / "found.png")
    assert result.exit_code == 0, result.output
    assert f"picture in {tmp_path / 'found.png'}" in result.stdout
    side = 64  # of 8, eightfold, so that it can be seen
    with Image.open(tmp_path / "found.png") as picture:
        assert picture.size == (4 * side + 3 * module.GAP, side)


def test_groups_are_drawn_on_rows_of_their_own_and_not_without_end(run, tmp_path, monkeypatch):
    pixels = data.open("digits").array[:20].copy()
    pixels[5:10], pixels[15:17] = pixels[0], pixels[1]
    np.save(tmp_path / "digits.npy", pixels)
    arguments = [run.folder, "--data", tmp_path / "digits.npy", "--duplicates", 0.99999, "-k", 4]
    side = 64 + module.GAP
    for most, rows, words in ((100, 3, ""), (2, 2, ", of the first 2 rows")):
        monkeypatch.setattr(module, "ROWS", most)
        result = command(*arguments, "--grid", tmp_path / "found.png")
        assert result.stdout.endswith(f"picture in {tmp_path / 'found.png'}{words}\n"), result.output
        with Image.open(tmp_path / "found.png") as picture:  # six of one and three of another, at most four a row
            assert picture.size == (4 * side - module.GAP, rows * side - module.GAP)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    ids = [("1", str(item)) for item in (0, 5, 6, 7, 8, 9)] + [("2", str(item)) for item in (1, 15, 16)]
    assert [tuple(line[:2]) for line in lines] == ids


def test_names_are_shown_as_they_are(words, tmp_path):
    """Neither Rich's markup nor always UTF-8."""
    odd = os.fsdecode(b"\xff")
    for place, name in enumerate(("a[b]/:smile:.png", "a[b]/[/b].png", f"c/{odd}.png")):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (0, 0, 80 * place)).save(tmp_path / "photos" / name)
    arguments = [words.folder, 0, "--data", tmp_path / "photos"]
    result = command(*arguments)
    assert result.exit_code == 0, result.exception
    assert "a[b]/[/b].png" in result.stdout
    assert r"c/\udcff.png" in result.stdout
    assert "a[b]/:smile:.png" in command(words.folder, 1, "--data", tmp_path / "photos").stdout
    rows = json.loads(command(*arguments, "--json").stdout)
    assert {row["path"] for row in rows} == {"a[b]/[/b].png", f"c/{odd}.png"}, "where the files are"


def test_it_prints_a_table_or_json(run):
    rows = json.loads(command(run.folder, 5, "-k", 2, "--json").stdout)
    shown = command(run.folder, 5, "-k", 2).stdout
    assert all(str(row["id"]) in shown and str(row["similarity"]) in shown for row in rows)
    groups = command(run.folder, "--duplicates", 1.0)
    assert groups.exit_code == 0, groups.output


MISTAKES = {
    "": "give exactly one of QUERY, duplicates, outliers and suspects, got none",
    "5 --outliers 3": "give exactly one of QUERY, duplicates, outliers and suspects, got QUERY and outliers",
    "99999": "an id must be below 1,797, got 99999",
    "dog": "QUERY must be a file or an item's id (words need a run of clip, or one on texts), got 'dog'",
    "broken.png": "broken.png cannot be read: ",
    "5 --kind tree": "kind must be auto, ",
    "5 -k 0": "k must be a whole number >= 1, got 0",
    "--outliers 3 -k 0": "k must be a whole number >= 1, got 0",
    "--suspects 3 -k -1 --grid found.png": "k must be a whole number >= 1, got -1",
    "5 --grid found.nothing": "the picture could not be written to found.nothing: ",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_end_in_one_sentence(run, here, arguments):
    (here / "broken.png").write_bytes(b"\x89PNG nothing else")
    result = command(run.folder, *arguments.split())
    assert result.exit_code == 1
    assert result.stderr.startswith(f"likewise: {MISTAKES[arguments]}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_kinds_can_be_named(run, tmp_path, kind):
    found = Searcher.open(run.folder, kind=kind, index=tmp_path / kind, progress=False)
    assert isinstance(found.index, Index)
    assert found.index.kind == kind
    assert found.like(7, 5)[0] == Searcher.open(run.folder, progress=False).like(7, 5)[0]


# What makes an answer doubtful


@pytest.fixture
def alike(tmp_path):
    """Pictures that hardly differ, and so have nearly the same embedding, whatever the encoder."""
    pixels = np.full((30, 8, 8), 128, dtype=np.uint8)
    pixels[np.arange(30), np.arange(30) % 8, np.arange(30) // 8] += 1
    np.save(tmp_path / "alike.npy", pixels)
    return tmp_path / "alike.npy"


def test_a_collapse_is_said_in_the_words_of_training(run, alike):
    said = []
    search(run.folder, 3, alike, progress=False, say=said.append)
    vectors = Searcher.open(run.folder, alike, progress=False).index.vectors
    assert said == [verdict(geometry(torch.from_numpy(np.array(vectors))))]
    assert said[0].startswith("collapsed: nearly all items have the same embedding (two items have a mean cosine of ")
    result = command(run.folder, 3, "--data", alike, "--json")
    assert result.stderr == f"note: {said[0]}\n"
    assert len(json.loads(result.stdout)) == 10, "what is found stays alone"


def test_embeddings_that_are_spread_out_need_no_note(searcher):
    vectors = np.random.default_rng(0).normal(size=(300, 32)).astype(np.float32)
    assert replace(searcher, index=Index.build(vectors, belongs_to="")).note_on_collapse() is None


def test_a_threshold_that_tells_nothing_apart_is_said(run, searcher, alike):
    said = []
    (group,) = search(run.folder, None, alike, duplicates=0.5, progress=False, say=said.append)
    assert len(group["items"]) == 30
    assert said[1:] == [
        "one group holds 30 of the 30 items; unless so many really are copies, the threshold of 0.5 is too low for "
        "this encoder: raise it (see docs/guide/reading-a-run.md#one-large-group-of-near-duplicates)"
    ]


@pytest.mark.parametrize(("sizes", "doubtful"), [([10, 2], False), ([11, 2], True), ([], False)])
def test_a_group_of_more_than_a_tenth_of_all_items_is_doubtful(sizes, doubtful):
    groups = [{"similarity": 0.9, "items": [{"id": place} for place in range(size)]} for size in sizes]
    assert (module.note_on_groups(groups, 0.9, 100) is not None) is doubtful


def test_words_that_no_caption_had_are_named(words, tmp_path):
    def notes(run, text):
        said = []
        assert search(run, text, k=1, progress=False, say=said.append)
        return [note for note in said if note.startswith("no training caption contains ")]

    assert notes(words.folder, "a red star") == []
    assert notes(words.folder, "zzz qqq") == [
        "no training caption contains zzz, qqq, so the results for it mean nothing"
    ]
    assert notes(words.folder, "A RED zzz!") == ["no training caption contains zzz, so the results for it mean nothing"]
    many = " ".join(f"z{number}" for number in range(15))
    assert notes(words.folder, many)[0].startswith(
        "no training caption contains z0, z1, z2, z3, z4, z5, z6, z7, z8, z9 and 5 more, so"
    )
    older = shutil.copytree(words.folder, tmp_path / "older")
    (older / "words.txt").unlink()
    assert notes(older, "zzz qqq") == []
