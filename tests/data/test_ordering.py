"""The order of a table's rows: a column that looks like a time moves them only where it certainly is one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from likewise import data

# Two sequences, their rows mixed; x tells where each row belongs.
SESSION = ["b", "a", "a", "b", "a", "b"]
PLACE = [3, 1, 3, 1, 2, 2]
X = [23.5, 11.0, 13.0, 21.0, 12.5, 22.0]
SORTED, AS_THEY_CAME = [11.0, 12.5, 13.0, 21.0, 22.0, 23.5], [11.0, 13.0, 12.5, 23.5, 21.0, 22.0]
IN_ORDER = [1, 1, 2, 2, 3, 3]  # as the rows come


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def opened(columns, **roles):
        pa.parquet.write_table(pa.table({"session": SESSION, "x": X, **columns}), "x.parquet")
        return data.open("x.parquet", columns=roles)

    return opened


def order(items):
    return items.array[:, 0].tolist()


@pytest.mark.parametrize("name", ["time", "t", "t_ms", "Timestamp (s)", "datetime", "year"])
def test_rows_are_moved_by_a_time_that_no_sequence_has_twice(opened, name):
    items = opened({name: PLACE})
    assert (order(items), items.table.times, items.table.left_out) == (SORTED, (name,), {})


@pytest.mark.parametrize(
    "times",
    [
        np.array(PLACE, dtype="datetime64[D]"),
        np.array(PLACE, dtype="datetime64[ns]"),
        [1_700_000_000_000_000_000 + place for place in PLACE],
        [f"2024-05-0{place} 12:00:00" for place in PLACE],
        [f"2024/05/0{place}" for place in PLACE],
        [f"{place + 8}" for place in PLACE],
        [f"day {place + 8}" for place in PLACE],
        [place / 10 for place in PLACE],
    ],
)
def test_times_of_any_kind_are_sorted_as_times(opened, times):
    """Of texts, 10 follows 9."""
    assert order(opened({"time": times})) == SORTED


def test_a_date_is_a_time_whatever_it_is_called(opened):
    items = opened({"wann": np.array(PLACE, dtype="datetime64[s]")})
    assert (order(items), items.table.times) == (SORTED, ("wann",))


def test_rows_that_are_in_order_stay_as_they_are(opened):
    items = opened({"time": IN_ORDER})
    assert (order(items), items.table.times) == (AS_THEY_CAME, ("time",))
    shared = opened({"time": [1, 1, 1, 2, 2, 2]})
    assert (order(shared), shared.table.times) == (AS_THEY_CAME, ("time",))


def test_a_missing_time_loses_nothing_where_rows_are_in_order(opened):
    items = opened({"time": [1, None, 2, 2, 3, 3]})
    assert (order(items), items.skipped) == (AS_THEY_CAME, ())
    items = opened({"time": [None, *PLACE[1:]]})
    assert items.skipped == (data.Skipped("b", "has a row without a time"),)
    items = opened({"time": [None, None, None, *PLACE[3:]]})
    assert (order(items), items.table.left_out) == (AS_THEY_CAME, {"time": "looks like a time"})
    assert opened({"time": pa.nulls(6)}).table.left_out == {"time": "looks like a time"}


def test_a_time_that_repeats_out_of_order_moves_nothing(opened):
    items = opened({"t": [20.5, 21.0, 20.0, 21.0, 21.0, 20.5]})
    assert (order(items), items.table.times) == (AS_THEY_CAME, ())
    assert items.table.left_out == {"t": "looks like a time, but its rows are not in order and some share a time"}


@pytest.mark.parametrize("kind", ["text", "time"])
def test_the_time_of_day_moves_nothing(opened, kind):
    """A recording that goes on beyond midnight would be torn apart."""
    seconds = [82_800, 82_800, 0, 0, 1_800, 1_800]
    texts = [f"{value // 3600:02}:{value % 3600 // 60:02}" for value in seconds]
    times = texts if kind == "text" else pa.array(seconds, type=pa.time32("s"))
    items = opened({"time": times})
    assert (order(items), items.table.times) == (AS_THEY_CAME, ())
    assert items.table.left_out == {"time": "looks like a time of day, which starts again at midnight"}
    assert order(opened({"time": times}, time="time")) == [13.0, 12.5, 11.0, 21.0, 22.0, 23.5], "where it is asked for"


def test_a_date_in_order_speaks_against_another_time(opened):
    """Here t is a temperature."""
    dates = np.array([1, 1, 1, 1, 2, 2], dtype="datetime64[D]")
    items = opened({"t": [20.5, 21.0, 20.0, 19.0, 18.0, 17.5], "date": dates})
    assert (order(items), items.table.times) == (AS_THEY_CAME, ("date",))
    assert items.table.left_out == {"t": "looks like a time"}


def test_a_year_in_order_does_not_speak_against_the_time_within_it(opened):
    items = opened({"year": [2024, 2023, 2024, 2024, 2024, 2024], "time": PLACE})
    assert (order(items), items.table.times) == (SORTED, ("time",))
    assert items.table.left_out == {"year": "looks like a time"}


def test_text_whose_order_is_not_certain_moves_nothing(opened):
    """The third of April, or the fourth of March?"""
    times = [f"0{place}/04/2024" for place in PLACE]
    items = opened({"time": times})
    assert (order(items), items.table.times) == (AS_THEY_CAME, ())
    assert items.table.left_out == {
        "time": "looks like a time, but is not written as one that can be sorted, such as 2024-05-31 12:00:00"
    }
    with pytest.raises(data.DataError) as refused:
        opened({"time": times}, time="time")
    assert str(refused.value) == (
        "time must be numbers or dates such as 2024-05-31 12:00:00 in x.parquet, got 03/04/2024 in time"
    )


def test_a_time_named_as_a_channel_still_orders_the_rows(opened):
    items = opened({"time": PLACE}, channels="time+x")
    assert items.array.tolist() == [[1, 11], [2, 12.5], [3, 13], [1, 21], [2, 22], [3, 23.5]]
