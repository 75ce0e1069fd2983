"""`embed` into a file of an earlier state of the data: only what is new or changed passes the network."""

import os
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app
from likewise.commands import embed as module
from likewise.commands import vector_files
from likewise.data.embeddings import read_embeddings
from likewise.training.signals import Interrupted
from tests.commands.counted import CHANGES, Counted, add, picture


def assert_vectors(out, expected):
    np.testing.assert_allclose(read_embeddings(out).array, expected, rtol=1e-4, atol=1e-5)


def ids_and_paths(out):
    if out.suffix == ".npz":
        with np.load(out) as archive:
            return archive["ids"].tolist(), archive["paths"].tolist()
    table = pytest.importorskip("pyarrow.parquet").read_table(out)
    return table.column("id").to_pylist(), table.column("path").to_pylist()


@pytest.fixture
def digits(run):
    return Counted(run.folder)


@pytest.fixture(params=vector_files.READERS)
def out(request, tmp_path):
    return tmp_path / f"vectors{request.param}"


@pytest.mark.parametrize("happens", CHANGES)
def test_only_what_is_new_or_changed_passes_the_network(counted, pictures, out, happens):
    assert counted.embed(pictures, out) == ([], 10)
    happens(pictures)
    kept, new, changed, gone = CHANGES[happens]
    words = f"{out}: {kept} vectors kept, {new} new, {changed} changed, {gone} gone"
    assert counted.embed(pictures, out) == ([words], new + changed)
    assert sorted(os.listdir(out.parent)) == sorted([out.name, "pictures"]), "nothing else is left behind"
    expected = counted.encoder.embed(pictures, progress=False)
    assert_vectors(out, expected.vectors)
    assert ids_and_paths(out) == (expected.ids.tolist(), list(expected.paths))


def test_rows_of_an_array_may_be_in_another_order_and_changed_ones_are_known_by_their_id(digits, tmp_path, out):
    pixels = data.open("digits").array[:30].copy()
    assert digits.embed(pixels, out)[1] == 30
    assert digits.embed(pixels[::-1].copy(), out) == ([f"{out}: 30 vectors kept, 0 new, 0 changed, 0 gone"], 0)
    later = np.concatenate([pixels[::-1], data.open("digits").array[40:43]])
    later[7] = data.open("digits").array[50]
    assert digits.embed(later, out) == ([f"{out}: 29 vectors kept, 3 new, 1 changed, 0 gone"], 4)
    assert_vectors(out, digits.encoder.embed(later, progress=False).vectors)


def test_labels_are_those_of_now(digits, tmp_path):
    out, pixels = tmp_path / "v.npz", data.open("digits").array[:20]
    np.savez(tmp_path / "digits.npz", x=pixels, y=np.arange(20) % 2)
    digits.embed(tmp_path / "digits.npz", out)
    np.savez(tmp_path / "digits.npz", x=pixels, y=np.arange(20) % 3)
    assert digits.embed(tmp_path / "digits.npz", out)[1] == 0
    with np.load(out) as archive:
        assert archive["labels"].tolist() == [item % 3 for item in range(20)]


def test_sequences_are_known_by_their_samples(tmp_path):
    run = likewise.train("sounds", out=tmp_path / "run", steps=1, batch_size=16, progress=False)
    counted, out, sounds = Counted(run.folder), tmp_path / "v.npz", data.open("sounds").main

    def clips(*chosen):
        lengths = sounds.lengths[list(chosen)]
        audio = np.concatenate([sounds.array[sounds.offsets[row] : sounds.offsets[row + 1], 0] for row in chosen])
        return {"audio": audio, "offsets": np.cumsum([0, *lengths]), "rate": sounds.rate}

    assert counted.embed(clips(0, 1, 2, 3, 4), out)[1] == 5
    now = clips(9, 4, 3, 2, 1)
    assert counted.embed(now, out) == ([f"{out}: 4 vectors kept, 0 new, 1 changed, 0 gone"], 1)
    assert_vectors(out, counted.encoder.embed(now, progress=False).vectors)


