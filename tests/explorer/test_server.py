"""What the explorer's server answers: maps, columns, neighbours, curves, exports."""

import csv
import io
import json
import os
import shutil
import struct

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from likewise.data import DataError
from likewise.evaluation.geometry import geometry, verdict
from likewise.explorer.columns import Table, made
from likewise.explorer.explorer import Explorer
from likewise.explorer.scene import Scene
from tests.explorer.conftest import COLOURS, EACH, image, serving, trained, until
from tests.maps import real_maps

COUNT = 3 * EACH + 1


def test_the_page_and_its_parts_come_from_here_and_nowhere_else(server):
    status, headers, page = server.ask("/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert b"http" not in page.replace(b"http-equiv", b"")
    for name in ("page.css", "explore.css", "parts.js", "charts.js", "points.js", "explore.js"):
        assert f"/page/{name}".encode() in page
        assert server.ask(f"/page/{name}")[0] == 200
    assert server.refusal("/page/server.py")[0] == 404


def test_every_item_has_a_place_on_the_map(server):
    points = np.frombuffer(server.ask("/points")[2], "<f4").reshape(-1, 2)
    ids = np.frombuffer(server.ask("/ids")[2], "<i4")
    assert ids.tolist() == list(range(COUNT))
    assert points.shape == (COUNT, 2)
    assert points.min() == 0
    assert points.max() == 1


def test_neighbours_lie_near_each_other_on_the_map(server):
    points = np.frombuffer(server.ask("/points")[2], "<f4").reshape(-1, 2)
    labels = np.frombuffer(server.ask("/column/0")[2], "<i4")
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (labels[apart.argmin(axis=1)] == labels).mean() > 0.9


def test_items_are_coloured_by_label_cluster_and_part(server):
    columns = {column["name"]: column["classes"] for column in server.json("/about")["columns"]}
    assert list(columns)[:3] == ["label", "cluster", "part"]
    assert columns["label"] == list(COLOURS)
    assert columns["part"] == ["trained on", "held out"]
    clusters = np.frombuffer(server.ask("/column/1")[2], "<i4")
    sizes = np.bincount(clusters)
    assert len(columns["cluster"]) == 3  # as many as there are classes
    assert (np.diff(sizes) <= 0).all()
    assert server.refusal("/column/9") == (404, "a column must be below 3, got 9")


def test_an_item_says_what_it_is(server):
    told = server.json(f"/item/{EACH}")
    assert (told["name"], told["file"]) == ("green/00 of #1.png", True)
    assert told["columns"]["label"] == "green"
    assert server.refusal(f"/item/{COUNT}") == (404, f"an id must be below {COUNT}, got {COUNT}")


def test_a_picture_is_the_item(server, photos):
    picture = Image.open(io.BytesIO(server.ask("/picture/0")[2]))
    with Image.open(photos / "blue" / "00 of #1.png") as original:
        assert np.array_equal(np.asarray(picture.resize((32, 32), Image.Resampling.NEAREST)), np.asarray(original))


def test_the_file_of_an_item_is_the_file(server, photos):
    status, headers, content = server.ask(f"/file/{EACH}")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert content == (photos / "green" / "00 of #1.png").read_bytes()


def test_neighbours_are_those_of_the_searcher(server):
    found = server.json("/like/7?k=5")
    assert found == server.explorer.scene.searcher.like(7, 5)
    assert 7 not in [item["id"] for item in found]
    assert server.explorer.scene.searcher.like("blue/07 of #1.png", 5) == found  # a path as it is told


@pytest.mark.parametrize("k", ["0", "-1", "101", "many", "0000000123", "9" * 5000])
def test_k_is_bounded(server, k):
    status, said = server.refusal(f"/like/7?k={k}")
    assert status == 400
    assert said.startswith("k must be a whole number from 1 to 100, got")


def test_an_uploaded_image_finds_those_like_it(server, photos):
    content = (photos / "red" / "05 of #1.png").read_bytes()
    found = server.json("/upload?k=3", method="POST", body=content)
    assert found[0]["path"] == "red/05 of #1.png"
    assert found[0]["similarity"] > 0.999


def test_a_run_without_words_finds_by_name(server):
    found = server.json("/find?words=GREEN")
    assert found["by"] == "name"
    assert [item["label"] for item in found["found"]] == ["green"] * EACH
    assert found["count"] == EACH
    assert server.refusal("/find?words=%20")[0] == 400
    assert server.refusal("/find?words=" + "a" * 1001)[0] == 400


def test_a_run_with_words_finds_by_them(captioned_server):
    assert captioned_server.json("/about")["words"] is True
    found = captioned_server.json("/find?words=a+red+square&k=4")
    assert found["by"] == "words"
    assert found["found"] == captioned_server.explorer.scene.searcher.like("a red square", 4)
    assert captioned_server.json("/item/2")["captions"] == ["a red square"]


def test_arrays_beside_the_items_are_columns(captioned_server):
    columns = {column["name"]: column["classes"] for column in captioned_server.json("/about")["columns"]}
    assert columns["number"] == ["0", "1", "2", "3"]  # few whole numbers are names
    assert columns["light"] is None  # and others a scale
    light = np.frombuffer(captioned_server.ask(f"/column/{list(columns).index('light')}")[2], "<f4")
    assert light.shape == (60,)
    assert np.ptp(light) > 1


def test_recordings_are_heard_and_found_by_a_file(recordings_server):
    about = recordings_server.json("/about")
    assert (about["takes"], about["heard"]) == ("audio", True)
    assert "seconds" in [column["name"] for column in about["columns"]]
    status, headers, sound = recordings_server.ask("/sound/3")
    assert (status, headers["content-type"]) == (200, "audio/wav")
    assert struct.unpack("<I", sound[24:28]) == (8000,)
    found = recordings_server.json("/upload?k=1", method="POST", body=sound)
    assert found[0]["id"] == 3
    status, said = recordings_server.refusal("/upload", method="POST", body=b"no sound", headers={"X-Name": "a.wav"})
    assert (status, said) == (400, "a.wav cannot be read: Format not recognised.")


def test_only_recordings_are_heard(server):
    assert server.refusal("/sound/3")[0] == 404


def test_chosen_items_are_exported_with_all_that_is_known(server):
    status, headers, text = server.ask("/export", method="POST", body=b"[0, 25]")
    assert status == 200
    assert headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert [(row["id"], row["path"], row["label"]) for row in rows] == [
        ("0", "blue/00 of #1.png", "blue"),
        ("25", "green/05 of #1.png", "green"),
    ]
    assert list(rows[0]) == ["id", "path", "label", "cluster", "part"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[61]", b"[-1]", b"[true]", b"[1.5]", b'["1"]', b"\xff", b"[" * 1_000])
def test_only_ids_are_exported(server, body):
    assert server.refusal("/export", method="POST", body=body) == (400, "the body must be a JSON list of ids below 61")


def test_every_id_is_exported_once(server):
    assert server.refusal("/export", method="POST", body=b"[3, 3]") == (400, "each id must occur only once")
    status, said = server.refusal("/export", method="POST", body=b"[" + b"0," * 1000 + b"0]")
    assert status == 413
    assert said.startswith("at most 0.00165 MiB are accepted")


def test_a_table_adds_columns_by_id_or_path(run, tmp_path):
    by_id, by_path = tmp_path / "ids.csv", tmp_path / "paths.csv"
    by_id.write_text("id,taken\n" + "".join(f"{i},{1900 + i}\n" for i in range(50)))
    by_path.write_text("path,who\nred/03 of #1.png,=Ann\nnowhere.png,Bob\n")
    with serving(run, table=Table.read(by_id)) as server:
        taken = np.frombuffer(server.ask("/column/3")[2], "<f4")
        assert taken[:50].tolist() == [1900 + i for i in range(50)]
        assert np.isnan(taken[50:]).all()
    with serving(run, table=Table.read(by_path)) as server:
        assert server.json("/about")["columns"][-1] == {"name": "who", "classes": ["=Ann"]}
        text = server.ask("/export", method="POST", body=b"[43, 44]")[2].decode()
        assert "'=Ann" in text  # not a formula, whatever opens it


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "name,x\na,1\n", "--table must have a column id or path and a row for each item, got name, x"),
        ("a.csv", "", "--table must have a column id or path and a row for each item, got none"),
        ("a.txt", "id,x\n0,1\n", "--table must be a .csv or .parquet file, got "),
        ("a.csv", "id,x\n900,1\n", "--table must name items of "),
        ("a.csv", "id,x\n0,1,2\n", "--table must have 2 cells in each row, got more in row 2 of "),
        ("a.csv", "id,x\n0,é\n", "--table must be readable as UTF-8 text, got "),
        ("a.parquet", "no", "--table must be a Parquet file, got "),
    ],
)
def test_a_table_of_something_else_is_refused(run, tmp_path, name, text, said):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="^" + said):
        Scene.open(run, table=Table.read(tmp_path / name))


