"""Files that name the images of a folder: Hugging Face's metadata, columns by other names, other encodings, Windows."""

import json

import pytest

import likewise
from likewise import data
from likewise.training.plan import make_plan
from likewise.training.plan_lines import lines
from tests.data.conftest import plain, save

NAMES = ("a", "b", "deep/c", "d")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return save(tmp_path / "photos", a=plain(1), b=plain(2), deep__c=plain(3), d=plain(4))


def write(path, text, encoding="utf-8"):
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path.parent


def rows(columns, *values):
    """The text of a CSV file with a line for each image."""
    return "\n".join([f"file_name,{columns}", *(f"{name}.png,{v}" for name, v in zip(NAMES, values, strict=False))])


def skips(items):
    return [(skip.path, skip.reason) for skip in items.skipped]


def refused(source, **columns):
    with pytest.raises(data.DataError) as error:
        data.open(source, columns=columns or None)
    return str(error.value)


# Hugging Face's metadata


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_metadata_are_captions(photos, ending):
    text = rows("text", "a dog", "a cat", "a fox")
    if ending == "jsonl":
        cells = [
            {"file_name": f"{name}.png", "text": text}
            for name, text in zip(NAMES, ("a dog", "a cat", "a fox"), strict=False)
        ]
        text = "\n".join(map(json.dumps, cells))
    items = data.open(write(photos / f"metadata.{ending}", text))
    assert items.paths == ("a.png", "b.png", "deep/c.png")
    assert items.captions == (("a dog",), ("a cat",), ("a fox",))
    assert skips(items) == [("d.png", "no caption")]
    assert items.notes == ()


def test_metadata_in_each_split_name_images_from_there(tmp_path):
    save(tmp_path, train__cat__a=plain(1), train__dog__b=plain(2), test__cat__a=plain(3))
    write(tmp_path / "train/metadata.csv", "file_name,text\ncat/a.png,one\ndog/b.png,two\n../test/cat/a.png,more\n")
    write(tmp_path / "test/metadata.csv", "file_name,text\ncat/a.png,three\n../../secret.png,four\n")
    items = data.open(tmp_path)
    assert items.paths == ("test/cat/a.png", "train/cat/a.png", "train/dog/b.png")
    assert items.captions == (("three", "more"), ("one",), ("two",))
    assert items.test.tolist() == [True, False, False]
    assert (items.classes, items.labels.tolist()) == (("cat", "dog"), [0, 0, 1])
    assert skips(items) == [("../../secret.png", "outside the folder")]


@pytest.mark.parametrize("header", ["file_name,label", "id,text", "anything"])
def test_metadata_without_captions_change_nothing(photos, header):
    before = data.open(photos)
    items = data.open(write(photos / "metadata.csv", f"{header}\na.png,b\n"))
    assert (len(items), items.captions, items.fingerprint) == (4, None, before.fingerprint)


def test_metadata_of_something_else_beside_captions_are_said_and_not_read(photos):
    write(photos / "deep" / "metadata.csv", "sensor,value\nthermometer,21\n")
    items = data.open(write(photos / "metadata.csv", rows("text", "a dog", "a cat", "a fox")))
    assert items.captions == (("a dog",), ("a cat",), ("a fox",))
    why = "it has no columns of images and captions, or cannot be opened"
    assert items.notes == (f"deep/metadata.csv is not read: {why}",)


def test_a_captions_file_comes_before_metadata(photos):
    write(photos / "metadata.csv", rows("text", "x", "x", "x"))
    items = data.open(write(photos / "captions.csv", rows("caption", "a dog", "a cat")))
    assert items.captions == (("a dog",), ("a cat",))


def test_both_kinds_of_metadata_in_one_folder(photos):
    for name in ("metadata.csv", "metadata.jsonl"):
        write(photos / "deep" / name, "{}")
    assert refused("photos") == "expected one of metadata.jsonl and metadata.csv in photos/deep/, got both"