def test_an_interrupted_update_leaves_the_file_and_goes_on(digits, tmp_path, out, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 10)
    pixels = data.open("digits").array
    digits.embed(pixels[:40], out)
    before, later = out.read_bytes(), pixels[:60]
    monkeypatch.setattr(digits.encoder, "augmentation", Stopping(digits.encoder.augmentation))
    with pytest.raises(Interrupted, match=r"^stopped after 50 of 60 items; run the same command again to continue$"):
        digits.embed(later, out)
    assert out.read_bytes() == before
    monkeypatch.undo()
    monkeypatch.setattr(module, "SHARD", 10)
    said, rows = digits.embed(later, out)
    assert said == [f"{out}: 40 vectors kept, 20 new, 0 changed, 0 gone"]
    assert rows == 10, "the other ten were embedded before"
    assert_vectors(out, digits.encoder.embed(later, progress=False).vectors)


class Stopping:
    """An augmentation that is told to end by the system when it is used."""

    def __init__(self, augmentation):
        self.augmentation = augmentation

    def plain(self, rows):
        signal.raise_signal(signal.SIGTERM)
        return self.augmentation.plain(rows)


def refused(out):
    return rf"^--out must be a new file, got {out}, which exists"


def test_vectors_of_another_layer_stay(counted, pictures, out):
    counted.embed(pictures, out)
    before = out.read_bytes()
    with pytest.raises(ValueError, match=f"{refused(out)} and does not hold vectors of this encoder and layer$"):
        likewise.embed(counted.encoder, pictures, out=out, layer="head", progress=False)
    assert out.read_bytes() == before


def test_vectors_of_other_data_stay(counted, pictures, out, tmp_path):
    """The same command for another folder, with the default --out, say."""
    counted.embed(pictures, out)
    before = out.read_bytes()
    for number in range(30, 40):
        picture(tmp_path / "others", f"{number}.png", number)
    with pytest.raises(ValueError, match=f"{refused(out)}, and most of its vectors are of other items than .*others$"):
        counted.embed(tmp_path / "others", out)
    assert out.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == sorted([out.name, "others", "pictures"])


def test_a_part_of_the_data_does_not_replace_the_whole(digits, tmp_path, out):
    whole, part = tmp_path / "whole.npy", tmp_path / "part.npy"
    pixels = data.open("digits").array[:30, 0]
    np.save(whole, pixels)
    np.save(part, pixels[:20])
    digits.embed(whole, out)
    before = out.read_bytes()
    with pytest.raises(ValueError, match=r"which exists and was made from .*whole.npy: 10 of its vectors are of items"):
        digits.embed(part, out)
    assert out.read_bytes() == before


def test_a_file_from_before_there_were_digests_stays(counted, pictures, tmp_path, monkeypatch):
    out = tmp_path / "v.npz"
    monkeypatch.setattr(module, "DIGESTED", None)
    counted.embed(pictures, out)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"{refused(out)} and cannot be brought up to date, because it has no digests"):
        counted.embed(pictures, out)


def test_a_damaged_file_is_one_sentence(counted, pictures, tmp_path):
    out = tmp_path / "v.npz"
    counted.embed(pictures, out)
    with np.load(out) as archive:
        arrays = dict(archive)
    np.savez(out, **(arrays | {"digests": arrays["digests"][1:]}))
    with pytest.raises(ValueError, match=rf"^{out} cannot be brought up to date: its vectors, digests and ids do not"):
        counted.embed(pictures, out)


def test_the_command_says_what_was_kept(photos, pictures, out):
    arguments = ["embed", str(photos), str(pictures), "--out", str(out)]
    CliRunner().invoke(app, arguments)
    add(pictures)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"vectors in {out}\n"
    assert f"note: {out}: 10 vectors kept, 2 new, 0 changed, 0 gone" in result.stderr.splitlines()
