"""`cache`: what is kept of decoded data, and that what is removed is old, not in use, and the cache's own."""

import json
import os
import time

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app

DAY = 86_400


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache of this test alone, in which others keep a file too."""
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "thesis.npy").write_text("mine")
    return tmp_path / "cache"


def opened(folder, *, days_ago=0):
    """Decode a few images from `folder`, as if that had been so many days ago."""
    folder.mkdir()
    for i in range(3):
        Image.fromarray(np.full((8, 8, 3), i, dtype=np.uint8)).save(folder / f"{i}.png")
    before = set(folder.parent.joinpath("cache").iterdir())
    items = data.open(folder, progress=False)
    for path in set(folder.parent.joinpath("cache").iterdir()) - before:
        os.utime(path, (time.time() - days_ago * DAY,) * 2)
    return items


def command(*arguments):
    result = CliRunner().invoke(app, ["cache", *arguments])
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


def as_json(*arguments):
    result = CliRunner().invoke(app, ["cache", *arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def sources(found):
    return [entry["source"] for entry in found]


def test_entries_are_listed_with_source_size_and_last_use(tmp_path, place):
    opened(tmp_path / "old", days_ago=40)
    opened(tmp_path / "new")
    found = as_json()
    assert found["folder"] == str(place)
    assert sources(found["entries"]) == [str(tmp_path / "new"), str(tmp_path / "old")], "the last used first"
    for entry in found["entries"]:
        size = sum((place / f"{entry['key']}.{kind}").stat().st_size for kind in ("npy", "json"))
        assert entry["bytes"] == size > 3 * 8 * 8 * 3
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 40 * DAY))
    assert found["entries"][1]["used"].startswith(day)
    code, printed, _ = command()
    assert code == 0
    for word in ("source", "size", "last used", str(tmp_path / "old"), day, "2 entries, ", f" in {place}"):
        assert word in printed


def test_opening_the_source_again_is_a_use(tmp_path):
    opened(tmp_path / "old", days_ago=40)
    data.open(tmp_path / "old", progress=False)
    assert as_json("--older-than", "30d")["removed"] == []


def test_what_was_not_used_for_long_is_removed_and_decoded_again_when_it_is_wanted(tmp_path, place):
    old = opened(tmp_path / "old", days_ago=40).fingerprint
    opened(tmp_path / "new", days_ago=20)
    code, printed, _ = command("--older-than", "30d")
    assert code == 0
    assert "removed 1 entry, " in printed
    assert "; now 1 entry, " in printed
    assert sources(as_json()["entries"]) == [str(tmp_path / "new")]
    assert data.open(tmp_path / "old", progress=False).fingerprint == old
    assert (place / "thesis.npy").read_text() == "mine"


@pytest.mark.parametrize(("age", "removed"), [("12h", 2), ("39d", 1), ("6w", 0), ("0h", 2)])
def test_ages_are_hours_days_or_weeks(tmp_path, age, removed):
    opened(tmp_path / "old", days_ago=40)
    opened(tmp_path / "new", days_ago=1)
    assert len(likewise.cache(older_than=age).removed) == removed


def test_all_is_everything_but_what_is_in_use_and_what_is_not_the_caches(tmp_path, place):
    opened(tmp_path / "free")
    used = opened(tmp_path / "used")
    opened(tmp_path / "written")
    (written,) = (entry for entry in as_json()["entries"] if entry["source"] == str(tmp_path / "written"))
    with FileLock(place / f"{written['key']}.lock"):  # as one who writes it anew does
        found = as_json("--all")
    assert sources(found["removed"]) == [str(tmp_path / "free")]
    assert (
        sorted(sources(found["in_use"]))
        == sources(found["entries"][::-1])
        == [
            str(tmp_path / "used"),
            str(tmp_path / "written"),
        ]
    )
    assert used[np.arange(3)].max() == 2, "it can still be read"
    del used
    code, printed, _ = command("--all")
    assert code == 0
    assert "removed 2 entries, " in printed
    assert f"now 0 entries, 0 bytes in {place}" in printed
    assert os.listdir(place) == ["thesis.npy"]


def test_what_killed_writers_left_goes_too(tmp_path, place):
    (place / f"{'a' * 40}.123.tmp").touch()
    (place / f"{'b' * 40}.npy").write_bytes(b"whose JSON was never written")
    found = as_json("--all")
    assert sources(found["removed"]) == [None]
    assert os.listdir(place) == ["thesis.npy"]


def test_a_cache_that_is_not_there_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path / "nowhere"))
    assert f"0 entries, 0 bytes in {tmp_path / 'nowhere'}" in command()[1]
    assert command("--all")[0] == 0
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("age", ["30", "d", "-1d", "30 days", "1.5d", ""])
def test_an_age_that_is_none_is_one_sentence(tmp_path, age):
    opened(tmp_path / "old", days_ago=4000)
    code, printed, stderr = command("--older-than", age)
    assert (code, printed) == (1, "")
    assert stderr == f"likewise: --older-than must be an age such as 12h, 30d or 2w, got {age!r}\n"
    assert len(likewise.cache().entries) == 1


def test_some_and_all_is_a_contradiction(tmp_path):
    opened(tmp_path / "old", days_ago=40)
    code, _, stderr = command("--older-than", "90d", "--all")
    assert code == 1
    assert stderr == "likewise: give --older-than or --all, not both, got --older-than 90d and --all\n"
    assert len(likewise.cache().entries) == 1
