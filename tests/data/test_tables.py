"""Time series in CSV and Parquet: rows to sequences, in the order of time, whatever order they come in."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from likewise import data

# Two walks and a run, interleaved, the walks' times out of order.
LOG = {
    "time": [3, 1, 2, 1, 3, 2, 1, 2],
    "session": ["walk2", "walk1", "walk1", "run", "walk1", "run", "walk2", "walk2"],
    "Label": ["slow", "slow", "slow", "fast", "slow", "fast", "slow", "slow"],
    "x": [23.0, 11.0, 12.0, 31.0, 13.0, 32.0, 21.0, 22.0],
    "y": [-23.5, -11.5, -12.5, -31.5, -13.5, -32.5, -21.5, -22.5],
    "note": ["a", "b", "c", "d", "e", "f", "g", "h"],
    "subject": [1, 0, 0, 1, 0, 1, 1, 1],
    "is_test": [False, False, False, True, False, True, False, False],
}


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    (pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table)(table, path)
    return path


@pytest.fixture(params=["csv", "parquet"])
def log(request, tmp_path, monkeypatch):
    """Writes a table as x.csv or x.parquet and gives its name."""
    monkeypatch.chdir(tmp_path)
    return lambda columns: write(tmp_path / f"x.{request.param}", columns).name


def refused(source, **options):
    with pytest.raises(data.DataError) as error:
        data.open(source, **options)
    return str(error.value)


def without(*names):
    return {name: column for name, column in LOG.items() if name not in names}


def test_rows_become_sequences(log):
    items = data.open(log(LOG))
    assert (items.kind, items.paths, items.channels) == ("sequence", ("run", "walk1", "walk2"), ("x", "y"))
    assert items.array.tolist() == [[v, -v - 0.5] for v in (31, 32, 11, 12, 13, 21, 22, 23)]
    assert items.array.dtype == np.float32
    assert items.offsets.tolist() == [0, 2, 5, 8]
    assert (items.classes, items.labels.tolist()) == (("fast", "slow"), [0, 1, 1])
    assert items.groups.tolist() == [1, 0, 1]
    assert items.test.tolist() == [True, False, False]
    assert (items.native, items.rate, items.skipped) == (3, 0, ())


def test_the_order_of_rows_does_not_matter_where_there_is_a_time(log):
    known = data.open(log(LOG)).fingerprint
    shuffled = {name: [column[i] for i in (7, 2, 5, 0, 1, 6, 4, 3)] for name, column in LOG.items()}
    assert data.open(log(shuffled)).fingerprint == known
    assert data.open(log({**LOG, "x": [value + 1 for value in LOG["x"]]})).fingerprint != known


@pytest.mark.parametrize(
    "times",
    [
        [f"2024-05-0{day} 12:00:00" for day in LOG["time"]],
        [f"day {day}" for day in LOG["time"]],
        [1_700_000_000_000_000_000 + step for step in LOG["time"]],
        [step / 10 for step in LOG["time"]],
    ],
)
def test_times_of_any_kind(log, times):
    assert data.open(log({**LOG, "time": times})).array[:, 0].tolist() == [31, 32, 11, 12, 13, 21, 22, 23]


def test_without_a_time_rows_stay_in_their_order(log):
    assert data.open(log(without("time"))).array[:, 0].tolist() == [31, 32, 11, 12, 13, 23, 21, 22]


def test_names_that_are_numbers_are_sorted_as_numbers(log):
    ids = [{"walk1": 10, "walk2": 9, "run": 100}[name] for name in LOG["session"]]
    items = data.open(log({**without("session"), "ID": ids}))
    assert items.paths == ("9", "10", "100")
    assert items.channels == ("x", "y")


def test_columns_by_other_names(log):
    other = {"session": "trip", "Label": "mode", "subject": "driver", "time": "clock", "is_test": "held"}
    source = log({other.get(name, name): column for name, column in LOG.items()})
    columns = {"sequence": "trip", "y": "mode", "group": "driver", "time": "clock", "is_test": "held"}
    assert data.open(source, columns=columns).fingerprint == data.open(log(LOG)).fingerprint


def test_names_that_are_not_there(log):
    source = log(LOG)
    assert refused(source, columns={"sequence": "trip"}) == (
        f"expected a column of {source} as sequence, one of Label, is_test, note, session, subject, time, x, y, "
        "got 'trip'"
    )
    assert refused(source, columns={"speed": "x"}) == (
        "expected a column for one of channels, group, is_test, sequence, time, y, got 'speed'"
    )


def test_y_is_a_label_or_a_channel(log):
    """Beside x, or with fractions, it is what a sensor measures."""
    labels = [2, 1, 1, 0, 1, 0, 2, 2]
    assert data.open(log({**without("Label", "x"), "y": labels, "z": LOG["x"]})).labels.tolist() == [0, 1, 2]
    assert data.open(log(without("Label", "x"))).channels == ("y",)
    whole = data.open(log({**without("Label"), "y": [2, 1, 2, 0, 1, 1, 0, 2]}))
    assert (whole.channels, whole.labels) == (("x", "y"), None)
    assert data.open(log(without("Label")), columns={"y": "note"}).labels is None  # another in each row


def test_a_label_that_changes_within_a_sequence_is_none(log):
    labels = ["slow", "slow", "slow", "fast", "slow", "fast", "fast", "slow"]
    assert data.open(log({**LOG, "Label": labels})).labels.tolist() == [0, 1, -1]
    numbers = [5, 3, 3, None, 3, None, 5, 5]
    assert data.open(log({**LOG, "Label": numbers})).labels.tolist() == [-1, 3, 5]


def test_one_label_for_all_sequences_is_none(log):
    items = data.open(log(LOG | {"Label": ["slow"] * 8}))
    assert (items.labels, items.classes) == (None, ())


def test_a_group_or_test_part_that_changes_within_a_sequence(log):
    sentence = "{} must be the same in all rows of a sequence, got several in walk2"
    assert refused(log({**LOG, "subject": [0, 0, 0, 1, 0, 1, 1, 1]})) == sentence.format("subject")
    assert refused(log({**LOG, "is_test": [True, *LOG["is_test"][1:]]})) == sentence.format("is_test")
    source = log({**LOG, "is_test": ["yes"] * 8})
    assert refused(source) == f"is_test must be true or false in {source}, got text"


def test_sequences_with_holes_are_left_out_alike(log):
    long = {name: column * 2 for name, column in LOG.items()}
    long["session"] = [*LOG["session"], *(f"late {name}" for name in LOG["session"])]
    long["x"] = [None, *long["x"][1:8], *[1.0] * 8]
    long["y"] = [*long["y"][:8], *[2.0] * 3, float("inf"), *[2.0] * 2, *long["y"][14:]]
    items = data.open(log(long), gaps="skip")
    assert {skip.path: skip.reason for skip in items.skipped} == {
        "walk2": "holds NaN",
        "late walk1": "all values are the same",
        "late run": "holds infinity",
    }
    assert items.paths == ("late walk2", "run", "walk1")
    assert items.labels.tolist() == [1, 0, 1]
    assert items.groups.tolist() == [1, 1, 0]
    assert items.test.tolist() == [False, True, False]
    assert items.array[:, 0].tolist() == [1, 1, 1, 31, 32, 11, 12, 13]


def test_a_word_among_numbers_and_a_row_without_a_time(log):
    words = ["23", "11", "12", "error", "13", "32", "21", "22"]
    items = data.open(log({**LOG, "x": words}), gaps="skip")
    assert items.skipped == (data.Skipped("run", "holds NaN"),)
    items = data.open(log({**LOG, "time": [*LOG["time"][:7], None]}))
    assert items.skipped == (data.Skipped("walk2", "has a row without a time"),)


def test_a_row_of_no_sequence(log):
    source = log({**LOG, "session": [*LOG["session"][:7], None]})
    expected = f"expected the name of a sequence in every row, got none in row 7 of {source}"
    if source.endswith(".parquet"):  # an empty cell of text in a CSV is an empty name
        assert refused(source) == expected
    assert refused(log({**LOG, "session": [1, 1, 2, 2, 1, 1, 2, None]})) == expected


def test_a_csv_without_sequences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.csv", without("session"))
    assert refused("x.csv") == (
        "expected a column that names each row's sequence in x.csv, because time goes back in it, "
        "got time, Label, x, y, note, subject, is_test: say which it is with --column sequence=NAME"
    )
    (tmp_path / "x.csv").write_text("0.5,1\n0.7,2\n")
    assert refused("x.csv") == "cannot read x.csv: its first line must name the columns"
    (tmp_path / "x.csv").write_text("id,name\n1,a\n")
    assert refused("x.csv") == "cannot read x.csv: expected a column of numbers, got id, name"
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n")
    assert refused("x.csv").startswith("cannot read x.csv: CSV parse error: Expected 2 columns, got 1")


@pytest.mark.parametrize("error", [pa.ArrowNotImplementedError, pa.ArrowCapacityError, pa.ArrowSerializationError])
def test_whatever_arrow_cannot_read_is_said(log, monkeypatch, error):
    def fail(*_, **__):
        raise error("it cannot be")

    source = log(LOG)
    monkeypatch.setattr(pa.csv, "read_csv", fail)
    monkeypatch.setattr(pa.parquet, "read_table", fail)
    assert refused(source) == f"cannot read {source}: it cannot be"


def test_a_parquet_file_of_whole_numbers_is_no_series(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.parquet", {"a": [1, 2]})
    assert refused("x.parquet") == "expected a column of image bytes in x.parquet, got a (int64)"


def readings(seed, rows=5, **columns):
    values = np.random.default_rng(seed).normal(size=(2, rows))
    return {"acc": values[0], "gyro": values[1], **columns}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_tables_with_sequences(tmp_path, ending):
    for name, seed in {"b": 0, "a": 1}.items():
        write(tmp_path / f"{name}.{ending}", readings(seed, rows=6, series=[2, 1, 2, 1, 2, 1], label=[4, 3] * 3))
    items = data.open(tmp_path)
    assert items.paths == tuple(f"{file}.{ending}#{name}" for file in "ab" for name in (1, 2))
    assert items.labels.tolist() == [3, 4, 3, 4]


def test_a_folder_of_csv_files_each_a_sequence(tmp_path):
    for place, name in enumerate(("train/walk/b", "train/run/a", "test/run/c")):
        write(tmp_path / f"{name}.csv", readings(place, rows=4 + place))
    (tmp_path / "readme.txt").write_text("hello")
    items = data.open(tmp_path)
    assert items.paths == ("test/run/c.csv", "train/run/a.csv", "train/walk/b.csv")
    assert items.channels == ("acc", "gyro")
    assert items.lengths.tolist() == [6, 5, 4]
    assert (items.classes, items.labels.tolist()) == (("run", "walk"), [0, 0, 1])
    assert items.test.tolist() == [True, False, False]


def test_csv_files_that_are_unlike_the_others_are_left_out(tmp_path):
    for place in range(3):
        write(tmp_path / f"{place}.csv", readings(place))
    write(tmp_path / "other.csv", {"pressure": [1.0, 2.0]})
    (tmp_path / "empty.csv").touch()
    (tmp_path / "words.csv").write_text("a,b\nx,y\n")
    (tmp_path / "header.csv").write_text("acc,gyro\n")
    items = data.open(tmp_path)
    assert items.paths == ("0.csv", "1.csv", "2.csv")
    assert {skip.path: skip.reason for skip in items.skipped} == {
        "empty.csv": "it is empty",
        "header.csv": "fewer than 2 samples",
        "other.csv": "has channels pressure, not acc, gyro",
        "words.csv": "expected a column of numbers, got a, b",
    }


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.csv", LOG)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.csv", None)
    assert refused("x.csv") == "CSV needs pyarrow: pip install 'likewise[parquet]'"
