"""Audio in arrays: clips one behind the other, told apart by offsets."""

import numpy as np
import pytest

from likewise import data
from likewise.data import memory

RATE = 8000
LENGTHS = [1000, 3000, 2000, 1500]
OFFSETS = np.cumsum([0, *LENGTHS])


def sine(samples, frequency=500.0, rate=RATE):
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(samples) / rate)


def clips(dtype=np.int16, **others):
    """Four tones of 500 to 800 Hz, with what is known of them."""
    audio = np.concatenate([sine(length, 500 + 100 * i) for i, length in enumerate(LENGTHS)])
    audio = (audio * 32768).astype(np.int16) if dtype == np.int16 else audio.astype(dtype)
    return {
        "audio": audio,
        "offsets": OFFSETS,
        "rate": RATE,
        "y": [3, 1, 0, 2],
        "speaker": ["eve", "bob", "eve", "ada"],
        "is_test": [True, False, True, False],
        **others,
    }


def refused(source, **options):
    with pytest.raises(data.DataError) as error:
        data.open(source, **options)
    return str(error.value)


def test_clips_in_an_npz_and_in_memory(tmp_path):
    np.savez(tmp_path / "x.npz", **clips())
    for items in (data.open(tmp_path / "x.npz"), data.open(clips())):
        assert (items.kind, items.rate, items.native, items.paths) == ("sequence", RATE, 1750, None)
        np.testing.assert_array_equal(items.array[:, 0], clips()["audio"])
        assert items.array.dtype == np.int16
        assert items.offsets.tolist() == OFFSETS.tolist()
        assert items.labels.tolist() == [3, 1, 0, 2]
        assert items.groups.tolist() == [2, 1, 2, 0]
        assert items.test.tolist() == [True, False, True, False]
        np.testing.assert_allclose(items[np.array([2])][0, :, 0], sine(2000, 700), atol=1e-4)
    assert data.open(tmp_path / "x.npz").fingerprint == data.open(clips()).fingerprint


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_stay_as_loud_as_they_are(dtype):
    source = clips(dtype)
    source["audio"] *= 4
    items = data.open(source)
    assert items.array.dtype == np.float32
    assert np.abs(items[np.arange(4)][:, :1000]).max() == pytest.approx(2, abs=0.01)


def test_a_rate_that_is_not_known_can_be_said():
    source = clips()
    del source["rate"]
    items, told = data.open(source), data.open(source, rate=16_000)
    assert (items.rate, told.rate) == (0, 16_000)
    assert np.array_equal(items.array, told.array)


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 16_000])
def test_another_rate_keeps_frequency_level_and_duration(dtype, rate):
    items = data.open(clips(dtype), rate=rate)
    assert (items.rate, items.array.dtype) == (rate, dtype)
    assert items.lengths.tolist() == [-(-length * rate // RATE) for length in LENGTHS]
    for i, clip in enumerate(items[np.arange(4)][:, :, 0]):
        middle = clip[~np.isnan(clip)][50:-50]
        expected = sine(items.lengths[i], 500 + 100 * i, rate)[50:-50]
        np.testing.assert_allclose(middle, expected, atol=0.01)


def test_items_at_another_rate():
    items = data.open(clips())
    assert data.open(items) is data.open(items, rate=RATE) is items
    halved = data.open(items, rate=4000)
    assert (halved.rate, halved.lengths.tolist()) == (4000, [500, 1500, 1000, 750])
    assert halved.fingerprint == data.open(clips(), rate=4000).fingerprint


@pytest.mark.parametrize("rate", [None, 16_000])
def test_clips_without_sound_are_left_out_with_all_that_is_known_of_them(rate):
    parts = [sine(1000), np.zeros(1000), sine(1000), sine(300), np.zeros(0), sine(1000), sine(1000)]
    parts[2][500] = np.nan
    parts[5][:] = np.inf
    source = {
        "audio": np.concatenate([sine(10), *parts, sine(10)]),  # ten samples of no clip at either end
        "offsets": np.cumsum([10, *map(len, parts)]),
        "rate": RATE,
        "y": np.arange(7),
        "group": np.arange(7) * 10,
        "is_test": np.arange(7) % 2,
    }
    items = data.open(source, rate=rate)
    assert [(skip.path, skip.reason) for skip in items.skipped] == [
        ("clip 1", "silent"),
        ("clip 2", "holds NaN"),
        ("clip 3", "shorter than 0.05 s"),
        ("clip 4", "shorter than 0.05 s"),
        ("clip 5", "holds infinity"),
    ]
    assert items.labels.tolist() == [0, 6]
    assert items.groups.tolist() == [0, 60]
    assert items.test.tolist() == [False, False]
    assert items.lengths.tolist() == [2000, 2000] if rate else [1000, 1000]
    assert len(items.array) == items.offsets[-1]
    np.testing.assert_array_equal(*items[np.array([0, 1])])


@pytest.mark.parametrize(
    ("rate", "wanted", "got"), [(1, 8000, "1"), (8000, 10**9, "1,000,000,000"), (8000, 500, "500")]
)
def test_rates_that_would_make_a_clip_grow_without_bound(rate, wanted, got):
    source = clips() | {"rate": rate}
    expected = "a recording must have 1,000 to 400,000 samples a second, got"
    with pytest.raises(data.DataError, match=rf"^{expected} {got} in arrays audio"):
        data.open(source, rate=wanted)
    assert data.open(source).rate == rate, "as it is, it does no harm"


def test_clips_that_would_not_fit_into_memory_at_another_rate(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 16)
    assert len(data.open(clips())) == 4
    with pytest.raises(data.DataError, match=r"^arrays audio.* would take about .* of memory, and 64 KiB are free$"):
        data.open(clips(), rate=16_000)


def test_no_clip_with_sound():
    source = {"audio": np.zeros(4000, np.int16), "offsets": [0, 2000, 4000]}
    assert refused(source) == "no usable sequence in arrays audio, offsets: clip 1: silent"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"offsets": [0, 3000, 2000, 4000, 5000]}, "offsets must increase, got 3000 before 2000"),
        ({"offsets": [0, 10, 20, 30, 7501]}, "offsets must be within the audio, 0..7500, got 0..7501"),
        ({"offsets": [-1, 10, 20, 30, 40]}, "offsets must be within the audio, 0..7500, got -1..40"),
        ({"offsets": OFFSETS * 1.0}, "offsets must be whole numbers of shape (n + 1,), got (5,) of float64"),
        ({"offsets": [OFFSETS]}, "offsets must be whole numbers of shape (n + 1,), got (1, 5) of int64"),
        ({"rate": [8000, 16_000]}, "rate must be a whole number of samples a second, got [8000, 16000]"),
        ({"rate": np.inf}, "rate must be a whole number of samples a second, got inf"),
        (
            {"audio": np.zeros((7500, 2), np.int16)},
            "audio must be int16 or floating, of shape (samples,), got (7500, 2) of int16",
        ),
        (
            {"audio": np.zeros(7500, np.int32)},
            "audio must be int16 or floating, of shape (samples,), got (7500,) of int32",
        ),
    ],
)
def test_what_is_wrong_with_them(change, sentence):
    assert refused(clips(**change)) == f"{sentence} in arrays audio, offsets, rate, y, speaker, is_test"


def test_columns_that_do_not_fit():
    sentence = "labels must have one entry per item, 4 in arrays audio, offsets, rate, y, speaker, is_test, got 2"
    assert refused(clips(y=[1, 2])) == sentence
    assert refused({"audio": np.zeros(9)}) == "expected offsets beside audio in arrays audio, got none"
