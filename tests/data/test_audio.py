"""Folders of audio: decoded once, one channel, one rate; what holds no sound is left out and said so."""

import os

import numpy as np
import pytest
import soundfile

from likewise import data
from likewise.data import audio, memory
from tests.data.conftest import plain, save


def tone(frequency=440.0, seconds=0.5, rate=16_000, level=0.5):
    return (level * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write(folder, rate=16_000, **clips):
    """Write clips, `a__b__flac=samples` to a/b.flac."""
    for name, samples in clips.items():
        *parts, ending = name.split("__")
        path = folder.joinpath(*parts).with_suffix(f".{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, samples, rate)
    return folder


def loudest(clip, rate):
    """The frequency with the most energy."""
    return float(np.abs(np.fft.rfft(clip)).argmax()) * rate / len(clip)


@pytest.fixture
def decoded(monkeypatch):
    """The files that the decoder has seen so far."""
    calls = []
    decode = audio.decode
    monkeypatch.setattr(audio, "decode", lambda *given: calls.append(given[1].name) or decode(*given))
    return calls


def test_a_folder_of_audio_is_sequences(tmp_path):
    write(tmp_path, b__wav=tone(), a__flac=tone(330, seconds=0.25), deep__c__ogg=tone(220, seconds=0.75))
    items = data.open(str(tmp_path))
    assert (items.kind, len(items), items.paths) == ("sequence", 3, ("a.flac", "b.wav", "deep/c.ogg"))
    assert (items.array.dtype, items.array.shape) == (np.int16, (24_000, 1))
    assert items.lengths.tolist() == [4000, 8000, 12_000]
    assert items.offsets.tolist() == [0, 4000, 12_000, 24_000]
    assert (items.rate, items.channels, items.native) == (16_000, ("audio",), 8000)
    assert (items.labels, items.test, items.groups, items.skipped) == (None, None, None, ())
    np.testing.assert_allclose(items[np.array([1])][0, :, 0], tone(), atol=1e-4)


def test_whole_sequences_and_windows_are_padded_with_nan(tmp_path):
    items = data.open(write(tmp_path, a__wav=tone(seconds=0.1), b__wav=tone(seconds=0.2)))
    both = items[np.array([1, 0])]
    assert both.shape == (2, 3200, 1)
    assert np.isnan(both[:, :, 0]).sum(axis=1).tolist() == [0, 1600]
    windows = items.windows(np.array([0, 1]), np.array([1000, 1000]), 1000)
    assert np.isnan(windows[:, :, 0]).sum(axis=1).tolist() == [400, 0]
    np.testing.assert_array_equal(windows[1], both[0, 1000:2000])


def test_class_folders_and_a_test_part(tmp_path):
    clips = {f"{part}__{name}__{i}__wav": tone() for part in ("train", "test") for name in ("dog", "cat") for i in "01"}
    items = data.open(write(tmp_path, **clips))
    assert items.classes == ("cat", "dog")
    assert items.labels.tolist() == [0, 0, 1, 1] * 2
    assert items.test.tolist() == [True] * 4 + [False] * 4


def test_one_class_folder_is_no_class(tmp_path):
    items = data.open(write(tmp_path, takes__a__wav=tone(), takes__b__wav=tone()))
    assert (items.labels, items.classes) == (None, ())


@pytest.mark.parametrize(("rates", "expected"), [([8000, 8000, 44_100], 8000), ([11_025, 16_000, 48_000], 16_000)])
def test_files_of_several_rates_come_to_one(tmp_path, rates, expected):
    for place, rate in enumerate(rates):
        write(tmp_path, rate, **{f"{place}__wav": tone(1000, rate=rate)})
    items = data.open(tmp_path)
    assert items.rate == expected
    for clip in items[np.arange(3)]:
        clip = clip[~np.isnan(clip)]
        assert len(clip) == pytest.approx(expected / 2, abs=1)
        assert loudest(clip, expected) == pytest.approx(1000, abs=2)
        assert np.abs(clip[100:-100]).max() == pytest.approx(0.5, abs=0.01)


def test_what_the_new_rate_cannot_hold_is_filtered_out(tmp_path):
    both = tone(300, rate=44_100) + tone(7000, rate=44_100, level=0.4)
    write(tmp_path, 44_100, a__wav=both, b__wav=both)
    clip = data.open(tmp_path, rate=8000)[np.array([0])][0, :, 0]
    assert loudest(clip, 8000) == pytest.approx(300, abs=3)
    spectrum = np.abs(np.fft.rfft(clip))
    assert spectrum[490:510].max() < 0.02 * spectrum.max()  # 7,000 Hz would come back as 1,000


def test_channels_are_averaged(tmp_path):
    left, right = tone(400), tone(900)
    items = data.open(write(tmp_path, a__wav=np.stack([left, right], axis=1), b__wav=left))
    np.testing.assert_allclose(items[np.array([0])][0, :, 0], (left + right) / 2, atol=1e-4)


def test_loud_floats_are_clipped(tmp_path):
    soundfile.write(tmp_path / "a.wav", 3 * tone(), 16_000, subtype="FLOAT")
    items = data.open(write(tmp_path, b__wav=tone()))
    assert (items.array.min(), items.array.max()) == (-32768, 32767)


def test_each_file_without_sound_is_left_out_with_a_reason(tmp_path):
    write(tmp_path, cat__a__wav=tone(), dog__z__flac=tone(), test__x__ogg=tone())
    write(tmp_path, dog__short__wav=tone(seconds=0.04), dog__silent__wav=tone(level=5e-5))
    write(tmp_path, dog__constant__wav=np.full(9000, 0.25), dog__nothing__wav=np.zeros(0))
    folder = tmp_path / "dog"
    for name, value in {"nan": np.nan, "inf": -np.inf}.items():
        damaged = tone()
        damaged[77] = value
        soundfile.write(folder / f"{name}.wav", damaged, 16_000, subtype="FLOAT")
    for kind in ("wav", "flac", "ogg"):
        noise = np.random.default_rng(0).uniform(-1, 1, 16_000)
        soundfile.write(folder / f"cut.{kind}", noise, 16_000)
        whole = (folder / f"cut.{kind}").read_bytes()
        (folder / f"cut.{kind}").write_bytes(whole[: len(whole) // 2])
    (folder / "text.wav").write_text("no sound at all")
    (folder / "empty.wav").touch()
    for _ in range(2):  # decoded, and from the cache
        items = data.open(tmp_path)
        assert items.paths == ("cat/a.wav", "dog/z.flac", "test/x.ogg")
        assert items.labels.tolist() == [0, 1, 2]
        assert {skip.path.removeprefix("dog/"): skip.reason for skip in items.skipped} == {
            "constant.wav": "silent",
            "cut.flac": "Error : flac decoder lost sync.",
            "cut.ogg": "empty",
            "cut.wav": "cut off after 16022 of 32044 bytes",
            "empty.wav": "empty",
            "inf.wav": "holds infinity",
            "nan.wav": "holds NaN",
            "nothing.wav": "empty",
            "short.wav": "shorter than 0.05 s",
            "silent.wav": "silent",
            "text.wav": "Format not recognised.",
        }


def test_a_folder_without_one_usable_recording(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "clips", a__wav=np.zeros(16_000), b__wav=np.zeros(16_000))
    with pytest.raises(data.DataError, match=r"^no readable recording in clips: a.wav: silent$"):
        data.open("clips")
    write(tmp_path / "clips", a__wav=tone())
    assert len(data.open("clips")) == 1, "one long recording has many windows"


def test_streams_that_do_not_know_their_length(tmp_path):
    """As programs leave them that write to a pipe: the header could not be filled in at the end."""
    write(tmp_path, a__wav=tone(), b__flac=tone(), c__wav=tone())
    wav, flac = bytearray((tmp_path / "a.wav").read_bytes()), bytearray((tmp_path / "b.flac").read_bytes())
    wav[4:8] = wav[40:44] = b"\xff" * 4
    flac[21] &= 0xF0
    flac[22:26] = bytes(4)
    (tmp_path / "a.wav").write_bytes(wav)
    (tmp_path / "b.flac").write_bytes(flac)
    items = data.open(tmp_path)
    assert items.lengths.tolist() == [8000, 8000]
    assert items.skipped == (data.Skipped("b.flac", "its header does not say how long it is"),)


def test_a_header_that_counts_itself_is_not_a_cut(tmp_path):
    write(tmp_path, a__wav=tone(), b__wav=tone())
    wav = bytearray((tmp_path / "a.wav").read_bytes())
    wav[4:8] = len(wav).to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(wav)
    assert len(data.open(tmp_path)) == 2


def test_a_second_opening_decodes_nothing(tmp_path, decoded):
    write(tmp_path, **{f"{i:02}__wav": tone(100 + i) for i in range(20)})
    first, second = data.open(tmp_path), data.open(tmp_path)
    assert len(decoded) == 20
    assert isinstance(second.array, np.memmap)
    np.testing.assert_array_equal(first.array, second.array)
    assert first.offsets.tolist() == second.offsets.tolist()
    assert (first.fingerprint, first.rate, first.paths) == (second.fingerprint, second.rate, second.paths)
    assert data.open(tmp_path, rate=16_000).fingerprint == first.fingerprint
    assert len(decoded) == 20
    assert data.open(tmp_path, rate=8000).array.shape == (80_000, 1)
    assert len(decoded) == 40


def test_large_files_are_decoded_one_at_a_time_and_in_order(tmp_path, decoded, monkeypatch):
    write(
        tmp_path, **{f"{name}__wav": tone(seconds=seconds) for name, seconds in zip("abcd", (1, 3, 1, 3), strict=True)}
    )
    known = data.open(tmp_path).fingerprint
    monkeypatch.setattr(audio, "LARGE", 60_000)
    monkeypatch.setattr(audio, "BLOCK", 1000)
    monkeypatch.setattr(audio, "DECODER", audio.DECODER + 1)
    items = data.open(tmp_path)
    assert items.lengths.tolist() == [16_000, 48_000, 16_000, 48_000]
    assert items.fingerprint == known
    assert sorted(decoded) == sorted([f"{name}.wav" for name in "abcd"] * 2)


def test_the_fingerprint_follows_content_bounds_and_labels(tmp_path):
    def fingerprint(name, **clips):
        return data.open(write(tmp_path / name, **clips)).fingerprint

    a, b = ((32768 * tone(frequency)).astype(np.int16) for frequency in (440, 300))
    known = fingerprint("one", cat__a__wav=a, dog__b__wav=b)
    assert known == fingerprint("two", cat__a__wav=a, dog__b__flac=b)
    assert known != fingerprint("three", cat__a__wav=b, dog__b__wav=a)
    assert known != fingerprint("four", cat__a__wav=a, cat__b__wav=b)
    moved = np.split(np.concatenate([a, b]), [len(a) - 100])
    assert known != fingerprint("five", cat__a__wav=moved[0], dog__b__wav=moved[1])


def test_the_more_numerous_kind_wins_and_images_a_tie(tmp_path):
    write(tmp_path, a__wav=tone(), b__wav=tone())
    save(tmp_path, cover=plain(1))
    (tmp_path / "about.csv").write_text("file,title\na.wav,A\n")
    assert data.open(tmp_path).kind == "sequence"
    save(tmp_path, back=plain(2))
    assert data.open(tmp_path).kind == "image"


def test_names_of_any_kind(tmp_path):
    for name in ("é ü.wav", "日本.wav", os.fsdecode(b"\xff.wav")):
        write(tmp_path, x__wav=tone())
        (tmp_path / "x.wav").rename(tmp_path / name)
    assert set(data.open(tmp_path).paths) == {"é ü.wav", "日本.wav", "\udcff.wav"}


def test_a_rate_that_no_recording_has_is_left_out(tmp_path):
    """At one sample a second, half a second of sound would become more than an hour."""
    write(tmp_path, a__wav=tone())
    for rate in (1, 999, 400_001):
        write(tmp_path, rate, **{f"{rate}__wav": tone()})
    items = data.open(tmp_path)
    assert items.paths == ("a.wav",)
    expected = "a recording must have 1,000 to 400,000 samples a second, got"
    assert {skip.path: skip.reason for skip in items.skipped} == {
        "1.wav": f"{expected} 1",
        "400001.wav": f"{expected} 400,001",
        "999.wav": f"{expected} 999",
    }
    with pytest.raises(data.DataError, match=rf"^{expected} 1,000,000,000$"):
        data.open(tmp_path, rate=10**9)


def test_a_header_that_promises_more_than_the_file_can_hold(tmp_path):
    write(tmp_path, a__wav=tone(), b__flac=tone())
    flac = bytearray((tmp_path / "b.flac").read_bytes())
    flac[21] |= 0x0F
    flac[22:26] = b"\xff" * 4
    (tmp_path / "b.flac").write_bytes(flac)
    items = data.open(tmp_path)
    reason = "its header declares 68,719,476,735 frames, more than the file can hold"
    assert items.skipped == (data.Skipped("b.flac", reason),)


def test_a_recording_that_would_not_fit_into_memory_is_refused_and_not_remembered(tmp_path, monkeypatch):
    """It may fit when other programs have ended, so it is not taken for a damaged file."""
    write(tmp_path, 16_000, a__wav=tone(seconds=0.1), b__wav=tone(seconds=0.2))
    write(tmp_path, 8000, c__wav=tone(seconds=10, rate=8000))
    with monkeypatch.context() as little:
        little.setattr(memory, "free_memory", lambda: 1 << 20)
        with pytest.raises(data.DataError, match=r"c\.wav would take about 1\.5 MiB of memory, and 1\.0 MiB are free$"):
            data.open(tmp_path)
    assert data.open(tmp_path).paths == ("a.wav", "b.wav", "c.wav")


@pytest.mark.parametrize("rate", [0, -1, 2.5, True, "8000"])
def test_rates(tmp_path, rate):
    with pytest.raises(data.DataError, match=rf"^rate must be a whole number >= 1, got {rate!r}$"):
        data.open(tmp_path, rate=rate)


def test_without_soundfile(tmp_path, monkeypatch):
    write(tmp_path, a__wav=tone(), b__wav=tone())
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(data.DataError, match=r"^audio needs soundfile: pip install 'likewise\[audio\]'$"):
        data.open(tmp_path)
