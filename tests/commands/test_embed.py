"""`embed`: the vector of every item in a file, shard by shard, without repeating what was done."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.commands import embed as module
from likewise.data.embeddings import read_embeddings
from likewise.training.signals import Interrupted

ROOT = Path(__file__).parents[2]


def command(*arguments):
    return CliRunner().invoke(app, ["embed", *map(str, arguments)])


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD", 500)


@pytest.fixture(scope="module")
def expected(run):
    return run.encoder.embed("digits", progress=False)


@pytest.fixture
def made(monkeypatch):
    """How many items were embedded, and a way to let something happen before the so many-th shard."""

    class Made:
        items = 0
        shards = 0

        def at(self, shard, happens):
            self.happens = {shard: happens}

        happens: dict = {}  # noqa: RUF012

    made, embedding = Made(), module.features

    def counting(network, augmentation, items, ids):
        made.happens.get(made.shards, lambda: None)()
        made.shards += 1
        made.items += len(ids)
        return embedding(network, augmentation, items, ids)

    monkeypatch.setattr(module, "features", counting)
    return made


def vectors_in(path):
    if path.suffix == ".npy":
        return np.load(path)
    return read_embeddings(path).array


@pytest.mark.parametrize("ending", module.WRITERS)
def test_vectors_are_those_of_the_encoder_in_the_order_of_the_items(run, expected, tmp_path, ending):
    result = command(run.folder, "--out", tmp_path / f"vectors{ending}")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"vectors in {tmp_path / f'vectors{ending}'}\n"
    assert np.array_equal(vectors_in(tmp_path / f"vectors{ending}"), expected.vectors)
    assert os.listdir(tmp_path) == [f"vectors{ending}"], "nothing else is left behind"


def test_parquet_has_id_path_and_label(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "pictures"
    from PIL import Image

    for name in ("b/two.png", "a/one.png", "a/three.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), len(name)).save(folder / name)
    grey = likewise.train(folder, method="e2e", steps=1, batch_size=2, out=tmp_path / "run", progress=False)
    table = parquet.read_table(likewise.embed(grey.folder, folder, out=tmp_path / "v.parquet", progress=False))
    assert table.column("id").to_pylist() == [0, 1, 2]
    assert table.column("path").to_pylist() == ["a/one.png", "a/three.png", "b/two.png"]
    assert table.column("label").to_pylist() == ["a", "a", "b"]
    about = json.loads(table.schema.metadata[b"likewise"])
    assert about["encoder"] == grey.encoder.fingerprint("backbone")
    assert about["layer"] == "backbone"


def test_npz_can_be_evaluated(run, tmp_path):
    path = likewise.embed(run.folder, out=tmp_path / "v.npz", layer="head", progress=False)
    found = likewise.evaluate(path)
    assert found["embeddings"]["knn"]["accuracy"] > 0.8
    with np.load(path) as archive:
        assert archive["vectors"].shape == (1797, 128)
        assert archive["ids"].tolist() == list(range(1797))
        assert json.loads(str(archive["about"]))["layer"] == "head"


@pytest.mark.parametrize("after", [1, 3])
def test_what_was_finished_is_not_done_again(run, expected, tmp_path, made, after):
    class PowerCutError(Exception):
        pass

    def power_cut():
        raise PowerCutError

    out = tmp_path / "v.npz"
    made.at(after, power_cut)
    with pytest.raises(PowerCutError):
        likewise.embed(run.folder, out=out, progress=False)
    assert not out.exists()
    made.happens = {}
    likewise.embed(run.folder, out=out, progress=False)
    assert made.items == 1797, "each item once"
    assert np.array_equal(vectors_in(out), expected.vectors)


def test_told_to_end_it_says_how_to_go_on(run, expected, tmp_path, made):
    made.at(1, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted, match=r"^stopped after 1,000 of 1,797 items; the same command goes on$"):
        likewise.embed(run.folder, out=tmp_path / "v.npy", progress=False)
    likewise.embed(run.folder, out=tmp_path / "v.npy", progress=False)
    assert made.items == 1797
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected.vectors)


def test_shards_of_another_encoder_or_layer_are_not_taken(run, tmp_path, made):
    out = tmp_path / "v.npy"
    made.at(2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        likewise.embed(run.folder, out=out, progress=False)
    made.happens = {}
    likewise.embed(run.folder, out=out, layer="head", progress=False)
    assert np.array_equal(np.load(out), run.encoder.embed("digits", layer="head", progress=False).vectors)


def test_each_rank_writes_its_part(run, expected, tmp_path):
    """As torchrun starts them: each is told who it is, and none has to wait for the other."""
    out = tmp_path / "v.npz"
    for rank in ("0", "1"):
        environment = {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"}
        arguments = [sys.executable, "-m", "likewise", "embed", str(run.folder), "--out", str(out)]
        subprocess.run(arguments, cwd=ROOT, env=environment, check=True, capture_output=True)
    parts = [np.load(tmp_path / f"v-0000{rank}-of-00002.npz") for rank in (0, 1)]
    assert np.concatenate([part["ids"] for part in parts]).tolist() == list(range(1797))
    found = np.concatenate([part["vectors"] for part in parts])
    np.testing.assert_allclose(found, expected.vectors, rtol=1e-4, atol=1e-5)


MISTAKES = {
    "vectors.csv": "--out must end in .parquet, .npz, .npy, got vectors.csv",
    "there.npy": "--out must be a new file, got there.npy, which is there",
    "v.npy --layer neck": "layer must be backbone or head, got 'neck'",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_end_in_one_sentence(run, here, words):
    (here / "there.npy").write_bytes(b"mine")
    result = command(run.folder, "--out", *words.split())
    assert result.exit_code == 1
    assert result.stderr == f"likewise: {MISTAKES[words]}\n"
    assert (here / "there.npy").read_bytes() == b"mine"
