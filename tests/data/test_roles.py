"""Which columns of a table are channels: not what looks like a clock or a row number, unless it is named as one."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from likewise import data

ROWS, SEQUENCES = 12, 4


def walks(**columns):
    """Four walks of twelve rows, ax and ay measured in each."""
    rng = np.random.default_rng(0)
    session = np.repeat(np.arange(SEQUENCES), ROWS)
    ax, ay = rng.normal(size=(2, len(session))).round(3)
    return {"session": session, "ax": ax, "ay": ay, **columns}


def in_each(values):
    """The same twelve values in every walk."""
    return np.tile(values, SEQUENCES)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Write a table as x.csv and open it."""
    monkeypatch.chdir(tmp_path)

    def opened(columns, **roles):
        arrays = [
            pa.array(column, type=None if any(cell is not None for cell in column) else pa.float64())
            for column in columns.values()
        ]
        pa.csv.write_csv(pa.table(arrays, names=list(columns)), "x.csv")
        return data.open("x.csv", columns=roles)

    return opened


def refused(call, *arguments, **roles):
    with pytest.raises(data.DataError) as error:
        call(*arguments, **roles)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, "a time") for name in ("t_ms", "year", "date", "datetime", "Time (s)", "elapsed_time", "loggingTime")),
        *((name, "a time") for name in ("t", "hour_of_day", "timestamp_ns", "时间")),
        *((name, "an index") for name in ("", "Unnamed: 0", "index", "__index_level_0__", "row_id", "序号")),
    ],
)
def test_a_name_that_looks_like_a_time_or_an_index_is_not_a_channel(opened, name, what):
    """Whatever it holds: these numbers neither count nor order anything."""
    plain = opened(walks())
    beside = opened({name: in_each([3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]), **walks()})
    assert beside.channels == ("ax", "ay")
    assert beside.fingerprint == plain.fingerprint
    assert beside.table.left_out[name].startswith(f"looks like {what}")
    assert plain.table.left_out == {}


@pytest.mark.parametrize("name", ["T", "t1", "t_min", "reaction_time", "level", "refractive_index", "hours", "0"])
def test_a_name_that_only_sounds_like_one_is_a_channel(opened, name):
    items = opened(walks(**{name: in_each([3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2])}))
    assert items.channels == ("ax", "ay", name)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (in_each(range(ROWS)), "only counts up within sequences"),
        (np.arange(ROWS * SEQUENCES), "only counts up within sequences"),
        (in_each(np.arange(ROWS) // 2), "only counts up within sequences"),
        (in_each(1.7e12 + np.arange(ROWS)), "only counts up within sequences"),
        (in_each(range(ROWS, 0, -1)), "only counts down within sequences"),
        (in_each([7] * ROWS), "constant"),
        (np.repeat(range(SEQUENCES), ROWS), "constant within each sequence"),
        ([None] * ROWS * SEQUENCES, "empty"),
        ([f"word {i % 5}" for i in range(ROWS * SEQUENCES)], "not numbers"),
    ],
)
def test_what_gives_the_answer_away_or_says_nothing_is_not_a_channel(opened, values, why):
    items = opened(walks(reading=values))
    assert items.channels == ("ax", "ay")
    assert items.table.left_out == {"reading": why}
    assert items.fingerprint == opened(walks()).fingerprint


@pytest.mark.parametrize(
    "values",
    [
        in_each([*range(ROWS - 1), 0]),
        np.concatenate([range(10), [9] * (ROWS * SEQUENCES - 10)]),
    ],
    ids=["one step down", "nine steps up, and then none"],
)
def test_what_may_be_measured_is_a_channel(opened, values):
    assert opened(walks(reading=values)).channels == ("ax", "ay", "reading")


