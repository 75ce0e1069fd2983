"""Files of a folder that are not read: each is listed with the reason, counted by its kind, and nothing else is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from likewise import data
from likewise.data import images, unread
from tests.data.conftest import plain, save
from tests.data.test_audio import tone, write

ROOT = Path(__file__).parents[2]
WITHOUT_HEIF = pytest.mark.skipif("heic" in images.EXTENSIONS, reason="pillow-heif is installed")
VIDEO = "video is not read: save its frames as images, or its sound as WAV"
CONVERT = "convert it to WAV, FLAC or MP3"
HEIC = "it is read where pillow-heif is installed: pip install pillow-heif"


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\0")
    return folder


def reasons(items):
    return {skip.path: skip.reason for skip in items.skipped}


def test_files_beside_images(tmp_path):
    write(tmp_path, sound__wav=tone())
    touch(tmp_path, "film.mp4", "deep/film.MOV", "drawing.svg", "mask.npy", "scan", "raw.cr2", "odd.of 2021-05-03")
    items = data.open(save(tmp_path, a=plain(1), deep__b=plain(2)))
    assert items.paths == ("a.png", "deep/b.png")
    assert reasons(items) == {
        "deep/film.MOV": VIDEO,
        "drawing.svg": "it has no pixels: convert it to PNG",
        "film.mp4": VIDEO,
        "mask.npy": "the folder is read as images",
        "odd.of 2021-05-03": "a kind of file that is not read",
        "raw.cr2": "a kind of file that is not read",
        "scan": "a kind of file that is not read",
        "sound.wav": "the folder is read as images",
    }
    assert unread.in_words(items) == "left out: 2 without an ending, 1 .mov, 1 .svg, 1 .mp4, 1 .npy, 2 of other kinds"


def test_what_describes_data_is_not_missed(tmp_path):
    side = (
        "README",
        "README.md",
        "LICENSE",
        "notes.txt",
        "a.json",
        "a.xml",
        "labels.csv",
        "Thumbs.db",
        "deep/desktop.ini",
    )
    touch(tmp_path, *side, ".DS_Store", ".hidden/film.mp4")
    items = data.open(save(tmp_path, a=plain(1), b=plain(2)))
    assert (items.skipped, unread.in_words(items)) == ((), "")


def test_files_beside_recordings(tmp_path):
    touch(save(write(tmp_path, a__wav=tone(), b__wav=tone()), cover=plain(1)), "c.m4a", "d.aiff", "film.mkv", "e.heic")
    items = data.open(tmp_path)
    assert reasons(items) == {
        "c.m4a": CONVERT,
        "cover.png": "the folder is read as recordings",
        "d.aiff": CONVERT,
        "e.heic": "a kind of file that is not read"
        if "heic" not in images.EXTENSIONS
        else "the folder is read as recordings",
        "film.mkv": VIDEO,
    }


def test_files_beside_tables_and_shards(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "logs").mkdir()
    for name in "ab":
        (tmp_path / "logs" / f"{name}.csv").write_text("ax,ay\n" + "".join(f"{i},{i * i % 7}\n" for i in range(9)))
    save(tmp_path / "logs", picture=plain(1))
    assert reasons(data.open(tmp_path / "logs")) == {"picture.png": "the folder is read as tables"}
    picture = (tmp_path / "logs" / "picture.png").read_bytes()
    (tmp_path / "shards").mkdir()
    pq.write_table(pa.table({"image": [picture] * 3}), tmp_path / "shards" / "x.parquet")
    touch(tmp_path / "shards", "film.mp4")
    assert reasons(data.open(tmp_path / "shards")) == {"film.mp4": VIDEO}


def test_a_shards_folder_that_cannot_be_entered_is_said(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    picture = (save(tmp_path / "one", a=plain(1)) / "a.png").read_bytes()
    (tmp_path / "shards").mkdir()
    pq.write_table(pa.table({"image": [picture] * 3}), tmp_path / "shards" / "x.parquet")
    closed = data.Skipped("closed/", "permission denied")
    walk = data.source.folder.walk
    monkeypatch.setattr(data.source.folder, "walk", lambda *given: (walk(*given)[0], (closed,)))
    for _ in range(2):  # decoded, and from the cache
        assert data.open(tmp_path / "shards").skipped == (closed,)


def test_what_is_left_out_is_looked_at_anew_where_the_images_are_cached(tmp_path, monkeypatch):
    save(tmp_path, a=plain(1), b=plain(2))
    assert data.open(tmp_path).skipped == ()
    touch(tmp_path, "film.mp4")
    monkeypatch.setattr(images, "decode", None)
    assert reasons(data.open(tmp_path)) == {"film.mp4": VIDEO}


@WITHOUT_HEIF
def test_heic_says_which_package_reads_it(tmp_path):
    items = data.open(touch(save(tmp_path, a=plain(1), b=plain(2)), "c.heic", "d.HEIC", "e.heif", "film.mp4"))
    assert reasons(items) == {"c.heic": HEIC, "d.HEIC": HEIC, "e.heif": HEIC, "film.mp4": VIDEO}
    found = unread.kinds_in_words(items.skipped)
    assert found == "2 .heic (pip install pillow-heif), 1 .heif (pip install pillow-heif), 1 .mp4"


@WITHOUT_HEIF
def test_an_image_with_a_caption_that_is_not_read_is_listed_once(tmp_path):
    touch(save(tmp_path, a=plain(1), b=plain(2)), "c.heic")
    (tmp_path / "captions.csv").write_text("image,caption\na.png,a\nb.png,b\nc.heic,c\n")
    items = data.open(tmp_path)
    assert items.skipped == (data.Skipped("c.heic", HEIC, ".heic"),)


@WITHOUT_HEIF
def test_a_folder_of_heic_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path / "photos", "a.heic", "b.heic", "notes.txt")
    with pytest.raises(data.DataError) as refused:
        data.open("photos")
    assert str(refused.value).endswith(f"; got 3 files of other kinds (.heic, .txt): {HEIC}")


TEACHER = """
from PIL import Image, PpmImagePlugin

