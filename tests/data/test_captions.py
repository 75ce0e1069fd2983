"""Captions: of arrays, of a folder by its captions file, of shards; and what is left out, with its reason."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from likewise import data
from likewise.data import images
from tests.data.conftest import noise, plain, save

X = noise(4, 8, 8, 3)
DOGS = ["a dog", "a cat", "", "a  red\n fox "]


def skips(items):
    return [(skip.path, skip.reason) for skip in items.skipped]


def refused(source, **options):
    with pytest.raises(data.DataError) as error:
        data.open(source, **options)
    return str(error.value)


# Arrays


@pytest.mark.parametrize("store", ["in memory", "in a file"])
@pytest.mark.parametrize("kind", [str, bytes])
def test_items_without_a_caption_are_left_out_with_all_that_is_known_of_them(tmp_path, store, kind):
    texts = np.array(DOGS) if kind is str else np.array([text.encode() for text in DOGS])
    arrays = {"x": X, "captions": texts, "y": [0, 1, 2, 3], "group": [7, 8, 9, 7], "is_test": [0, 0, 1, 1]}
    np.savez(tmp_path / "x.npz", **arrays)
    items = data.open(arrays if store == "in memory" else tmp_path / "x.npz")
    assert items.captions == (("a dog",), ("a cat",), ("a red fox",))
    assert all(type(text) is str for texts in items.captions for text in texts)
    np.testing.assert_array_equal(items.array, X[[0, 1, 3]].transpose(0, 3, 1, 2))
    assert items.labels.tolist() == [0, 1, 3]
    assert items.groups.tolist() == [7, 8, 7]
    assert items.test.tolist() == [False, False, True]
    assert skips(items) == [("item 2", "no caption")]


def test_data_without_captions_have_none():
    assert data.open(X).captions is None
    assert data.open({"x": X, "title": DOGS}).captions is None


@pytest.mark.parametrize(
    "captions",
    [
        np.array([["a", "b"], ["c", ""], ["", " "], ["", "d"]]),
        np.array([[b"a", b"b"], [b"c", b"\xff"], [b"", b" "], [b"", b"d"]]),  # not UTF-8: no caption
        [["a", "b"], ["c"], [], ["d"]],
        np.array([["a", "b"], "c", None, ["d"]], dtype=object),
        [["a", "b"], "c", "\ud83d", "d"],  # half an emoji cannot be written
    ],
)
def test_several_captions_an_item(captions):
    items = data.open({"x": X, "captions": captions})
    assert items.captions == (("a", "b"), ("c",), ("d",))
    assert skips(items) == [("item 2", "no caption")]


def test_captions_by_another_key_and_by_several():
    source = {"x": X, "captions": ["no"] * 4, "title": DOGS, "keywords": ["dog, pet", "", "bird", ""]}
    assert data.open(source, columns={"captions": "title"}).captions == (("a dog",), ("a cat",), ("a red fox",))
    both = data.open(source, columns={"captions": "title+keywords"})
    assert both.captions == (("a dog", "dog, pet"), ("a cat",), ("bird",), ("a red fox",))
    assert both.skipped == ()


def test_a_key_of_captions_that_is_not_there():
    source = {"x": X, "title": DOGS}
    expected = "expected a column of arrays x, title as captions, one of title, x, got 'titel'"
    assert refused(source, columns={"captions": "titel"}) == expected
    assert refused(source, columns={"captions": "title+titel"}) == expected


def test_captions_of_a_train_and_a_test_part():
    source = {"x_train": X, "x_test": X[:2], "captions_train": DOGS, "captions_test": ["e", "f"]}
    items = data.open(source)
    assert items.captions == (("a dog",), ("a cat",), ("a red fox",), ("e",), ("f",))
    assert items.test.tolist() == [False] * 3 + [True] * 2
    whole = data.open({"x": X, "captions": DOGS, "x_test": X[:2], "captions_test": ["e", "f"]})
    assert whole.fingerprint == items.fingerprint
    del source["captions_test"]
    assert skips(data.open(source)) == [("item 2", "no caption"), ("item 4", "no caption"), ("item 5", "no caption")]


def test_captions_of_vectors_and_of_sequences():
    assert data.open({"x": np.eye(4), "captions": DOGS}).captions == (("a dog",), ("a cat",), ("a red fox",))
    sounds = {"audio": noise(8000, dtype=np.int16), "offsets": np.arange(0, 8001, 2000), "rate": 8000}
    clips = data.open(sounds | {"captions": DOGS})
    assert clips.captions == (("a dog",), ("a cat",), ("a red fox",))
    assert skips(clips) == [("clip 2", "no caption")]
    assert data.open(clips, rate=4000).captions == clips.captions
    series = data.open({"x": np.random.default_rng(0).standard_normal((4, 9, 2)), "captions": DOGS})
    assert skips(series) == [("series 2", "no caption")]


@pytest.mark.parametrize(
    ("captions", "sentence"),
    [
        (
            [1, 2, 3, 4],
            "captions must be strings of shape (n,) or (n, several), got (4,) of int64 in arrays x, captions",
        ),
        (
            [[["a"]]] * 4,
            "captions must be strings of shape (n,) or (n, several), got (4, 1, 1) of <U1 in arrays x, captions",
        ),
        ("a dog", "captions must be strings of shape (n,) or (n, several), got () of <U5 in arrays x, captions"),
        (["a", "b"], "captions must have one entry per item, 4 in arrays x, captions, got 2"),
        (["", " ", "\n", ""], "expected a caption for at least one item in arrays x, captions, got none"),
        (["", " ", "\n", "a"], "expected at least 2 items in arrays x, captions, got 1"),
    ],
)
def test_captions_that_cannot_be_used(captions, sentence):
    assert refused({"x": X, "captions": np.array(captions)}) == sentence


def test_several_keys_and_both_parts_must_have_one_entry_an_item():
    source = {"x": X, "a": DOGS, "b": DOGS[:2]}
    assert refused(source, columns={"captions": "a+b"}) == "b must have one entry per item, 4 in arrays x, a, b, got 2"
    source = {"x_train": X, "x_test": X, "captions_train": DOGS, "captions_test": DOGS[:3]}
    assert refused(source).startswith("captions_test must have one entry per item, 4 in ")


def test_the_fingerprint_follows_the_captions():
    def fingerprint(*captions):
        return data.open({"x": X[:2], "captions": list(captions)}).fingerprint

    known = fingerprint("a", "b")
    assert known == fingerprint(" a", "b\n")
    assert len({known, fingerprint("a", "c"), fingerprint("b", "a"), fingerprint(["a", "b"], "b")}) == 4
    assert fingerprint(["a", "b"], "c") != fingerprint("a", ["b", "c"])
    assert known != data.open(X[:2]).fingerprint


def test_items_at_another_size_keep_their_captions():
    items = data.open({"x": X, "captions": ["a", "b", "c", "d"]})
    small, other = data.open(items, size=4), data.open({"x": X, "captions": ["a", "b", "c", "e"]}, size=4)
    assert small.captions == items.captions
    np.testing.assert_array_equal(small.array, other.array)
    assert small.fingerprint != other.fingerprint


# Views


VIEWS = noise(3, 4, 8, 8, 3)


@pytest.mark.parametrize("layout", ["n, v, h, w, c", "n, v, c, h, w"])
def test_an_axis_of_views_becomes_rows_item_by_item(layout):
    x = VIEWS if layout.endswith("c") else VIEWS.transpose(0, 1, 4, 2, 3)
    known = {"y": ["a", "b", "a"], "is_test": [0, 1, 0], "captions": [["p", "q"], ["r", ""], ["s", "t"]]}
    items = data.open({"x": x, "views": ["Noto", "Twemoji", "OpenMoji", "Fluent"], **known})
    np.testing.assert_array_equal(items.array, VIEWS.reshape(12, 8, 8, 3).transpose(0, 3, 1, 2))
    assert items.labels.tolist() == [0] * 4 + [1] * 4 + [0] * 4
    assert items.test.tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert items.groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert items.captions == (("p", "q"),) * 4 + (("r",),) * 4 + (("s", "t"),) * 4
    assert items.paths[3:6] == ("item 0, Fluent", "item 1, Noto", "item 1, Twemoji")


def test_views_of_an_item_without_a_caption_are_left_out_once():
    items = data.open({"x": VIEWS, "captions": ["p", "", "s"], "views": list("abcd")})
    np.testing.assert_array_equal(items.array, VIEWS[[0, 2]].reshape(8, 8, 8, 3).transpose(0, 3, 1, 2))
    assert items.groups.tolist() == [0] * 4 + [2] * 4
    assert items.paths[4] == "item 2, a"
    assert skips(items) == [("item 1", "no caption")]


def test_the_group_of_views_is_their_item_unless_a_column_says_another():
    source = {"x": VIEWS, "group": [5, 5, 6], "kind": ["u", "v", "u"]}
    assert data.open(source).groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.open(source, columns={"group": "group"}).groups.tolist() == [5] * 8 + [6] * 4
    assert data.open(source, columns={"group": "kind"}).groups.tolist() == [0] * 4 + [1] * 4 + [0] * 4


@pytest.mark.parametrize("size", [None, 4])
def test_views_without_names_in_memory_and_in_files(tmp_path, size):
    np.save(tmp_path / "x.npy", VIEWS)
    np.savez(tmp_path / "x.npz", x=VIEWS)
    opened = [data.open(source, size=size) for source in (VIEWS, tmp_path / "x.npy", tmp_path / "x.npz")]
    assert len({items.fingerprint for items in opened}) == 1
    for items in opened:
        assert items.array.shape == (12, 3, size or 8, size or 8)
        assert items.groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert items.paths is None
        assert items.native == 8


def test_views_in_a_train_and_a_test_part():
    items = data.open({"x_train": VIEWS, "x_test": VIEWS[:1], "y_train": [0, 1, 2], "y_test": [0]})
    assert items.test.tolist() == [False] * 12 + [True] * 4
    assert items.labels[-5:].tolist() == [2, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"views": ["a", "b"]}, "views must name all 4 views of an item in arrays x, views, got 2"),
        ({"y": [0] * 12}, "labels must have one entry per item, 3 in arrays x, y, got 12"),
        ({"captions": ["a"] * 12}, "captions must have one entry per item, 3 in arrays x, captions, got 12"),
        ({"x": VIEWS[:1]}, "expected at least 2 items in arrays x, got 1"),
        ({"x": VIEWS[:, :0]}, "items must not be empty, got (3, 0, 8, 8, 3) in arrays x"),
    ],
)
def test_views_that_cannot_be_used(arrays, sentence):
    assert refused({"x": VIEWS} | arrays) == sentence


# Folders


@pytest.fixture
def photos(tmp_path):
    return save(tmp_path / "photos", a=plain(1), b=plain(2), deep__c=plain(3), d=plain(4))


def jsonl(folder, *lines):
    content = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (folder / "captions.jsonl").write_bytes(b"\n".join(content))
    return folder


def table(folder, text):
    (folder / "captions.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_folder_with_captions_jsonl(photos):
    lines = {"image": "deep/c.png", "caption": "c"}, {"image": "b.png", "captions": ["b", " ", "a  bee"]}
    items = data.open(jsonl(photos, *lines))
    assert items.paths == ("b.png", "deep/c.png")
    assert items.captions == (("b", "a bee"), ("c",))
    assert items.array[:, 0, 0, 0].tolist() == [2, 3]
    assert skips(items) == [("a.png", "no caption"), ("d.png", "no caption")]


def test_a_folder_with_captions_csv(photos):
    items = data.open(table(photos, 'image,caption\r\nb.png,"a ""b"", large"\r\n\r\na.png,a\r\nb.png,"a\nbee"\r\n'))
    assert items.paths == ("a.png", "b.png")
    assert items.captions == (("a",), ('a "b", large', "a bee"))
    assert skips(items) == [("d.png", "no caption"), ("deep/c.png", "no caption")]


@pytest.mark.parametrize("image", ["image", "path", "file", "file_name", "filename", "File_Name"])
@pytest.mark.parametrize("caption", ["caption", "captions", "text", "texts", "Caption"])
def test_names_of_the_columns(photos, image, caption):
    known = (("a",), ("b",))
    lines = [{"id": 1, image: "a.png", caption: "a"}, {"id": 2, image: "./deep/../b.png", caption: ["b"]}]
    assert data.open(jsonl(photos, *lines)).captions == known
    (photos / "captions.jsonl").unlink()
    assert data.open(table(photos, f"\ufeffid, {caption} ,{image}\n1,a,a.png\n2,b, b.png\n")).captions == known


def test_class_folders_of_captioned_images_are_labels(tmp_path):
    save(tmp_path, logo=plain(9), train__cat__a=plain(1), train__dog__b=plain(2), test__cat__c=plain(3))
    rows = ["train/cat/a.png,a", "train/dog/b.png,b", "test/cat/c.png,c"]
    items = data.open(table(tmp_path, "\n".join(["image,text", *rows])))
    assert items.classes == ("cat", "dog")
    assert items.labels.tolist() == [0, 0, 1]
    assert items.test.tolist() == [True, False, False]


def test_captioned_images_in_one_folder_have_no_labels(tmp_path):
    save(tmp_path, img__a=plain(1), img__b=plain(2))
    table(tmp_path, "image,caption\nimg/a.png,a dog\nimg/b.png,a cat\n")
    items = data.open(tmp_path)
    assert (items.labels, items.classes, items.captions) == (None, (), (("a dog",), ("a cat",)))


def test_what_cannot_be_used_of_captions_jsonl_is_counted_with_its_reason(photos, tmp_path):
    save(tmp_path, secret=plain(5), elsewhere__e=plain(6))
    (photos / "broken.png").write_text("no image")
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    (photos / "linked").symlink_to(tmp_path / "elsewhere")
    (photos / "notes.txt").touch()
    long = "x" * 300 + ".png"
    lines = [
        '{"image": "a.png", "caption": "ä"}'.encode(),
        {"image": "b.png", "caption": "b"},
        b"",
        b"{image: a.png}",
        b"[" * 100_000,
        b"7",
        {"caption": "whose?"},
        {"image": 7, "caption": "whose?"},
        b'{"image": "d.png", "caption": "caf\xe9"}',
        {"image": "a.png", "caption": "  "},
        {"image": "b.png", "captions": ["", "\ud83d"]},
        {"image": "deep/c.png"},
        *({"image": "missing.png", "caption": "m"} for _ in range(2)),
        {"image": "no\0file.png", "caption": "m"},
        {"image": long, "caption": "m"},
        {"image": "../secret.png", "caption": "s"},
        {"image": str(photos / "a.png"), "caption": "s"},
        {"image": "./link.png", "caption": "s"},
        {"image": "linked/e.png", "caption": "s"},
        {"image": "notes.txt", "caption": "n"},
        {"image": "broken.png", "caption": "n"},
    ]
    items = data.open(jsonl(photos, *lines))
    assert items.paths == ("a.png", "b.png")
    assert items.captions == (("ä",), ("b",))
    expected = {
        "captions.jsonl, line 4": "not JSON",
        "captions.jsonl, line 5": "not JSON",
        "captions.jsonl, line 6": "not a JSON object",
        "captions.jsonl, line 7": "no image",
        "captions.jsonl, line 8": "no image",
        "captions.jsonl, line 9": "not UTF-8",
        "captions.jsonl, line 10": "no caption",
        "captions.jsonl, line 11": "no caption",
        "captions.jsonl, line 12": "no caption",
        "missing.png": "not found",
        "no\0file.png": "not found",
        long[:200]: "not found",
        "../secret.png": "outside the folder",
        str(photos / "a.png"): "outside the folder",
        "link.png": "outside the folder",
        "linked/e.png": "outside the folder",
        "notes.txt": "hidden or not an image file",
        "d.png": "no caption",
        "broken.png": f"not an image of a known kind ({', '.join(images.FORMATS)})",
    }
    assert dict(skips(items)) == expected
    assert len(items.skipped) == len(expected)


def test_what_cannot_be_used_of_captions_csv_is_counted_with_its_reason(photos):
    rows = [
        b"image,caption",
        b"a.png,\xc3\xa4",
        b"b.png,caf\xe9",
        b"b.png,b, with a comma",
        b'b.png,"two',
        b'lines"',
        b"d.png",
        b",whose?",
        b"missing.png,m",
        b"d.png," + b"long " * 50_000,
        b"b.png,b",
    ]
    items = data.open(table(photos, b"\n".join(rows)))
    assert items.captions == (("ä",), ("two lines", "b"))
    assert skips(items) == [
        ("captions.csv, line 3", "not UTF-8"),
        ("captions.csv, line 4", "3 fields, not 2"),
        ("captions.csv, line 7", "no caption"),
        ("captions.csv, line 8", "no image"),
        ("captions.csv, line 10", "not CSV: field larger than field limit (131072)"),
        ("missing.png", "not found"),
        ("deep/c.png", "no caption"),
    ]


def test_links_within_the_folder_and_names_that_are_not_utf8(photos):
    (photos / "again").symlink_to(photos / "deep")
    (photos / "one.png").symlink_to(photos / "a.png")
    plain(7).save(photos / "\udcff.png")
    lines = [{"image": name, "caption": name[0]} for name in ("again/c.png", "one.png")]
    items = data.open(jsonl(photos, *lines, {"image": "\udcff.png", "caption": "odd"}))
    by_path = dict(zip(items.paths, items.captions, strict=True))
    assert by_path["one.png"] == ("o",)
    assert by_path["\udcff.png"] == ("odd",)
    assert len(by_path) == 3  # a folder with two names is read by one of them
    assert [path for path, _ in skips(items)] == ["a.png", "b.png", "d.png"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"captions.jsonl": b"{}", "captions.csv": b""},
            "expected one of captions.jsonl and captions.csv in photos/, got both",
        ),
        ({"captions.jsonl": b""}, "no image with a caption in photos/: a.png: no caption"),
        (
            {"captions.jsonl": b'{"image": "z.png", "caption": "z"}'},
            "no image with a caption in photos/: z.png: not found",
        ),
        (
            {"captions.jsonl": "{}".encode("utf-16")},
            "no image with a caption in photos/: captions.jsonl, line 1: not UTF-8",
        ),
        ({"captions.csv": b"image,caption"}, "no image with a caption in photos/: a.png: no caption"),
        (
            {"captions.csv": b""},
            "expected a column image, path, file, file_name or filename in photos/captions.csv, got nothing",
        ),
        (
            {"captions.csv": b"a.png,a\xffb"},
            "expected a column image, path, file, file_name or filename in photos/captions.csv, got a.png, aÿb",
        ),
        (
            {"captions.csv": b"image|caption\n"},
            "expected a column image, path, file, file_name or filename in photos/captions.csv, got image|caption",
        ),
        (
            {"captions.csv": b"image,comment\n"},
            "expected a column caption, captions, text or texts in photos/captions.csv, got image, comment",
        ),
        ({"captions.csv": b"image,caption\na.png,a\n"}, "expected at least 2 items in photos, got 1"),
    ],
)
def test_captions_files_that_cannot_be_used(photos, monkeypatch, files, sentence):
    monkeypatch.chdir(photos.parent)
    for name, content in files.items():
        (photos / name).write_bytes(content)
    assert refused("photos") == sentence


def test_a_captions_file_that_cannot_be_read(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    (photos / "captions.csv").symlink_to("nowhere")
    assert refused("photos") == "cannot read photos/captions.csv: no such file or directory"


def test_a_captions_file_without_any_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    jsonl(tmp_path / "photos")
    assert refused("photos/") == "no image with a caption in photos/: captions.jsonl is empty"


def test_captions_are_in_the_cache_and_a_changed_file_is_read_anew(photos, monkeypatch):
    jsonl(photos, *({"image": f"{name}.png", "caption": name} for name in "abd"))
    first = data.open(photos)
    with monkeypatch.context() as closed:
        closed.setattr(images, "decode", None)
        second = data.open(photos)
    assert (second.captions, second.skipped, second.fingerprint) == (first.captions, first.skipped, first.fingerprint)
    jsonl(photos, *({"image": f"{name}.png", "caption": name * 2} for name in "abd"))
    third = data.open(photos)
    assert third.captions == (("aa",), ("bb",), ("dd",))
    assert third.fingerprint != first.fingerprint


def test_a_cache_from_before_there_were_captions(photos, cache, monkeypatch):
    known = data.open(photos)
    record = next(cache.glob("*.json"))
    content = json.loads(record.read_text())
    assert content.pop("captions") is None
    record.write_text(json.dumps(content))
    monkeypatch.setattr(images, "decode", None)
    assert data.open(photos).fingerprint == known.fingerprint


# Shards


def png(value):
    content = io.BytesIO()
    plain((value, 0, 0)).save(content, "PNG")
    return content.getvalue()


def write_tar(path, members):
    with tarfile.open(path, "w") as shard:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            shard.addfile(member, io.BytesIO(content))
    return path


def test_captions_in_tar_shards(tmp_path):
    members = {f"{name}.png": png(place) for place, name in enumerate("abcdefg")}
    members |= {"a.txt": "\ufeffa  dog\n".encode(), "a.json": b'{"caption": "not this", "label": 3}'}
    members |= {"b.json": b'{"text": ["b", "bee"], "label": 0}', "c.json": b'{"caption": ""}', "d.txt": b"caf\xe9"}
    members |= {"f.json": b'{"caption": "f"}', "f.txt": b" ", "g.mask.txt": b"no caption", "README.txt": b"about"}
    items = data.open(write_tar(tmp_path / "x.tar", members))
    assert items.paths == ("x.tar/a.png", "x.tar/b.png", "x.tar/f.png")
    assert items.captions == (("a dog",), ("b", "bee"), ("f",))
    assert items.labels.tolist() == [3, 0, -1]
    assert skips(items) == [(f"x.tar/{name}.png", "no caption") for name in "cdeg"]
    assert data.open(tmp_path / "x.tar").captions == items.captions


def test_tar_shards_without_any_caption(tmp_path):
    items = data.open(write_tar(tmp_path / "x.tar", {"a.png": png(1), "b.png": png(2), "b.txt": b"\n", "c.txt": b"c"}))
    assert (len(items), items.captions, items.skipped) == (2, None, ())


@pytest.mark.parametrize("name", ["caption", "captions", "text", "Caption"])
@pytest.mark.parametrize(
    "column",
    [
        ["a dog", None, " a\ncat ", ""],
        pa.array(["a dog", None, " a\ncat ", ""]).dictionary_encode(),
        pa.array(["a dog", None, " a\ncat ", ""], pa.large_string()),
        [["a dog"], None, ["", "a cat"], []],
    ],
)
def test_captions_in_parquet(tmp_path, name, column):
    pq.write_table(pa.table({"image": [png(i) for i in range(4)], name: column}), tmp_path / "x.parquet")
    items = data.open(tmp_path / "x.parquet")
    assert items.captions == (("a dog",), ("a cat",))
    assert items.array[:, 0, 0, 0].tolist() == [0, 2]
    assert skips(items) == [("x.parquet#1", "no caption"), ("x.parquet#3", "no caption")]


def test_parquet_files_with_and_without_captions(tmp_path):
    rows = {"image": [png(1), png(2)], "label": [0, 1]}
    pq.write_table(pa.table(rows | {"caption": [1, 2], "text": ["a", "b"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")
    items = data.open(tmp_path)
    assert items.captions == (("a",), ("b",))  # numbers are no captions
    assert skips(items) == [("1.parquet#0", "no caption"), ("1.parquet#1", "no caption")]
    assert data.open(tmp_path / "1.parquet").captions is None
