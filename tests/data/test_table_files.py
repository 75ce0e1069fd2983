"""CSV and Parquet files as people have them: other delimiters, other decimals, damaged, and far too large."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from likewise import data
from likewise.data import memory, table_files
from likewise.data.embeddings import read_embeddings
from tests.data.conftest import plain, refused

PLAIN = "id,temperature,pressure\na,1.5,-2.25\na,2.5,3\nb,-0.5,7\nb,10,0.125\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", ";").replace(".", ","),
        PLAIN.replace(",", "\t").replace(".", ","),
        PLAIN.replace(",", ", "),
        PLAIN.replace("\n", "\r\n"),
        "\n" + PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("temperature", '"temperature"'),
        PLAIN.replace(",", ";").replace("b", '"b, the second"').replace("a;", '"a, the first";'),
    ],
)
def test_cells_are_separated_by_commas_semicolons_or_tabs(here, text):
    (here / "x.csv").write_text(text, newline="")
    items = data.open("x.csv")
    assert items.channels == ("temperature", "pressure")
    assert items.array.tolist() == [[1.5, -2.25], [2.5, 3], [-0.5, 7], [10, 0.125]]


def test_a_semicolon_within_a_name_in_quotes_separates_nothing(here):
    (here / "x.csv").write_text('id,"a;b;c;d",e\n1,0.5,2\n1,0.25,1\n')
    assert data.open("x.csv").channels == ("a;b;c;d", "e")


def test_points_among_commas_are_the_decimals(here):
    """So 1,234 is a thousand and more, which is not a number here rather than a wrong one."""
    (here / "x.csv").write_text("id;a;b\n1;0.5;1,234\n1;0.25;2,345\n")
    items = data.open("x.csv")
    assert (items.channels, items.table.left_out) == (("a",), {"b": "not numbers"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (PLAIN.encode("utf-16"), "its first line, which names the columns, must be UTF-8 text"),
        (b"id,t\xfcr\n1,2\n", "its first line, which names the columns, must be UTF-8 text"),
        (b"id,a,b,a\n1,2,3,4\n", "column names must differ, got a 2 times"),
        (b"x" * (2 << 20), "its first line, which names the columns, must be at most 1 MiB long, got a longer one"),
    ],
)
def test_what_is_wrong_with_a_csv_file(here, content, reason):
    (here / "x.csv").write_bytes(content)
    assert refused("x.csv") == f"cannot read x.csv: {reason}"


def test_a_million_columns(here):
    names = ",".join(f"c{column}" for column in range(1_000_000))
    (here / "x.csv").write_text(f"{names}\n1,2,3\n")
    seen = names[: 1 << 20].count(",") + 1
    reason = f"its first line, which names the columns, must be at most 1 MiB long, got more than {seen:,} columns"
    assert refused("x.csv") == f"cannot read x.csv: {reason}"


def test_many_columns_whose_rows_are_long(here):
    """Longer than Arrow parses at once unless it is told to."""
    columns = 2_000
    row = ",".join([f"-0.{'5' * 600}"] * columns)
    header = ",".join(f"c{column}" for column in range(columns))
    (here / "x.csv").write_text(f"id,{header}\n1,{row}\n1,{row.replace('-', '')}\n")
    assert data.open("x.csv").array.shape == (2, columns)


def damaged(path, column):
    """Overwrite a column's pages in the first row group."""
    chunk = pa.parquet.read_metadata(path).row_group(0).column(column)
    start, size = chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size
    content = bytearray(path.read_bytes())
    content[start : start + size] = b"\xff" * size
    path.write_bytes(content)


def readings(rows=4000):
    rng = np.random.default_rng(0)
    return {"id": np.repeat([0, 1], rows // 2), "a": rng.normal(size=rows), "b": rng.integers(0, 50, rows) / 10}


def test_damaged_pages_are_told_with_the_files_name(here):
    pa.parquet.write_table(pa.table(readings()), "x.parquet", compression="snappy")
    damaged(here / "x.parquet", 2)
    assert refused("x.parquet").startswith("cannot read x.parquet: ")
    (here / "many").mkdir()
    for name in "ab":
        pa.parquet.write_table(pa.table(readings()), here / "many" / f"{name}.parquet", compression="snappy")
    damaged(here / "many" / "b.parquet", 2)
    items = data.open("many")
    assert items.paths == ("a.parquet#0", "a.parquet#1")
    assert [skip.path for skip in items.skipped] == ["b.parquet"]


def test_damaged_pages_of_images_cost_their_row_group_only(here):
    def png(value):
        content = io.BytesIO()
        plain((value, 0, 0)).save(content, "PNG")
        return content.getvalue()

    table = pa.table({"image": [png(value) for value in range(40)]})
    pa.parquet.write_table(table, "x.parquet", compression="snappy", row_group_size=20)
    damaged(here / "x.parquet", 0)
    items = data.open("x.parquet")
    assert items.paths == tuple(f"x.parquet#{row}" for row in range(20, 40))
    assert [skip.path for skip in items.skipped] == [f"x.parquet#{row}" for row in range(20)]


def test_what_does_not_fit_into_memory_is_not_read(here, monkeypatch):
    (here / "logs").mkdir()
    pa.csv.write_csv(pa.table(readings()), "x.csv")
    pa.csv.write_csv(pa.table(readings()), here / "logs" / "a.csv")
    pa.parquet.write_table(pa.table(readings()), "x.parquet")
    pa.parquet.write_table(pa.table({"image": [b"1", b"2"]}), "images.parquet")
    pa.parquet.write_table(pa.table({"vector": [[0.5] * 8] * 4}), "vectors.parquet")
    monkeypatch.setattr(memory, "free_memory", lambda: 500)
    for kind in (table_files.Csv, table_files.Parquet):
        monkeypatch.setattr(kind, "read", lambda self: pytest.fail("was read"))
    for source in ("x.csv", "x.parquet", "logs"):
        # 4,000 rows of 3 cells: 188 KiB as numbers, and the text
        size = refused(source).removeprefix(f"{source} would take about ")
        number, unit, rest = size.split(" ", 2)
        assert (unit, rest) == ("KiB", "of memory, and 500 bytes are free")
        assert 188 < float(number) < 500
    assert refused("images.parquet") == "images.parquet would take about 600 bytes of memory, and 500 bytes are free"
    with pytest.raises(data.DataError, match=r"^vectors\.parquet would take about 512 bytes of memory, and 500 bytes "):
        read_embeddings("vectors.parquet")


def test_a_table_of_a_hundred_million_rows_is_refused_by_its_header(here, monkeypatch):
    nothing = pa.table({"id": pa.nulls(10_000_000, pa.int8()), "a": pa.nulls(10_000_000, pa.int8())})
    with pa.parquet.ParquetWriter("x.parquet", nothing.schema) as writer:
        for _ in range(10):
            writer.write_table(nothing)
    monkeypatch.setattr(memory, "free_memory", lambda: 2 << 30)
    assert refused("x.parquet") == "x.parquet would take about 3.0 GiB of memory, and 2.0 GiB are free"