def test_a_switch_is_a_channel_in_however_many_sequences(opened):
    table = {"session": np.repeat(range(20), 4), "ax": np.random.default_rng(0).normal(size=80)}
    assert opened({**table, "switch": [0, 0, 1, 1] * 20}).channels == ("ax", "switch")
    assert opened({**table, "count": [0, 1, 1, 2] * 20}).channels == ("ax",)


def test_channels_by_name_are_what_is_named_in_that_order(opened):
    table = walks(t_ms=in_each(range(ROWS)), pace=in_each([2] * ROWS))
    items = opened(table, channels="t_ms+ay + pace")
    assert items.channels == ("t_ms", "ay", "pace")
    np.testing.assert_array_equal(items.array[:, 0], table["t_ms"])
    np.testing.assert_array_equal(items.array[:, 1], table["ay"].astype(np.float32))
    assert opened(walks(**{"a+b": table["ax"]}), channels="a+b").channels == ("a+b",)


def test_a_label_or_group_named_as_a_channel_is_none(opened):
    table = walks(label=np.repeat([0, 1, 1, 0], ROWS))
    assert opened(table, channels="ax+label").labels is None
    items = opened({**table, "subject": in_each(range(ROWS))}, channels="ax+subject")
    assert (items.labels.tolist(), items.groups, items.channels) == ([0, 1, 1, 0], None, ("ax", "subject"))


def test_a_column_named_like_a_role_that_another_plays_is_left_out(opened):
    table = walks(id=in_each([1, 5] * 6), **{"class": in_each([1, 0] * 6)}, label=np.repeat([0, 1, 1, 0], ROWS))
    assert opened(table).table.left_out == {"id": "named like a sequence", "class": "named like a label"}


def test_channels_that_cannot_be(opened):
    table = walks(note=["a"] * ROWS * SEQUENCES)
    assert refused(opened, table, channels="ax+az") == (
        "expected a column of x.csv as channels, one of ax, ay, note, session, got 'az'"
    )
    assert refused(opened, table, channels="ax+note") == "cannot read x.csv: channels must be numbers, got note of text"
    assert refused(opened, table, channels="ax+ax") == "channels must differ from each other, got 'ax+ax'"


def test_a_table_without_a_channel_says_why(opened):
    table = {"session": walks()["session"], "t_ms": in_each(range(ROWS))}
    hint = "say which are channels with --column channels=NAME+NAME"
    assert refused(opened, table | {"index": in_each([1, 3] * 6)}) == (
        f"cannot read x.csv: expected a column that can be a channel, got index (looks like an index): {hint}"
    )
    assert refused(opened, table | {"n": in_each(range(ROWS)), "pace": in_each([2] * ROWS)}) == (
        "expected a column that can be a channel in x.csv, got n (only counts up within sequences), "
        f"pace (constant): {hint}"
    )


def test_all_files_of_a_folder_decide_together(tmp_path):
    """A sensor that rests in one of them is a channel all the same; one that rests in all is not."""
    for place in range(3):
        rng = np.random.default_rng(place)
        table = {"n": np.arange(ROWS) + place, "ax": rng.normal(size=ROWS), "ay": rng.normal(size=ROWS) * (place != 1)}
        pa.csv.write_csv(pa.table(table), tmp_path / f"{place}.csv")
    items = data.open(tmp_path)
    assert items.channels == ("ax", "ay")
    assert items.table.left_out == {"n": "only counts up within sequences"}
    assert len(items) == 3


def test_a_file_of_a_folder_that_lacks_a_named_channel_is_left_out(tmp_path):
    for place, name in enumerate("abb"):
        rng = np.random.default_rng(place)
        pa.csv.write_csv(pa.table({name: rng.normal(size=ROWS), "c": rng.normal(size=ROWS)}), tmp_path / f"{place}.csv")
    items = data.open(tmp_path, columns={"channels": "b"})
    assert items.paths == ("1.csv", "2.csv")
    assert items.skipped == (data.Skipped("0.csv", "has no column b to be a channel"),)