def test_metadata_beside_recordings_and_tables_are_not_captions(tmp_path):
    save(tmp_path, cover=plain(1))
    for name in ("1", "2"):
        write(tmp_path / f"{name}.csv", "x,y\n0.5,1.5\n1.5,0.5\n2.5,0.1\n")
    write(tmp_path / "metadata.csv", "file_name,text\ncover.png,a cover\n")
    assert data.open(tmp_path).kind == "sequence"


# Columns by other names


@pytest.mark.parametrize("name", ["captions.csv", "metadata.csv"])
def test_columns_by_any_name(photos, name):
    columns = "Title,words,kind,Who,split"
    values = ("a dog,pet,animal,p1,train", "a cat,,animal,p2,test", "a car,red,thing,p1,train", ",,thing,,train")
    write(photos / name, rows(columns, *values))
    roles = {"captions": "Title+words", "y": "kind", "group": "Who", "is_test": "split"}
    items = data.open(photos, columns=roles)
    assert items.captions == (("a dog", "pet"), ("a cat",), ("a car", "red"))
    assert (items.classes, items.labels.tolist()) == (("animal", "thing"), [0, 0, 1])
    assert items.groups.tolist() == [0, 1, 0]
    assert items.test.tolist() == [False, True, False]
    assert data.open(photos, columns=roles).groups.tolist() == [0, 1, 0], "as it comes from the cache"
    assert data.open(photos, columns={"captions": "words"}).captions == (("pet",), ("red",))


def test_labels_alone_leave_no_image_out(photos):
    write(photos / "metadata.csv", rows("label", "10", "9", "10"))
    items = data.open(photos, columns={"y": "label"})
    assert items.paths == ("a.png", "b.png", "d.png", "deep/c.png")
    assert items.labels.tolist() == [10, 9, -1, 10]
    assert (items.captions, items.skipped) == (None, ())


def test_labels_with_leading_zeros_are_names(photos):
    write(photos / "metadata.csv", rows("label", "01", "1", "10"))
    items = data.open(photos, columns={"y": "label"})
    assert (items.classes, items.labels.tolist()) == (("01", "1", "10"), [0, 1, -1, 2])


def test_the_column_of_images_by_another_name(photos):
    write(photos / "metadata.jsonl", "\n".join(json.dumps({"src": f"{n}.png", "text": n, "kind": 1}) for n in NAMES))
    assert len(data.open(photos, columns={"x": "src"}).captions) == 4


def test_lines_of_one_image_that_disagree(photos):
    write(photos / "captions.csv", rows("text,kind,who", "a,x,1", "b,y,2") + "\na.png,c,z,1\n")
    items = data.open(photos, columns={"y": "kind", "group": "who"})
    assert items.labels is None, "of two labels, one is left, which tells nothing apart"
    assert items.groups.tolist() == [1, 2]
    assert refused("photos", group="kind") == "kind must be the same in all lines of an image, got several for a.png"


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_columns_that_are_not_there(photos, ending):
    text = rows("text", "a", "b") if ending == "csv" else '{"file_name": "a.png", "text": "a"}\n'
    write(photos / f"metadata.{ending}", text)
    assert refused("photos", y="kind") == "expected a column of photos/ as y, one of file_name, text, got 'kind'"
    assert refused("photos", time="text") == "expected a column for one of captions, group, is_test, x, y, got 'time'"
    (photos / f"metadata.{ending}").unlink()
    assert refused("photos", y="kind").startswith("columns can be named in ")


def test_a_test_part_that_is_none(photos):
    write(photos / "captions.csv", rows("text,part", "a,train", "b,perhaps"))
    assert refused("photos", is_test="part") == (
        "part of photos/ must be true or false, or a split such as train or test, got 'perhaps'"
    )


