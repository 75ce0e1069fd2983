"""Missing values in series: short gaps are filled by a straight line and counted, others leave the sequence out."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from likewise import data

T = 30
LEFT_OUT = "holds NaN at an end or in a gap of more than 10 samples"


def waves(n=4, t=T, c=2):
    return np.random.default_rng(0).normal(size=(n, t, c)).astype(np.float32)


def straight(before, after, length):
    return np.linspace(before, after, length + 2)[1:-1]


@pytest.mark.parametrize("length", [1, 2, 10])
def test_a_short_gap_becomes_a_straight_line(length):
    x = waves()
    x[1, 5 : 5 + length, 0] = np.nan
    items = data.open(x)
    expected = x.copy()
    expected[1, 5 : 5 + length, 0] = straight(x[1, 4, 0], x[1, 5 + length, 0], length)
    np.testing.assert_allclose(items[np.arange(4)], expected, rtol=1e-5)
    assert np.isnan(x[1, 5, 0]), "the given array must not change"
    assert items.skipped == ()


@pytest.mark.parametrize(
    "where", [(slice(5, 16), 0), (slice(0, 1), 1), (slice(0, 10), slice(None)), (slice(29, 30), 0)], ids=str
)
def test_a_long_gap_and_a_gap_at_an_end_leave_the_sequence_out(where):
    x = waves()
    x[2][where] = np.nan
    x[0, 7, 0] = np.nan
    items = data.open(x)
    assert [(skip.path, skip.reason) for skip in items.skipped] == [("series 2", LEFT_OUT)]
    assert len(items) == 3
    assert items.notes[0].startswith("1 missing value in 1 sequence was filled by linear interpolation, "), items.notes


def test_gaps_at_the_border_of_two_sequences_are_not_filled_across():
    x = waves()
    x[0, -1, 0] = x[1, 0, 0] = np.nan
    assert [skip.path for skip in data.open(x).skipped] == ["series 0", "series 1"]


def test_a_gap_beside_infinity():
    x = waves()
    x[0, 5, 0], x[0, 6, 0] = np.nan, np.inf
    assert [(skip.path, skip.reason) for skip in data.open(x).skipped] == [("series 0", "holds infinity")]


def test_filled_values_are_counted_in_the_sequences_that_are_used():
    x = waves(n=5)
    x[0, [3, 5, 6], [0, 1, 1]] = np.nan
    x[1, 4] = np.nan
    x[2, 3, 0] = x[2, 10:25, 1] = np.nan  # the short gap is filled, but the long one leaves the sequence out
    x[3, 20:] = np.nan  # shorter, not a gap
    items = data.open(x)
    assert items.lengths.tolist() == [30, 30, 20, 30]
    assert items.notes == (
        "5 missing values in 2 sequences were filled by linear interpolation, 2.3 % of all values; "
        "data.gaps=skip leaves such sequences out",
    )
    assert data.open(waves()).notes == ()


def test_a_tenth_of_a_percent_of_empty_cells_costs_no_sequence(tmp_path):
    x = waves(n=50, t=400, c=2)
    missing = np.random.default_rng(1).random(x.shape) < 0.001
    missing[:, [0, -1]] = False
    x[missing] = np.nan
    cells = [[None if math.isnan(value) else value for value in column] for column in x.reshape(-1, 2).T.tolist()]
    table = pa.table({"session": np.repeat(np.arange(50), 400), "a": cells[0], "b": cells[1]})
    pa.csv.write_csv(table, tmp_path / "x.csv")
    filled, skipped = (data.open(tmp_path / "x.csv", gaps=gaps) for gaps in ("fill", "skip"))
    assert (len(filled), filled.skipped) == (50, ())
    assert filled.notes[0].startswith(f"{missing.sum()} missing values in ")
    assert not np.isnan(filled.array).any()
    assert len(skipped) == int((~missing.any(axis=(1, 2))).sum()) < 35
    assert {skip.reason for skip in skipped.skipped} == {"holds NaN"}
    assert skipped.notes == ()
    np.testing.assert_allclose(filled.array[~missing.reshape(-1, 2)], x[~missing], rtol=1e-6)


@pytest.mark.parametrize("kind", ["npy", "npz", "mapping"])
def test_arrays_in_files(tmp_path, kind):
    x = waves()
    x[1, 5, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    source = {"x": x} if kind == "mapping" else tmp_path / f"x.{kind}"
    assert len(data.open(source)) == 4
    assert len(data.open(source, gaps="skip")) == 3
    assert np.isnan(np.load(tmp_path / "x.npy")[1, 5, 0])


def test_data_without_gaps_are_the_same_in_both_ways(tmp_path):
    np.save(tmp_path / "x.npy", waves())
    assert len({data.open(tmp_path / "x.npy", gaps=gaps).fingerprint for gaps in ("fill", "skip")}) == 1


def test_another_word():
    with pytest.raises(data.DataError) as refused:
        data.open(waves(), gaps="drop")
    assert str(refused.value) == "gaps must be skip or fill, got 'drop'"
