"""`train`, `evaluate` and `finetune` on sequences: by item and by frame, by whatever labels there are."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise
from likewise import data, modalities
from likewise.cli import app
from likewise.data import DataError
from likewise.evaluation.knn import knn
from likewise.training.plan import split
from tests.waves import clips, series

QUICK = {"pairs.horizon": 2, "pairs.candidates": 16, "training.batch_size": 8, "data.workers": 0}
LENGTHS = np.arange(60) % 12 + 24


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def words(result):
    assert result.exit_code == 0, (result.output, result.exception)
    return " ".join(result.stdout.split())


def sentence(*arguments):
    """The one that a mistake ends in."""
    result = command(*arguments)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("likewise: ")


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    """A file of tones, which has two kinds of labels and calls neither of them y."""
    file = tmp_path_factory.mktemp("tones") / "tones.npz"
    found = clips(36, shortest=0.08, longest=0.12)
    np.savez(file, pitch=np.array(["low", "middle", "high"])[found.pop("y")], **found)
    return file


@pytest.fixture(scope="module")
def heard(tones, tmp_path_factory):
    """CPC on the tones, by the command."""
    folder = tmp_path_factory.mktemp("runs") / "tones"
    changes = [f"--set={key}={value}" for key, value in QUICK.items()]
    assert f"encoder in {folder}" in words(
        command("train", tones, "--column", "y=pitch", "--steps", 4, "--out", folder, *changes)
    )
    return folder


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """CPC on series of unequal length, half of them held out, for as long as it takes to learn something."""
    source = series(120, t=40, lengths=np.tile(LENGTHS, 2), kinds=4)
    settings = QUICK | {"training.batch_size": 16, "optimizer.lr": 0.005, "data.test": 0.5}
    folder = tmp_path_factory.mktemp("runs") / "series"
    return source, likewise.train(source, steps=200, settings=settings, out=folder, progress=False)


@pytest.fixture(scope="module")
def by_pitch(heard):
    """The figures of that run by the labels that it was trained with."""
    return likewise.evaluate(heard, progress=False)


def test_audio_is_compared_with_statistics_of_its_cepstra(by_pitch):
    found = by_pitch
    assert list(found) == ["about", "MFCC statistics", "untrained encoder", "learned encoder"]
    assert found["MFCC statistics"]["geometry"]["dim"] == 80
    assert found["learned encoder"]["geometry"]["dim"] == 256
    assert found["MFCC statistics"]["knn"]["accuracy"] == 1, "pitches are easily told apart"
    about = found["about"]
    assert (about["by"], about["train_items"], about["test_items"]) == ("item", 32, 4)
    assert about["test_words"] == "items not trained on"
    assert about["encoder"] == "backbone of mel_8k with gru context, 256 features, cpc, seed 0"
    assert "alignment" not in found["learned encoder"], "a window's future has no second view"


def test_other_series_are_compared_with_statistics_of_their_channels_and_the_encoder_is_better(moved):
    """By 0.3 or more in the k-NN over three seeds. Whitened, the untrained encoder is nearly as good here."""
    source, run = moved
    found = likewise.evaluate(run.encoder, source, progress=False)
    assert list(found) == ["about", "channel statistics", "untrained encoder", "learned encoder"]
    assert found["channel statistics"]["geometry"]["dim"] == 16
    learned, untrained = found["learned encoder"], found["untrained encoder"]
    assert learned["knn"]["accuracy"] > found["channel statistics"]["knn"]["accuracy"] + 0.1
    assert learned["geometry"] != untrained["geometry"]


def test_views_of_sequences_are_compared_where_the_method_has_any(tmp_path):
    source = series(60, t=40, lengths=LENGTHS)
    np.savez(tmp_path / "series.npz", **source)
    settings = {"training.batch_size": 16, "data.workers": 0}
    run = likewise.train(
        tmp_path / "series.npz", method="simclr", steps=3, settings=settings, out=tmp_path / "run", progress=False
    )
    found = likewise.evaluate(run.folder, progress=False)
    assert {"alignment", "information"} <= set(found["learned encoder"])
    assert "alignment" not in found["channel statistics"]
    assert "channel statistics" in words(command("evaluate", run.folder))
    assert likewise.evaluate(run.folder, layer="head", progress=False)["learned encoder"]["geometry"]["dim"] == 128


def test_by_frame_every_frame_has_the_label_of_its_sequence(moved):
    source, run = moved
    found = likewise.evaluate(run.encoder, source, by="frame", progress=False)
    items = data.open(source)
    train, test = split(items, run.recipe)
    frames = items.lengths // 4
    assert list(found) == ["about", "raw samples", "untrained encoder", "learned encoder"]
    for row in list(found)[1:]:
        assert (found[row]["knn"]["train"], found[row]["knn"]["test"]) == (frames[train].sum(), frames[test].sum())
        assert found[row]["knn"]["classes"] == 4
    assert found["raw samples"]["geometry"]["dim"] == 4 * 2, "the samples of a frame"
    assert found["learned encoder"]["knn"]["accuracy"] > 0.25
    assert found["about"]["test_words"] == "frames of items not trained on"


def test_frames_of_audio_are_compared_with_its_cepstra(heard):
    said = words(command("evaluate", heard, "--by", "frame"))
    assert "frames of items not trained on" in said
    for name in ("MFCC", "untrained encoder", "learned encoder"):
        assert name in said
    assert "MFCC statistics" not in said


def test_columns_pick_other_labels(heard, by_pitch, tones):
    by_player = likewise.evaluate(heard, columns={"y": "player"}, progress=False)
    items = data.open(tones, columns={"y": "player"})
    train, test = split(items, likewise.load(heard).recipe)
    vectors = modalities.of(items.main).baseline(items.main, np.arange(36))
    assert by_player["MFCC statistics"]["geometry"] == by_pitch["MFCC statistics"]["geometry"], "the same items"
    assert by_player["MFCC statistics"]["retrieval"] != by_pitch["MFCC statistics"]["retrieval"], "by other labels"
    labels = torch.from_numpy(items.labels)
    scale = vectors[train].mean(dim=0), vectors[train].std(dim=0, correction=0)
    known, tested = ((vectors[part] - scale[0]) / scale[1] for part in (train, test))
    expected = knn(known, labels[train], tested, labels[test])
    assert by_player["MFCC statistics"]["knn"]["accuracy"] == expected.accuracy
    as_json = command("evaluate", heard, "--column", "y=player", "--json")
    assert json.loads(as_json.stdout) == json.loads(json.dumps(by_player))
    framed = json.loads(command("evaluate", heard, "--by", "frame", "--column", "y=player", "--json").stdout)
    assert framed["about"]["by"] == "frame"
    assert framed["MFCC"]["knn"]["train"] > 32 * 7


def test_anyones_encoder_of_sequences_is_measured_too():
    found = likewise.evaluate("tests.training.plain_encoder:of_sequences", series(60), progress=False)
    assert list(found)[1:] == ["channel statistics", "tests.training.plain_encoder:of_sequences"]


def test_a_loud_sensor_does_not_drown_a_quiet_one_in_the_baseline():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    quiet = labels[:, None] * 0.01 + rng.normal(0, 0.001, (80, 64))
    loud = rng.normal(0, 100, (80, 1)) + rng.normal(0, 1, (80, 64))
    x = np.stack([quiet, loud, np.zeros((80, 64))], axis=2).astype(np.float32)
    encoder = "tests.training.plain_encoder:of_sequences"
    found = likewise.evaluate(encoder, {"x": x, "y": labels, "is_test": np.arange(80) >= 60}, progress=False)
    assert found["channel statistics"]["knn"]["accuracy"] == 1.0
    items = data.open({"x": x}, progress=False)
    loudest = modalities.of(items.main).baseline(items.main, np.arange(80))
    parts = loudest[:60], torch.from_numpy(labels[:60]), loudest[60:], torch.from_numpy(labels[60:])
    assert knn(*parts).accuracy < 0.8, "unscaled, the loud channel decides"


def test_mistakes_are_one_sentence(heard, tones, moved, run):
    frames = r"^by frame needs an encoder of sequences that has frames, got "
    with pytest.raises(ValueError, match=frames + "backbone of resnet_tiny"):
        likewise.evaluate(run.folder, by="frame")
    with pytest.raises(ValueError, match=frames + "tests.training.plain_encoder:of_sequences$"):
        likewise.evaluate("tests.training.plain_encoder:of_sequences", series(60), by="frame", progress=False)
    with pytest.raises(ValueError, match=r"^by must be item or frame, got 'sample'$"):
        likewise.evaluate(heard, by="sample")
    with pytest.raises(ValueError, match=r"^the head of pairs future predicts what comes next and embeds no item, so "):
        likewise.evaluate(heard, layer="head")
    with pytest.raises(DataError, match=r"^the encoder takes sequences of 2 channels, got sequences of 1 channel in "):
        likewise.evaluate(moved[1].encoder, tones, progress=False)
    assert (
        sentence("train", tones, "--column", "pitch")
        == "columns must be given as ROLE=NAME, such as y=digit, got 'pitch'"
    )
    assert (
        sentence("evaluate", heard, "--column", "y=") == "columns must be given as ROLE=NAME, such as y=digit, got 'y='"
    )
    assert sentence("train", tones, "--column", "label=pitch").endswith(", got 'label'")
    assert sentence("train", tones, "--column", "y=digit") == (
        f"expected a column of {tones} as y, one of audio, offsets, pitch, player, rate, got 'digit'"
    )
    assert sentence("evaluate", "vectors.npz", "--column", "y=pitch") == (
        "columns cannot be given for a file of embeddings, got vectors.npz and {'y': 'pitch'}"
    )


def test_the_columns_of_a_run_stand_in_its_recipe_and_hold_for_what_is_done_with_it(heard):
    encoder = likewise.load(heard)
    assert encoder.recipe.data.columns == "y=pitch"
    assert encoder.open().classes == ("high", "low", "middle")
    assert encoder.open(columns={"y": "player"}).classes == ("0", "1", "2")
    assert "was already finished" in command("train", encoder.recipe.data.source, "--out", heard, "--resume").stderr


def test_an_encoder_of_sequences_is_fine_tuned(moved, tmp_path):
    source, run = moved
    found = likewise.finetune(run.encoder, source, labels=1.0, epochs=10, out=tmp_path / "tuned", progress=False)
    assert (found.labels, found.test, found.classes) == (60, 60, 4)
    assert found.encoder == "sensors by simclr"
    assert found.finetuned >= 0.5, "a fourth is chance"
    before, after = run.encoder.embed(source).vectors, likewise.load(tmp_path / "tuned").embed(source).vectors
    assert not np.allclose(before, after)


def test_fine_tuning_on_other_labels(heard):
    result = command("finetune", heard, "--column", "y=player", "--labels", 1, "--epochs", 1, "--json")
    assert json.loads(result.stdout)["classes"] == 3
    assert result.stderr == ""


def test_data_that_is_all_test_part_leaves_nothing_to_compare_with(heard):
    source = clips(12) | {"is_test": np.ones(12, bool)}
    with pytest.raises(DataError, match=r"has only test items, and none to compare them with$"):
        likewise.evaluate(heard, source, progress=False)