def test_a_damaged_table_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": range(50), "score": range(50)}), path)
    content = bytearray(path.read_bytes())
    start = pyarrow.parquet.read_metadata(path).row_group(0).column(1).dictionary_page_offset
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^--table must be a Parquet file, got {path}: "):
        Table.read(path)


def test_the_map_is_kept(run, monkeypatch):
    with serving(run) as server:
        first = server.ask("/points")[2]
    monkeypatch.setattr("likewise.explorer.scene.laid_out", None)  # calling it would fail
    with serving(run) as server:
        assert server.ask("/points")[2] == first


def test_a_map_that_was_torn_is_made_anew(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    with serving(copy) as server:
        first = server.ask("/points")[2]
    (kept,) = (copy / "explore").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    with serving(copy) as server:
        assert server.ask("/points")[2] == first


def test_a_run_that_goes_on_shows_its_curves_and_later_its_map(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("encoder.safetensors", "explore"))
    rows = (copy / "metrics.jsonl").read_text().splitlines()
    first = json.loads(rows[0]) | {"step": 1, "fill": 0.5, "size": 64.0, "consistency": 0.9}
    (copy / "metrics.jsonl").write_text(json.dumps(first) + "\n")
    with serving(copy, ready=False) as server:
        before = server.json("/curves")
        assert (before["finished"], before["step"], before["rows"]) == (False, 1, 1)
        assert {"name": "filled", "value": 0.5, "most": 1} in before["meters"]
        assert server.json("/status")["ready"] is False
        assert server.refusal("/points") == (409, "The map will appear when the run is finished.")
        with (copy / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(first | {"step": 2, "loss": 1.25}) + '\n{"step": 3, "lo')  # being written
        after = server.json("/curves")
        assert (after["rows"], after["step"]) == (2, 2)
        assert after["charts"][0]["series"][0]["points"][-1] == [2, 1.25]
        shutil.copy(run / "encoder.safetensors", copy / "encoder.safetensors")
        until(lambda: server.json("/status")["ready"])
        assert server.json("/curves")["finished"] is True
        assert server.json("/about")["items"] == COUNT


def test_what_cannot_be_looked_at_is_said_on_the_page(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "encoder.safetensors").write_bytes(b"torn")
    with serving(copy, ready=False) as server:
        until(lambda: server.json("/status")["failed"])
        assert server.json("/status")["said"].startswith(f"the weights of {copy} cannot be read")
        assert server.json("/curves")["step"] == 3


def test_many_items_lie_between_landmarks(monkeypatch):
    from likewise.explorer import layout

    monkeypatch.setattr(layout, "LANDMARKS", 60)
    rng = np.random.default_rng(0)
    centres = np.eye(8)[:3]
    labels = np.arange(600) % 3
    units = centres[labels] + rng.normal(0, 0.05, (600, 8))
    units = (units / np.linalg.norm(units, axis=1, keepdims=True)).astype(np.float32)
    with real_maps():
        how, points = layout.laid_out(units)
    assert how.startswith("t-SNE of 60 items; the others lie between")
    middles = np.stack([points[labels == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(points[:, None] - middles, axis=2).argmin(axis=1)
    assert (nearest == labels).all()
    assert np.unique(layout.clusters(units, 3)).tolist() == [0, 1, 2]


def test_a_picture_of_another_size_and_mode_is_taken(server):
    file = io.BytesIO()
    image((40, 60, 200), np.random.default_rng(5), 100).convert("RGBA").save(file, "webp")
    found = server.json("/upload?k=3", method="POST", body=file.getvalue())
    assert {item["label"] for item in found} == {"blue"}


def test_numbers_keep_their_digits_and_gaps():
    (column,) = made("patient", [60_343_996 + i for i in range(30)])
    assert (column.classes, column.shown(1)) == (None, 60_343_997)
    for gap in (None, float("nan"), "NA", "", "null"):
        (column,) = made("weight", [gap, *(0.5 + i for i in range(30))])
        assert column.classes is None
        assert (column.shown(0), column.shown(1)) == (None, 0.5)
    assert made("few", [-1, 2, None, 2])[0].classes == ("-1", "2")
    assert made("nothing", [None, "", "NA"]) == []
    assert made("names", [f"name {i}" for i in range(3000)]) == []


def test_a_number_is_exported_as_it_is(run, tmp_path):
    (tmp_path / "t.csv").write_text("id,=score\n0,-1\n1,2\n2,-x\n")
    with serving(run, table=Table.read(tmp_path / "t.csv")) as server:
        text = server.ask("/export", method="POST", body=b"[0, 1, 2]")[2].decode()
    assert [row[-1] for row in csv.reader(text.splitlines())] == ["'=score", "-1", "2", "'-x"]


def test_a_table_has_a_label_of_its_own(run, tmp_path):
    (tmp_path / "t.csv").write_text("id,label\n0,mine\n")
    with serving(run, table=Table.read(tmp_path / "t.csv")) as server:
        assert [column["name"] for column in server.json("/about")["columns"]][-1] == "label (table)"


def test_names_that_are_no_text_are_told_all_the_same(tmp_path):
    rng = np.random.default_rng(0)
    for name in (b"b\xe9", b"plain"):
        folder = os.fsencode(tmp_path / "data") + b"/" + name
        os.makedirs(folder)
        for i in range(10):
            image((200, 10 * i, 40), rng).save(io.BytesIO(), "png")
            image((200, 10 * i, 40), rng).save(os.fsdecode(folder) + f"/{i}.png")
    with serving(trained(str(tmp_path / "data"), tmp_path / "run")) as server:
        assert server.json("/about")["columns"][0]["classes"] == ["b\udce9", "plain"]
        assert server.json("/item/0")["file"] is True
        assert server.ask("/file/0")[0] == 200
        assert b"b\\udce9/0.png" in server.ask("/export", method="POST", body=b"[0]")[2]


def test_vectors_have_pictures_of_their_own(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    np.savez(tmp_path / "v.npz", x=x, extra=np.array([{}] * 40, dtype=object))
    run = trained(str(tmp_path / "v.npz"), tmp_path / "run")
    with serving(run) as server:  # the array of objects is left alone
        pictures = [np.asarray(Image.open(io.BytesIO(server.ask(f"/picture/{i}")[2]))) for i in range(3)]
        assert all(picture.max() > picture.min() for picture in pictures)
        assert not np.array_equal(pictures[0], pictures[1])
        assert server.json("/about")["takes"] is None
        said = "vectors can only be searched by id, got the file the file"
        assert server.refusal("/upload", method="POST", body=b"x") == (400, said)


def test_a_long_run_is_told_in_a_thousand_points_and_read_once(run, tmp_path, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run")
    row = json.loads((copy / "metrics.jsonl").read_text().splitlines()[0])
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row | {"step": i}) + "\n" for i in range(5000)))
    with serving(copy) as server:
        points = server.json("/curves")["charts"][0]["series"][0]["points"]
        assert len(points) == 1000
        assert (points[0][0], points[-1][0]) == (0, 4999)
        monkeypatch.setattr(server.explorer, "_read_curves", None)  # calling it would fail
        assert server.json("/curves")["rows"] == 5000


def test_a_run_that_cannot_be_written_to_is_explored(run, tmp_path, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("search", "explore"))
    (copy / "search").write_text("in the way")
    (copy / "explore").write_text("in the way")
    with serving(copy) as server:
        assert server.json("/about")["items"] == COUNT


def test_every_refusal_is_json(server):
    assert server.refusal("/nothing") == (404, "Not Found")
    assert server.refusal("/upload") == (405, "Method Not Allowed")


# What makes an answer doubtful


def test_a_collapse_is_said_on_the_page_and_in_the_terminal(run, tmp_path):
    """Pictures that hardly differ have nearly the same embedding, whatever the encoder."""
    pixels = np.full((20, 32, 32, 3), 128, dtype=np.uint8)
    pixels[np.arange(20), np.arange(20), 0, 0] += 1
    np.save(tmp_path / "grey.npy", pixels)
    said = []
    explorer = Explorer(run, lambda say: Scene.open(run, tmp_path / "grey.npy", say=say), warn=said.append)
    until(lambda: explorer.scene is not None and said)
    words = verdict(geometry(torch.from_numpy(np.array(explorer.scene.searcher.index.vectors))))
    assert words.startswith("collapsed: nearly all items have the same embedding")
    assert explorer.about(explorer.scene)["doubt"] == words
    assert said == [f"note: {words}"]


def test_words_that_no_caption_had_are_named_beside_what_is_found(captioned_server):
    found = captioned_server.json("/find?words=a%20red%20zzz%20square%20qqq")
    assert found["note"] == "no training caption contains zzz, qqq, so the results for it mean nothing"
    assert found["found"]
    assert captioned_server.json("/find?words=a%20red%20square")["note"] is None
