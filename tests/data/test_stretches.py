"""One long log without a column of sequences: it is cut into stretches, of which the last are held out behind a gap."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from likewise import data
from likewise.data.stretches import hold_out


def log(rows, **columns):
    a, b = np.random.default_rng(0).normal(size=(2, rows))
    return {"time": np.arange(rows) / 10, "a": a, "b": b, **columns}


@pytest.fixture(params=["csv", "parquet"])
def opened(request, tmp_path, monkeypatch):
    """Writes a table as x.csv or x.parquet and opens it."""
    monkeypatch.chdir(tmp_path)
    write = pa.csv.write_csv if request.param == "csv" else pa.parquet.write_table

    def open_table(table, **columns):
        write(pa.table(table), f"x.{request.param}")
        return data.open(f"x.{request.param}", columns=columns or None)

    return open_table


def refused(opened, table, **columns):
    with pytest.raises(data.DataError) as error:
        opened(table, **columns)
    return str(error.value).replace("x.parquet", "x.csv")


@pytest.mark.parametrize(("rows", "count"), [(48, 3), (100, 6), (2_000, 20), (30_000, 50), (60_000, 60)])
def test_a_log_is_cut_into_stretches_in_order(opened, rows, count):
    table = log(rows)
    items = opened(table)
    assert len(items) == count
    np.testing.assert_allclose(items.array[:, 0], table["a"], rtol=1e-6)
    assert items.lengths.max() - items.lengths.min() <= 1
    assert (items.consecutive, items.test, items.skipped) == (True, None, ())
    assert items.channels == ("a", "b")
    assert items.notes == (
        f"no column names the sequences, so the file is read as one log and cut into {count} stretches of "
        f"{np.median(items.lengths):,.0f} rows (median); --column sequence=NAME says which one does",
    )


@pytest.mark.parametrize("place", ["x.csv", "machine/x.csv"])
def test_the_only_table_of_a_folder_is_cut_as_the_table_itself(tmp_path, place):
    path = tmp_path / "logs" / place
    path.parent.mkdir(parents=True)
    pa.csv.write_csv(pa.table(log(2_000)), path)
    alone, items = data.open(path), data.open(tmp_path / "logs")
    assert items.paths[:2] == (f"{place}#rows 0000-0099", f"{place}#rows 0100-0199")
    assert items.notes == alone.notes
    assert items.consecutive
    assert items.labels is None
    np.testing.assert_array_equal(items.array, alone.array)
    np.testing.assert_array_equal(items.offsets, alone.offsets)


def test_one_of_several_tables_in_a_folder_is_one_sequence(tmp_path):
    for name in ("a", "b"):
        pa.csv.write_csv(pa.table(log(2_000)), tmp_path / f"{name}.csv")
    items = data.open(tmp_path)
    assert (items.paths, items.consecutive, items.notes) == (("a.csv", "b.csv"), False, ())


def test_stretches_are_named_by_their_rows(opened):
    items = opened(log(2_000))
    assert items.paths[:2] == ("rows 0000-0099", "rows 0100-0199")
    assert items.paths[-1] == "rows 1900-1999"


def test_rows_are_ordered_by_time_before_the_log_is_cut(opened):
    table = log(2_000)
    shuffled = np.random.default_rng(1).permutation(2_000)
    items = opened({name: column[shuffled] for name, column in table.items()})
    np.testing.assert_allclose(items.array[:, 0], table["a"], rtol=1e-6)


def test_a_short_log_is_one_sequence(opened):
    items = opened(log(40))
    assert (len(items), items.consecutive) == (1, False)
    assert items.notes[0].startswith(
        "no column names the sequences, so the file is one sequence, too short to be cut; "
    )


def test_a_log_is_also_cut_where_label_group_and_test_part_change(opened):
    activity = np.repeat(["rest", "walk", "rest", "run"], [130, 470, 900, 500])
    is_test = np.arange(2_000) >= 1_800
    items = opened(log(2_000, activity=activity, subject=np.arange(2_000) // 1_000, is_test=is_test))
    ends = np.cumsum(items.lengths)
    assert {130, 600, 1_000, 1_500, 1_800} <= {*ends.tolist()}
    assert items.classes == ("rest", "run", "walk")
    assert [items.classes[label] for label in items.labels] == activity[ends - 1].tolist()
    assert items.groups.tolist() == ((ends - 1) // 1_000).tolist()
    assert items.test.tolist() == is_test[ends - 1].tolist()


def test_a_label_that_changes_all_the_time_does_not_cut(opened):
    items = opened(log(2_000, y=np.arange(2_000) % 3))
    assert (len(items), items.labels) == (20, None)


def test_a_table_that_may_hold_several_sequences_is_not_taken_for_one_log(opened):
    table = log(200, machine=["m1", "m2"] * 100)
    assert refused(opened, table) == (
        "expected a column that names each row's sequence in x.csv, got time, a, b, machine: say which it is with "
        "--column sequence=NAME, or, if the file is one log, say what machine is, such as --column y=machine"
    )
    assert len(opened(table, sequence="machine")) == 2
    assert opened(table, y="machine").consecutive
    table["time"] = np.tile(np.arange(100) / 10, 2)
    del table["machine"]
    assert refused(opened, table) == (
        "expected a column that names each row's sequence in x.csv, because time goes back in it, got time, a, b: "
        "say which it is with --column sequence=NAME"
    )
    assert opened(table, time="time").consecutive, "the user says that it is one time"


def test_remarks_in_some_rows_name_no_sequences(opened):
    assert opened(log(200, remark=["", "", "", "door open"] * 50)).consecutive


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("count", [3, 6, 20, 100, 1_000])
def test_no_stretch_that_is_trained_on_is_beside_one_that_is_held_out(count, share):
    train, test = hold_out(count, share)
    assert min(len(train), len(test)) >= 1
    assert np.abs(train[:, None] - test[None]).min() > 1
    assert len(test) == min(max(1, round(share * count)), count - 2)
    assert len(train) >= count - len(test) - 10


def test_of_a_long_log_the_ends_of_several_spans_are_held_out():
    train, test = hold_out(200, 0.1)
    assert test.tolist() == [*range(36, 40), *range(76, 80), *range(116, 120), *range(156, 160), *range(196, 200)]
    assert len(train) == 200 - 20 - 9
    assert [len(part) for part in hold_out(200, 0.0)] == [200, 0]