# Encodings, separators and paths of Windows


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_western_encodings_are_read_and_said(photos, encoding, ending):
    texts = ("un café crème", "plain", "Ärger in Köln", "naïve")
    text = rows("caption", *texts)
    if ending == "jsonl":
        cells = [{"image": f"{name}.png", "caption": text} for name, text in zip(NAMES, texts, strict=True)]
        text = "\n".join(json.dumps(cell, ensure_ascii=False) for cell in cells)
    items = data.open(write(photos / f"captions.{ending}", text, encoding))
    assert {*items.captions} == {(text,) for text in texts}
    assert items.skipped == ()
    assert items.notes == (f"captions.{ending} is not UTF-8: it is read as Windows-1252, which includes Latin-1",)
    assert data.open(photos).notes == items.notes, "as it comes from the cache"


def test_signs_that_windows_has_and_latin_1_has_not(photos):
    items = data.open(write(photos / "captions.csv", rows("caption", "5 €", "“quoted”"), "cp1252"))
    assert items.captions == (("5 €",), ("“quoted”",))


@pytest.mark.parametrize(("text", "encoding"), [("кошка сидит", "cp1251"), ("一只猫在桌上", "gbk")])
def test_other_alphabets_are_not_guessed(photos, text, encoding):
    write(photos / "captions.csv", b"image,caption\na.png,one\nb.png,two\nd.png," + text.encode(encoding))
    items = data.open(photos)
    assert items.captions == (("one",), ("two",))
    assert ("captions.csv, line 4", "not UTF-8") in skips(items)
    assert items.notes == ()


def test_a_damaged_line_of_a_utf8_file_is_left_out(photos):
    text = rows("caption", "café", "crème", "là").encode() + b"\nd.png,caf\xe9\n"
    items = data.open(write(photos / "captions.csv", text))
    assert len(items) == 3
    assert ("captions.csv, line 5", "not UTF-8") in skips(items)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_semicolons_and_tabs(photos, delimiter):
    text = f"file_name{delimiter}text\na.png{delimiter}a dog, small\nb.png{delimiter}a cat\n"
    assert data.open(write(photos / "metadata.csv", text)).captions == (("a dog, small",), ("a cat",))


def test_paths_of_windows_are_read_and_said(photos, tmp_path):
    save(tmp_path, secret=plain(5))
    plain(6).save(photos / "odd\\name.png")
    names = ["deep\\c.png", ".\\a.png", "odd\\name.png", "..\\secret.png", "deep\\none.png", "b.png"]
    items = data.open(write(photos / "captions.csv", "\n".join(["image,caption", *(f"{name},x" for name in names)])))
    assert items.paths == ("a.png", "b.png", "deep/c.png", "odd\\name.png")
    assert items.notes == ("captions.csv names 2 images with backslashes, which are read as slashes",)
    assert skips(items)[:2] == [("../secret.png", "outside the folder"), ("deep/none.png", "not found")]


def test_training_says_how_captions_were_read(photos):
    for number in range(20):
        plain((10 * number, 0, 0)).save(photos / "deep" / f"{number}.png")
    lines_of = [f"deep\\{number}.png;un café {number}" for number in range(20)]
    write(photos / "metadata.csv", "\n".join(["file_name;text", *lines_of]), "cp1252")
    plan = make_plan("photos", None, {}, progress=False)
    said = [text.partition("\t")[2] for text in lines(plan, 2, 1, None, "cpu") if text.startswith("note\t")]
    assert said == [
        "metadata.csv is not UTF-8: it is read as Windows-1252, which includes Latin-1",
        "metadata.csv names 20 images with backslashes, which are read as slashes",
    ]
    settings = {"encoder.name": "resnet_tiny", "text.name": "text_tiny", "training.batch_size": 8, "data.workers": 0}
    run = likewise.train("photos", steps=2, out="run", settings=settings, progress=False)
    assert run.recipe.method == "clip"
    assert len(likewise.load("run").open(progress=False)) == 20
