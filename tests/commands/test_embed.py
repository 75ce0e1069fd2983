"""`embed`: the vector of every item in a file, shard by shard, without repeating what was done."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from PIL import Image
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app
from likewise.commands import embed as module
from likewise.data.embeddings import read_embeddings
from likewise.encoders import known
from likewise.encoders.features import place_of
from likewise.evaluation.geometry import geometry, verdict
from likewise.training.signals import Interrupted


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

    made, embedding = Made(), known.features

    def counting(network, augmentation, items, ids, *rest):
        made.happens.get(made.shards, lambda: None)()
        made.shards += 1
        made.items += len(ids)
        return embedding(network, augmentation, items, ids, *rest)

    monkeypatch.setattr(known, "features", counting)
    return made


@pytest.fixture
def as_rank(monkeypatch):
    """As torchrun tells a process who it is."""

    def told(rank, world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))

    return told


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
    folder, odd = tmp_path / "pictures", os.fsdecode(b"\xff")  # bytes that are no UTF-8
    for name in ("b/two.png", "a/one.png", "a/three.png", f"{odd}/{odd}.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), len(name)).save(folder / name)
    grey = likewise.train(folder, method="e2e", steps=1, batch_size=2, out=tmp_path / "run", progress=False)
    table = parquet.read_table(likewise.embed(grey.folder, folder, out=tmp_path / "v.parquet", progress=False))
    assert table.column("id").to_pylist() == [0, 1, 2, 3]
    assert table.column("path").to_pylist() == ["a/one.png", "a/three.png", "b/two.png", r"\udcff/\udcff.png"]
    assert table.column("label").to_pylist() == ["a", "a", "b", r"\udcff"]
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
    with pytest.raises(
        Interrupted, match=r"^stopped after 1,000 of 1,797 items; run the same command again to continue$"
    ):
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


@pytest.mark.parametrize("torn", [0, 100, 2000])
def test_a_torn_shard_is_made_anew(run, expected, tmp_path, made, torn):
    """A power cut can leave a file that is there and has not all its bytes."""
    out = tmp_path / "v.npy"
    made.at(1, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        likewise.embed(run.folder, out=out, progress=False)
    os.truncate(tmp_path / "v.npy.parts" / "000000.npy", torn)
    likewise.embed(run.folder, out=out, progress=False)
    assert made.items == 1797 + 500, "the whole one is taken as it is"
    assert np.array_equal(np.load(out), expected.vectors)


def test_long_sequences_are_fewer_in_a_shard(monkeypatch):
    monkeypatch.setattr(module, "SHARD", 4)
    monkeypatch.setattr(module, "SHARD_SAMPLES", 100)
    lengths = np.array([40, 60, 10, 300, 20, 20, 20, 20, 20])
    audio = np.random.default_rng(0).normal(size=lengths.sum()).astype(np.float32) / 10
    clips = {"audio": audio, "offsets": np.cumsum([0, *lengths]), "rate": 100}
    bounds = list(module._bounds(data.open(clips, progress=False), np.arange(len(lengths))))
    assert bounds == [(0, 2), (2, 3), (3, 4), (4, 8), (8, 9)]


def test_what_cannot_be_read_is_not_said_to_be_unwritable(run, tmp_path, made):
    def broken():
        raise OSError(5, "Input/output error", "photo.png")

    made.at(1, broken)
    with pytest.raises(OSError, match=r"photo\.png"):
        likewise.embed(run.folder, out=tmp_path / "v.npy", progress=False)


def test_an_encoder_stays_where_it_is(run, expected, tmp_path, monkeypatch):
    """Whoever made it decides that."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    encoder = run.encoder
    likewise.embed(encoder, out=tmp_path / "v.npy", progress=False)
    assert {value.device.type for value in encoder.state_dict().values()} == {"cpu"}
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected.vectors)


def test_a_run_is_loaded_to_the_accelerator_of_its_rank(run, tmp_path, monkeypatch):
    used = []

    def noting(network, augmentation, items, ids, *rest):
        used.append(place_of(network).device)
        return torch.zeros(len(ids), 1)

    monkeypatch.setattr(known, "features", noting)
    monkeypatch.setattr(module.Encoder, "fingerprint", lambda *_: "of weights that a meta device does not have")
    monkeypatch.setattr(module.ranks, "device", lambda: torch.device("meta"))
    likewise.embed(run.folder, out=tmp_path / "v.npz", progress=False)
    assert set(used) == {torch.device("meta")}


@pytest.mark.parametrize("ending", module.WRITERS)
def test_a_rank_that_had_finished_has_nothing_to_do(run, expected, tmp_path, made, as_rank, ending):
    """The same command again, after one of two was cut off."""
    out = tmp_path / f"v{ending}"
    as_rank(0, 2)
    first = likewise.embed(run.folder, out=out, progress=False)
    for rank in (0, 1):
        as_rank(rank, 2)
        path = likewise.embed(run.folder, out=out, progress=False)
        assert path.name == f"v-0000{rank}-of-00002{ending}"
    assert made.items == 1797, "each item once"
    np.testing.assert_allclose(np.vstack([vectors_in(first), vectors_in(path)]), expected.vectors, rtol=1e-4, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"^--out must be a new file, got .*-00001-of-00002\..*, which exists; several ranks cannot "
    ):
        likewise.embed(run.folder, out=out, layer="head", progress=False)