class Heif(PpmImagePlugin.PpmImageFile):
    format = "HEIF"

def register_heif_opener():
    Image.register_open("HEIF", Heif, lambda start: start.startswith(b"P6"))
"""
OPENER = """
import sys
from likewise import data
items = data.open(sys.argv[1], progress=False)
print(items.paths, items.array[:, 0, 0, 0].tolist(), items.skipped)
"""


def test_heic_is_read_where_pillow_heif_is_installed(tmp_path):
    """By a package of that name that knows another format: what is tested is that it is asked."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "pillow_heif.py").write_text(TEACHER)
    photos = save(tmp_path / "photos", a=plain((7, 0, 0)))
    plain((9, 0, 0)).save(photos / "b.heic", "ppm")
    path = f"{tmp_path / 'package'}:{ROOT}"
    run = subprocess.run(
        [sys.executable, "-c", OPENER, photos],
        env={"PYTHONPATH": path, "LIKEWISE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "('a.png', 'b.heic') [7, 9] ()\n", run.stderr


@pytest.mark.skipif("avif" not in images.EXTENSIONS, reason="this Pillow reads no AVIF")
def test_avif_is_read_where_pillow_does(tmp_path):
    for name in "ab":
        plain((200, 30, 30), 32).save(tmp_path / f"{name}.avif")
    items = data.open(tmp_path)
    assert (items.paths, items.skipped) == (("a.avif", "b.avif"), ())
    np.testing.assert_allclose(items.array.mean(axis=(0, 2, 3)), (200, 30, 30), atol=8)


@pytest.mark.parametrize("ending", ["mp3", "opus"])
def test_mp3_and_opus_are_read_where_libsndfile_does(tmp_path, ending, monkeypatch):
    write(tmp_path, 48_000, a__wav=tone(seconds=1, rate=48_000))
    container = {"mp3": "MP3", "opus": "OGG"}[ending]
    coding = {"mp3": "MPEG_LAYER_III", "opus": "OPUS"}[ending]
    soundfile.write(tmp_path / f"b.{ending}", tone(seconds=1, rate=48_000), 48_000, format=container, subtype=coding)
    items = data.open(tmp_path)
    assert (items.paths, items.skipped) == (("a.wav", f"b.{ending}"), ())
    assert abs(items.lengths[1] - 16_000) < 2000, "some of it is silence that the coder adds"
    first, second = (np.abs(np.fft.rfft(np.nan_to_num(clip[:, 0]))).argmax() for clip in items[np.array([0, 1])])
    assert abs(int(first) - int(second)) <= 2, "the same tone"
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": "", "OGG": ""})
    monkeypatch.setattr(soundfile, "available_subtypes", lambda of: {"VORBIS": ""})
    reason = f"libsndfile {soundfile.__libsndfile_version__} does not read it: pip install -U soundfile"
    items = data.open(tmp_path)
    assert items.skipped == (data.Skipped(f"b.{ending}", reason, f".{ending}"),)
    assert unread.in_words(items) == f"left out: 1 .{ending} (pip install -U soundfile)"
    (tmp_path / "a.wav").unlink()
    with pytest.raises(
        data.DataError, match=rf"^no readable recording in .*: b\.{ending}: libsndfile .* does not read it"
    ):
        data.open(tmp_path)


def test_an_mp3_that_is_cut_off_is_left_out(tmp_path):
    write(tmp_path, a__wav=tone())
    for name in ("b", "c"):
        rng = np.random.default_rng(0)
        soundfile.write(tmp_path / f"{name}.mp3", rng.uniform(-0.5, 0.5, 64_000), 16_000, format="MP3")
    whole = (tmp_path / "c.mp3").read_bytes()
    (tmp_path / "c.mp3").write_bytes(whole[: len(whole) // 2])
    items = data.open(tmp_path)
    assert items.paths == ("a.wav", "b.mp3")
    assert [(skip.path, skip.reason[:13]) for skip in items.skipped] == [("c.mp3", "cut off after")]


@pytest.mark.parametrize(
    ("skipped", "captions", "sentence"),
    [
        ((), False, ""),
        ((("a.png", "torn", ""),), False, "1 file could not be read"),
        ((("a.png", "torn", ""), ("b.png", "torn", "")), False, "2 files could not be read"),
        ((("a.png", "no caption", ""),), True, "1 image without a caption left out"),
        ((("a.png", "no caption", ""),) * 653, True, "653 images without captions left out"),
        (
            (("a.png", "no caption", ""), ("captions.csv, line 2", "not UTF-8", ""), ("c.mp4", "video", ".mp4")),
            True,
            "1 image or line of captions could not be used, 1 image without a caption left out; left out: 1 .mp4",
        ),
    ],
)
def test_what_is_left_out_in_words(skipped, captions, sentence):
    items = data.items.make(
        np.zeros((2, 3, 8, 8), np.uint8),
        "photos",
        content="",
        native=8,
        captions=(("a",), ("b",)) if captions else None,
        skipped=tuple(data.Skipped(*skip) for skip in skipped),
    )
    assert unread.in_words(items) == sentence


def test_sequences_that_cannot_be_used_in_words(tmp_path):
    write(tmp_path, a__wav=tone(), b__wav=np.zeros(16_000))
    assert unread.in_words(data.open(tmp_path)) == "1 sequence could not be used"
    write(tmp_path, c__wav=np.zeros(16_000))
    assert unread.in_words(data.open(tmp_path)) == "2 sequences could not be used"
