"""Images in Parquet files: found, labelled, with columns by any name."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import likewise
from likewise import data
from tests.data.conftest import plain
from tests.data.test_shards import png, reds, write_parquet


def test_parquet_of_bytes_over_many_row_groups(tmp_path):
    write_parquet(tmp_path / "x.parquet", range(200), row_group_size=7, label=[i % 3 for i in range(200)])
    items = data.open(tmp_path / "x.parquet")
    assert reds(items) == [*range(200)]
    assert items.labels.tolist() == [i % 3 for i in range(200)]
    assert items.paths[:2] == ("x.parquet#0", "x.parquet#1")
    assert items.native == 8


def test_parquet_of_structs_as_hugging_face_writes_them(tmp_path):
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(4)]
    images[2]["bytes"] = None
    features = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    table = pa.table({"id": [b"q"] * 4, "img": images, "label": [0, 1, 1, None]})
    (tmp_path / "data").mkdir()
    for part in ("train", "test"):
        path = tmp_path / "data" / f"{part}-00000-of-00001.parquet"
        pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), path)
    plain(1).save(tmp_path / "logo.png")
    items = data.open(tmp_path / "data")
    assert reds(items) == [0, 1, 3, 0, 1, 3]
    assert items.labels.tolist() == [0, 1, -1] * 2
    assert items.classes == ("no", "yes")
    assert items.test.tolist() == [True] * 3 + [False] * 3
    assert [(skip.path, skip.reason) for skip in items.skipped] == [
        ("test-00000-of-00001.parquet#2", "no image in this row"),
        ("train-00000-of-00001.parquet#2", "no image in this row"),
    ]
    whole = data.open(tmp_path)  # two tables and one picture: the tables
    assert whole.test.tolist() == items.test.tolist()


def test_string_labels_in_parquet(tmp_path):
    write_parquet(tmp_path / "x.parquet", range(3), **{"class": ["dog", "cat", None]})
    items = data.open(tmp_path / "x.parquet")
    assert items.classes == ("cat", "dog")
    assert items.labels.tolist() == [1, 0, -1]


def test_parquet_without_images(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "x.parquet")
    with pytest.raises(data.DataError) as refused:
        data.open(tmp_path / "x.parquet")
    assert str(refused.value) == "expected a column of image bytes in x.parquet, got a (int64), b (string)"
    (tmp_path / "x.parquet").write_text("nothing of the kind")
    with pytest.raises(data.DataError, match=r"^cannot read x.parquet: "):
        data.open(tmp_path / "x.parquet")


# Columns by other names


def hugging_face(path, count=6, names=("no", "yes"), **columns):
    """Write images as Hugging Face does, with columns by names of one's own."""
    images = [{"bytes": png(40 * i), "path": f"{i}.png"} for i in range(count)]
    features = {"category": {"names": [*names], "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    known = {"category": [i % 2 for i in range(count)], "photographer": [f"p{i // 2}" for i in range(count)]}
    known |= {"split": ["train", "test", "validation"] * (count // 3), "title": [f"t{i}" for i in range(count)]}
    known |= {"words": [[f"w{i}", "w"] for i in range(count)], **columns}
    table = pa.table({"image": images, **known})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def refused(source, **columns):
    with pytest.raises(data.DataError) as error:
        data.open(source, columns=columns)
    return str(error.value)


def test_columns_by_any_name(tmp_path):
    source = hugging_face(tmp_path / "x.parquet")
    items = data.open(source, columns={"y": "category", "group": "photographer", "is_test": "split"})
    assert (items.classes, items.labels.tolist()) == (("no", "yes"), [0, 1, 0, 1, 0, 1])
    assert items.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert items.test.tolist() == [False, True, True] * 2
    assert items.captions is None
    bare = data.open(source)
    assert (bare.labels, bare.groups, bare.test) == (None, None, None)
    again = data.open(source, columns={"y": "category", "group": "photographer", "is_test": "split"})  # from the cache
    assert (again.groups.tolist(), again.fingerprint) == (items.groups.tolist(), items.fingerprint)
    assert again.fingerprint != bare.fingerprint


def test_captions_by_any_name_and_of_several_columns(tmp_path):
    source = hugging_face(tmp_path / "x.parquet")
    assert data.open(source, columns={"captions": "title"}).captions[1] == ("t1",)
    assert data.open(source, columns={"captions": "title+words"}).captions[1] == ("t1", "w1", "w")


def test_a_named_column_comes_before_one_with_the_usual_name(tmp_path):
    table = {"image": [png(1), png(2), png(3)], "thumb": [png(4), png(5), png(6)], "label": [0, 1, 0]}
    pq.write_table(
        pa.table(table | {"kind": ["b", None, "a"], "text": ["x"] * 3, "note": ["n", "", "m"]}), tmp_path / "x.parquet"
    )
    items = data.open(tmp_path / "x.parquet", columns={"x": "thumb", "y": "kind", "captions": "note"})
    assert reds(items) == [4, 6]
    assert (items.classes, items.labels.tolist()) == (("a", "b"), [1, 0])
    assert items.captions == (("n",), ("m",))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([3.0, None, 5.0], [3, -1, 5]),
        ([True, False, None], [1, 0, -1]),
        (["b", "a", ""], [1, 0, -1]),
        (pa.array(["b", "a", None]).dictionary_encode(), [1, 0, -1]),
    ],
)
def test_labels_of_any_type(tmp_path, column, expected):
    write_parquet(tmp_path / "x.parquet", range(3), kind=column)
    assert data.open(tmp_path / "x.parquet", columns={"y": "kind"}).labels.tolist() == expected


@pytest.mark.parametrize(
    "column", [[True, False, False], [1, 0, 0], ["test", "train", "Train"], ["val", "training", "0"]]
)
def test_test_parts_of_any_type(tmp_path, column):
    write_parquet(tmp_path / "test-x.parquet", range(3), part=column)
    assert data.open(tmp_path / "test-x.parquet", columns={"is_test": "part"}).test.tolist() == [True, False, False]


def test_columns_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hugging_face("x.parquet", split=["train", "test", "extra"] * 2)
    names = "category, image, photographer, split, title, words"
    assert refused("x.parquet", y="categories") == (
        f"expected a column of x.parquet as y, one of {names}, got 'categories'"
    )
    assert refused("x.parquet", time="split") == (
        "expected a column for one of captions, group, is_test, x, y, got 'time'"
    )
    assert refused("x.parquet", x="title") == "x must hold image bytes in x.parquet, got title of string"
    assert refused("x.parquet", captions="category") == "captions must hold text in x.parquet, got category of int64"
    assert refused("x.parquet", y="words").startswith(
        "y must hold whole numbers or text in x.parquet, got words of list<"
    )
    assert refused("x.parquet", is_test="split") == (
        "split of x.parquet must be true or false, or a split such as train or test, got 'extra'"
    )


def test_training_on_named_columns(tmp_path):
    source = hugging_face(tmp_path / "x.parquet", count=30)
    columns = {"y": "category", "is_test": "split"}
    settings = {"encoder.name": "resnet_tiny", "training.batch_size": 4, "data.workers": 0}
    run = likewise.train(
        source, method="simclr", columns=columns, steps=2, out=tmp_path / "run", settings=settings, progress=False
    )
    assert run.recipe.data.columns == "y=category,is_test=split"
    items = likewise.load(run.folder).open(progress=False)
    assert (items.classes, int(items.test.sum())) == (("no", "yes"), 20)