@pytest.mark.parametrize("rank", [0, 2])
def test_more_ranks_than_items_are_refused_by_all(run, here, as_rank, rank):
    np.save("two.npy", np.zeros((2, 8, 8), dtype=np.uint8))
    as_rank(rank, 3)
    result = command(run.folder, "two.npy", "--out", "v.npy")
    assert result.exit_code == 1
    assert result.stderr == "likewise: there must be at most as many ranks as the 2 items in two.npy, got 3 ranks\n"
    assert os.listdir() == ["two.npy"]


def test_each_rank_writes_its_part(run, expected, tmp_path, as_rank):
    """As torchrun starts them: each is told who it is, and none has to wait for the other."""
    for rank in (0, 1):
        as_rank(rank, 2)
        result = command(run.folder, "--out", tmp_path / "v.npz")
        assert result.exit_code == 0, result.output
    parts = []
    for rank in (0, 1):
        with np.load(tmp_path / f"v-0000{rank}-of-00002.npz") as archive:
            parts.append(dict(archive))
    assert np.concatenate([part["ids"] for part in parts]).tolist() == list(range(1797))
    found = np.concatenate([part["vectors"] for part in parts])
    np.testing.assert_allclose(found, expected.vectors, rtol=1e-4, atol=1e-5)


MISTAKES = {
    "vectors.csv": "--out must end in .parquet, .npz, .npy, got vectors.csv",
    "there.npy": "--out must be a new file, got there.npy, which exists; only .parquet or .npz can be brought up to "
    "date: .npy has no room for digests",
    "mine.npy": "mine.npy.parts is needed for temporary files, but it holds files that likewise did not write",
    "v.npy --layer neck": "layer must be backbone or head, got 'neck'",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_end_in_one_sentence(run, here, words):
    (here / "there.npy").write_bytes(b"mine")
    (here / "mine.npy.parts").mkdir()
    (here / "mine.npy.parts" / "notes.txt").write_bytes(b"mine")
    result = command(run.folder, "--out", *words.split())
    assert result.exit_code == 1
    assert result.stderr == f"likewise: {MISTAKES[words]}\n"
    assert (here / "there.npy").read_bytes() == (here / "mine.npy.parts" / "notes.txt").read_bytes() == b"mine"


def test_vectors_that_have_collapsed_are_said_to_have_in_the_words_of_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 8)
    pixels = np.full((30, 8, 8), 128, dtype=np.uint8)
    pixels[np.arange(30), np.arange(30) % 8, np.arange(30) // 8] += 1
    said = []
    path = likewise.embed(run.folder, pixels, out=tmp_path / "vectors.npy", progress=False, say=said.append)
    assert said == [verdict(geometry(torch.from_numpy(np.load(path))))]
    assert said[0].startswith("collapsed: nearly all items have the same embedding (two items have a mean cosine of ")


def test_a_second_embed_into_the_same_file_is_refused_and_the_first_goes_on(run, expected, tmp_path, made):
    out, second = tmp_path / "v.npy", []
    made.at(1, lambda: second.append(command(run.folder, "--out", out, "--layer", "head")))
    likewise.embed(run.folder, out=out, progress=False)
    (result,) = second
    assert result.exit_code == 1
    assert result.stderr == (
        f"likewise: {out} is in use: another likewise process writes to it; wait until it ends, or choose another "
        "--out\n"
    )
    assert np.array_equal(np.load(out), expected.vectors)
    assert os.listdir(tmp_path) == ["v.npy"], "nothing else is left behind"


def with_weights(run, folder, change):
    """The run, with the weights of its encoder changed."""
    shutil.copytree(run.folder, folder)
    with safetensors.safe_open(folder / "encoder.safetensors", framework="pt") as file:
        about = file.metadata()
    weights = safetensors.torch.load_file(folder / "encoder.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, folder / "encoder.safetensors", metadata=about)
    return folder


def test_an_encoder_of_weights_that_are_no_numbers_is_refused(run, here):
    """Such runs could be made before their last step was looked at."""
    broken = with_weights(run, here / "run", lambda weights: weights["conv1.weight"].fill_(torch.nan))
    result = command(broken, "--out", "v.npy")
    assert result.exit_code == 1
    assert result.stderr == (
        f"likewise: the weights of {broken} are not finite, such as conv1.weight: train again with a lower "
        "optimizer.lr (see docs/guide/reading-a-run.md#not-finite)\n"
    )
    assert os.listdir() == ["run"]


def test_vectors_that_are_no_numbers_are_not_written(run, here):
    """Of statistics of batch norm, say, which may be of another program."""
    broken = with_weights(run, here / "run", lambda weights: weights["bn1.running_var"].fill_(torch.nan))
    result = command(broken, "--out", "v.npy")
    assert result.exit_code == 1
    expected = "likewise: the encoder gives a vector that is not finite for item 0 of digits"
    assert result.stderr.splitlines()[-1] == f"{expected} (see docs/guide/reading-a-run.md#not-finite)"
    assert not (here / "v.npy").exists()


def test_data_that_change_while_they_are_embedded_end_it(run, here, made):
    rows = np.random.default_rng(0).integers(0, 256, (1200, 8, 8), dtype=np.uint8)
    np.save("x.npy", rows)
    made.at(1, lambda: os.utime("x.npy", ns=(1, 1)))
    result = command(run.folder, "x.npy", "--out", "v.npy")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "likewise: the data changed while it was being embedded: x.npy was written to after it was opened; "
        "run the same command to start again"
    )
    assert not (here / "v.npy").exists()
