"""A run's folder, and the encoder that it leaves behind."""

import json
import re
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import likewise
from likewise import data
from likewise.data import parts as data_parts
from likewise.encoders import features as module
from likewise.encoders.features import features, frame_features
from likewise.modalities.sequence import channel_statistics
from likewise.recipe import RecipeError
from likewise.training import trainer
from likewise.training.run import RunError, save_weights
from tests.waves import clips, series

ENCODER = "tests.training.plain_encoder:plain"
QUICK = {"encoder.name": ENCODER, "encoder.dim": 8, "training.batch_size": 16, "training.log_every": 1}


def trained(source, out, method="moco", *, steps=3, resume=False, **settings):
    named = {key.replace("__", "."): value for key, value in settings.items()}
    values = QUICK | named | {"training.steps": steps}
    return likewise.train(source, method=method, out=out, settings=values, resume=resume, progress=False)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return trained("digits", tmp_path_factory.mktemp("run") / "digits")


def images(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(48, 24, 40, 3), (48, 96, 96, 3), (48, 16, 16)])
def test_a_run_on_arrays_of_any_shape_goes_on_and_embeds_as_it_trained(tmp_path, shape):
    """What the images are kept at is part of the run: neither resuming nor embedding resizes them again."""
    file = tmp_path / "images.npy"
    np.save(file, images(*shape))
    run = trained(file, tmp_path / "run", encoder__name="resnet_tiny", data__size=0)
    assert trained(file, tmp_path / "run", encoder__name="resnet_tiny", resume=True).folder == run.folder
    encoder, items = run.encoder, likewise.data.open(file)
    direct = trainer.features(encoder.backbone, encoder.augmentation, items, np.arange(len(items)))
    assert torch.equal(torch.from_numpy(encoder.embed(file).vectors), direct)


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_run_keeps_to_its_fit(tmp_path, fit):
    """What was padded for training is padded for embedding and for a file that is searched with, too."""
    folder = tmp_path / "photos"
    folder.mkdir()
    from PIL import Image

    for i, picture in enumerate(images(20, 8, 16, 3)):
        Image.fromarray(picture).save(folder / f"{i:02}.png")
    run = trained(folder, tmp_path / "run", data__fit=fit, encoder__name="resnet_tiny")
    encoder = run.encoder
    assert (encoder.recipe.data.fit, encoder.about["fit"]) == (fit, fit)
    items = data.open(folder, fit=fit)
    assert encoder.open(progress=False).fingerprint == items.fingerprint == encoder.about["fingerprint"]
    found = likewise.Searcher.open(run.folder, progress=False).like(folder / "07.png", 1)
    assert (found[0]["id"], found[0]["similarity"]) == (7, pytest.approx(1, abs=1e-4))
    assert trained(folder, tmp_path / "run", encoder__name="resnet_tiny", data__fit=fit, resume=True)
    with pytest.raises(RecipeError, match=rf"^data\.fit was '{fit}' in .* and cannot become 'other' on resuming$"):
        trained(folder, tmp_path / "run", encoder__name="resnet_tiny", data__fit="other", resume=True)


def test_a_run_from_before_there_were_fits_crops(tmp_path):
    x = images(20, 8, 16, 3)
    run = trained({"x": x}, tmp_path / "run")
    encoder = run.encoder
    about = {key: value for key, value in encoder.about.items() if key != "fit"}
    save_weights(run.folder, {"encoder": encoder.backbone}, about)
    text = (run.folder / "recipe.toml").read_text()
    (run.folder / "recipe.toml").write_text(text.replace('fit = "crop"\n', ""))
    assert run.encoder.open({"x": x}, progress=False).array.shape == (20, 3, 8, 16)
    save_weights(run.folder, {"encoder": encoder.backbone}, about | {"fit": "squeeze"})
    with pytest.raises(RunError, match=r"must have fit crop, pad or stretch, got 'squeeze'$"):
        likewise.load(run.folder)


def test_what_is_left_out_is_said_where_there_is_no_plan(tmp_path, capsys):
    from PIL import Image

    for i, picture in enumerate(images(3, 8, 8)):
        Image.fromarray(np.stack([picture] * 3, axis=2)).save(tmp_path / f"{i}.png")
    run = trained(tmp_path, tmp_path.parent / "run", training__batch_size=2)
    (tmp_path / "torn.png").write_text("no")
    (tmp_path / "film.mp4").touch()
    run.encoder.embed(tmp_path, progress=False)
    assert capsys.readouterr().err == ""
    run.encoder.embed(tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        f"note {tmp_path}: 1 file could not be read; left out: 1 .mp4; the first is torn.png: not an image"
    )


def test_the_encoder_has_its_backbones_names_also_inside_something_larger(digits):
    encoder = digits.encoder
    assert set(encoder.state_dict()) == set(encoder.backbone.state_dict())
    classifier = nn.Sequential(encoder, nn.Linear(32, 10))
    state = classifier.state_dict()
    assert {name.partition(".")[0] for name in state} == {"0", "1"}
    assert not any("backbone" in name for name in state)
    other = nn.Sequential(digits.encoder, nn.Linear(32, 10))
    other.load_state_dict({name: torch.zeros_like(value) for name, value in state.items()})
    assert all(not value.any() for value in other.state_dict().values())


@pytest.mark.parametrize("name", ["channels", "mean"])
def test_weights_without_their_preprocessing_are_one_sentence(digits, tmp_path, name):
    shutil.copytree(digits.folder, tmp_path / "run")
    encoder = digits.encoder
    about = {key: value for key, value in encoder.about.items() if key != name}
    save_weights(tmp_path / "run", {"encoder": encoder.backbone}, about)
    with pytest.raises(RunError, match=rf"must come with their pre-processing, got no {name}$"):
        likewise.load(tmp_path / "run")


def test_the_head_goes_where_its_encoder_goes(digits):
    vectors = digits.encoder.double().embed("digits", layer="head").vectors
    assert vectors.shape == (1797, 8)
    np.testing.assert_allclose(vectors, digits.encoder.embed("digits", layer="head").vectors, atol=1e-4)


def test_embedding_leaves_every_part_in_the_mode_it_was_in(digits):
    encoder = digits.encoder.train()
    frozen = next(iter(encoder.backbone.children())).eval()
    encoder.embed("digits")
    assert encoder.backbone.training
    assert not frozen.training


def test_weights_that_are_not_the_recipes_are_one_sentence(tmp_path):
    run = trained("digits", tmp_path / "run")
    text = (run.folder / "recipe.toml").read_text()
    (run.folder / "recipe.toml").write_text(text.replace("dim = 8", "dim = 9"))
    with pytest.raises(RunError, match=r"do not fit its recipe\.toml: one of them was changed$"):
        likewise.load(run.folder)


def test_evaluation_comes_when_it_is_due_whatever_is_logged(tmp_path):
    run = trained("digits", tmp_path / "run", steps=12, training__log_every=4, training__evaluate_every=6)
    assert [row["step"] for row in run.metrics] == [4, 6, 8, 12]
    assert [row["step"] for row in run.metrics if "knn" in row] == [6, 12]


def test_the_geometry_of_held_out_items_is_looked_at_too_and_needs_no_labels(tmp_path):
    last = trained("digits", tmp_path / "labelled").metrics[-1]
    assert 1 < last["effective_rank"] < 256
    assert last["uniformity"] < 0
    assert -1 < last["alike"] < 1
    without = trained({"x": images(64, 8, 8)}, tmp_path / "without").metrics[-1]
    assert "knn" not in without
    assert without["effective_rank"] > 1


def test_looking_costs_a_small_share_of_the_steps_before_it(tmp_path, monkeypatch):
    """Forward passes are counted, in items: an evaluation is 2 % of a run, or 64 items."""
    seen = []
    monkeypatch.setattr(trainer, "features", lambda *given: seen.append(len(given[-1])) or features(*given))
    trained("digits", tmp_path / "run", steps=40, training__batch_size=64, training__evaluate_every=40)
    assert sum(seen) == pytest.approx(0.02 * 3 * 40 * 64, abs=2)


def test_candidates_are_those_of_the_look_up_not_of_the_queue_after_it(tmp_path):
    """A queue of two batches over data of four: no query meets an older key of its item in the first epoch."""
    source = {"x": images(64, 8, 8)}
    run = trained(source, tmp_path / "run", steps=4, dictionary__size=32)
    assert [row["candidates"] for row in run.metrics] == [1, 17, 33, 33]


def test_under_a_policy_there_is_no_chance_to_compare_with(tmp_path):
    run = trained("digits", tmp_path / "run", "simclr", loss__policy="hardest:4")
    assert not {"chance", "bound", "estimate"} & set(run.metrics[-1])


def test_a_recipe_of_another_method_is_refused(tmp_path, digits):
    with pytest.raises(RecipeError, match=r"is for method moco, got method simclr$"):
        likewise.train("digits", method="simclr", recipe=digits.folder / "recipe.toml", out=tmp_path / "run")


def test_epochs_or_steps_and_what_is_said_counts_more_than_a_file(tmp_path, digits):
    with pytest.raises(RecipeError, match=r"^give only one of epochs, steps and minutes, got 1 epochs and 2 steps$"):
        likewise.train("digits", epochs=1, steps=2, out=tmp_path / "run")
    recipe = digits.folder / "recipe.toml"
    source = {"x": images(40, 8, 8)}
    run = likewise.train(source, recipe=recipe, epochs=2, out=tmp_path / "run", progress=False)
    assert run.metrics[-1]["step"] == 4


def test_a_name_that_is_no_text_is_skipped_like_any_other(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    from PIL import Image

    for i, picture in enumerate(images(20, 8, 8, 3)):
        Image.fromarray(picture).save(folder / f"{i}.png")
    (folder / "caf\udce9.png").write_bytes(b"no image")
    (folder / "a\n1.png\tfine\x1b[2J.png").write_bytes(b"no image")
    run = trained(folder, tmp_path / "run")
    paths = [line.split("\t")[0] for line in (run.folder / "skipped.txt").read_text().splitlines()]
    assert paths == ["a\\n1.png\\tfine\\x1b[2J.png", "caf\\udce9.png"]


# Sequences

LENGTHS = np.arange(40) * 7 % 37 + 3  # from 3 samples, less than a frame, to 39


@pytest.fixture(scope="module")
def ahead(tmp_path_factory):
    """CPC on short sequences of unequal length."""
    folder = tmp_path_factory.mktemp("run") / "ahead"
    settings = {"pairs__horizon": 2, "pairs__candidates": 16, "encoder__name": "sensors", "pairs__window": 32}
    return trained(series(40, t=40, lengths=LENGTHS), folder, "cpc", **settings)


@pytest.fixture(scope="module")
def sequences():
    return data.open(series(40, t=40, lengths=LENGTHS))


def prepared(encoder, items, item, start=0, end=None):
    """One sequence, or a stretch of it, as the backbone wants it, (1, t, c)."""
    end = items.lengths[item] if end is None else min(end, items.lengths[item])
    window = items.windows(np.array([item]), np.array([start]), int(end - start))
    return encoder.augmentation.plain(torch.from_numpy(window))


@torch.no_grad()
def test_a_long_sequence_is_the_mean_of_its_pieces_weighted_by_their_length(ahead, sequences, monkeypatch):
    monkeypatch.setattr(data_parts, "PIECE", 16)
    encoder = ahead.encoder
    found = features(encoder.backbone, encoder.augmentation, sequences, np.arange(40))
    for item, length in enumerate(LENGTHS):
        pieces = [prepared(encoder, sequences, item, start, start + 16) for start in range(0, length, 16)]
        vectors = torch.cat([encoder(piece) for piece in pieces])
        weights = torch.tensor([piece.shape[1] / length for piece in pieces], dtype=torch.float32)
        torch.testing.assert_close(found[item], weights @ vectors, rtol=1e-5, atol=1e-5)  # whitening enlarges rounding


@torch.no_grad()
def test_whom_a_sequence_is_embedded_with_changes_nothing(ahead, sequences, monkeypatch):
    """Padded to the longest of a part or alone, in whatever order."""
    encoder = ahead.encoder
    ids = np.random.default_rng(0).permutation(40)
    alone = torch.cat([encoder(prepared(encoder, sequences, item)) for item in ids])
    for most in (1, 60, 2**20):
        monkeypatch.setattr(data_parts, "SAMPLES_AT_ONCE", most)
        found = features(encoder.backbone, encoder.augmentation, sequences, ids)
        torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


def test_parts_hold_no_more_samples_than_they_may(sequences, monkeypatch):
    monkeypatch.setattr(data_parts, "SAMPLES_AT_ONCE", 100)
    pieces = list(sequences.main.pieces(np.arange(40)))
    assert max(piece.data.shape[0] * piece.data.shape[1] for piece in pieces) <= 100
    assert sorted(place for piece in pieces for place in piece.places) == list(range(40))
    monkeypatch.setattr(data_parts, "ROWS_AT_ONCE", 3)
    assert max(len(piece.data) for piece in sequences.main.pieces(np.arange(40))) == 3


def test_clips_of_any_length_are_embedded(tmp_path):
    source = clips(24)
    run = trained(source, tmp_path / "run", "cpc", encoder__name="audio_8k", pairs__horizon=2, training__batch_size=8)
    found = run.encoder.embed(source)
    assert found.vectors.shape == (24, 256)
    assert found.vectors.dtype == np.float32
    assert found.labels.tolist() == source["y"].tolist()
    assert found.ids.tolist() == list(range(24))
    slower = source | {"audio": np.repeat(source["audio"], 2), "offsets": source["offsets"] * 2, "rate": 16_000}
    resampled = run.encoder.embed(slower).vectors  # brought to the rate of the run
    ours, theirs = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (found.vectors, resampled))
    assert (theirs @ ours.T).argmax(axis=1).tolist() == list(range(24)), "every clip is most like itself"


def test_an_encoder_of_the_future_is_frames_and_contexts(ahead):
    encoder = likewise.load(ahead.folder)
    assert {name.partition(".")[0] for name in encoder.state_dict()} == {"frames", "context", "whitening"}
    assert set(encoder.state_dict()) == set(encoder.backbone.state_dict())
    assert encoder.head.steps.weight.shape == (2 * 128, 128), "one matrix a step ahead"


def test_the_head_of_the_future_is_no_layer_of_an_item(ahead):
    with pytest.raises(
        ValueError, match=r"^the head of pairs future predicts what comes next and embeds no item, so layer"
    ):
        ahead.encoder.embed(series(), layer="head")


@torch.no_grad()
def test_features_of_frames_are_the_contexts_of_their_sequence(ahead, sequences):
    encoder, ids = ahead.encoder, np.array([7, 0, 31])
    counts = np.maximum(1, LENGTHS[ids] // 4)
    places, starts = np.repeat(np.arange(3), counts), np.concatenate([np.arange(count) * 4 for count in counts])
    found = frame_features(encoder.backbone, encoder.augmentation, sequences, ids, places, starts)
    expected = [encoder.backbone.contexts(prepared(encoder, sequences, item))[0] for item in ids]
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-6)
    shuffled = np.random.default_rng(0).permutation(len(places))
    again = frame_features(encoder.backbone, encoder.augmentation, sequences, ids, places[shuffled], starts[shuffled])
    torch.testing.assert_close(again, found[shuffled], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_context_of_a_frame_of_a_long_sequence_begins_with_its_piece(ahead, sequences, monkeypatch):
    monkeypatch.setattr(data_parts, "PIECE", 16)
    monkeypatch.setattr(module, "PIECE", 16)
    encoder, item = ahead.encoder, int(LENGTHS.argmax())
    starts = np.arange(9) * 4
    found = frame_features(
        encoder.backbone, encoder.augmentation, sequences, np.array([item]), np.zeros(9, dtype=np.int64), starts
    )
    pieces = [prepared(encoder, sequences, item, start, start + 16) for start in (0, 16, 32)]
    expected = torch.cat([encoder.backbone.contexts(piece)[0] for piece in pieces])
    torch.testing.assert_close(found, expected[:9], rtol=1e-5, atol=1e-6)


def test_channels_are_standardised_by_the_sequences_trained_on_and_no_padding(ahead, sequences):
    train = np.array([3, 8, 20])
    samples = np.concatenate([sequences.array[sequences.offsets[i] : sequences.offsets[i + 1]] for i in train])
    mean, std = channel_statistics(sequences.main, train)
    assert mean == pytest.approx(samples.mean(axis=0).tolist(), abs=1e-6)
    assert std == pytest.approx(samples.std(axis=0).tolist(), abs=1e-6)
    constant = data.open(np.stack([np.arange(40.0).reshape(4, 10), np.full((4, 10), 3.0)], axis=2))
    assert channel_statistics(constant.main, np.arange(4))[1][1] == 1


# What stands in the file of the weights


def with_metadata(run, folder, text):
    """A copy of a run whose weights have this text for their pre-processing."""
    shutil.copytree(run.folder, folder)
    weights = safetensors.torch.load_file(folder / "encoder.safetensors")
    safetensors.torch.save_file(weights, folder / "encoder.safetensors", metadata={"preprocessing": text})
    return folder


HOSTILE = {
    "channels": [
        (10**9, r"expected (items that fit in memory|1000000000 finite numbers for mean), got .*"),
        ("1", r"expected a whole number >= 1 for channels, got '1'"),
        (0, r"expected a whole number >= 1 for channels, got '0'"),
        (True, r"expected a whole number >= 1 for channels, got 'True'"),
        (None, r"expected a whole number >= 1 for channels, got 'None'"),
        (2, r"expected 2 finite numbers for mean, got other values"),
    ],
    "size": [(10**9, r"expected items that fit in memory, .*"), (1.5, r"expected a whole number >= 1 for size, .*")],
    "stored": [(-1, r"expected a whole number >= 0 for stored, got '-1'")],
    "modality": [
        ("video", r"expected a modality image, audio, series, vector, text, got 'video'"),
        ([], r"expected a modality .*, got '\[\]'"),
    ],
    "mean": [
        ([[0.5]], r"expected 1 finite numbers for mean, got other values"),
        (0.5, r"expected 1 finite numbers .*"),
    ],
    "std": [([float("nan")], r"expected 1 finite numbers for std, got other values")],
    "fingerprint": [(5, r"expected a fingerprint as text and a temperature as a number, got other types")],
    "temperature": [("cold", r"expected a fingerprint as text and a temperature as a number, got other types")],
}


@pytest.mark.parametrize(
    ("name", "value", "words"), [(name, *case) for name, cases in HOSTILE.items() for case in cases]
)
def test_a_pre_processing_that_cannot_be_is_one_sentence(digits, tmp_path, name, value, words):
    folder = with_metadata(digits, tmp_path / "run", json.dumps(dict(digits.encoder.about) | {name: value}))
    sentence = rf"^the weights of {folder} must come with their pre-processing, {words}$"
    with pytest.raises(RunError, match=sentence):
        likewise.load(folder)
    with pytest.raises(RunError, match=sentence):  # whoever starts from it
        trained("digits", tmp_path / "other", encoder__init=str(folder))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "cannot be read: their pre-processing is nested too deeply"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "cannot be read: their pre-processing is nested too deeply"),
        ("{", "cannot be read: .*"),
        ("[]", "must come with their pre-processing, got no modality, .*"),
        ("1" + "0" * 5000, "cannot be read: .*"),
    ],
    ids=["deep list", "deep object", "torn", "list", "number"],
)
def test_a_pre_processing_that_is_no_json_object_is_one_sentence(digits, tmp_path, text, words):
    folder = with_metadata(digits, tmp_path / "run", text)
    with pytest.raises(RunError, match=f"^the weights of {folder} {words}$"):
        likewise.load(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("dim", 10**12), ("head", '"none"'), ("preset", '"nothing"'), ("name", '"resnet_tiny"')]
)
def test_a_recipe_that_is_not_that_of_the_weights_is_one_sentence(digits, tmp_path, key, value):
    folder = shutil.copytree(digits.folder, tmp_path / "run")
    text = re.sub(rf"^{key} = .*$", f"{key} = {value}", (folder / "recipe.toml").read_text(), flags=re.MULTILINE)
    (folder / "recipe.toml").write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        likewise.load(folder)
    assert type(error.value) in (RunError, RecipeError, ValueError)


def test_a_run_with_somebody_elses_parts_is_one_sentence_where_they_are_not_known(digits, tmp_path):
    """An encoder is loaded without the loss that trained it; what its pairs are has to be known."""
    folder = shutil.copytree(digits.folder, tmp_path / "run")
    recipe = (folder / "recipe.toml").read_text()
    (folder / "recipe.toml").write_text(recipe.replace('kind = "info_nce"', 'kind = "align_uniform"'))
    encoder = likewise.load(folder)
    with pytest.raises(RecipeError, match=r"^unknown loss 'align_uniform', expected one of info_nce, "):
        likewise.export(encoder, tmp_path / "encoder.safetensors")
    with pytest.raises(RecipeError, match=r"^unknown loss 'align_uniform', expected one of info_nce, "):
        likewise.explore(folder)
    (folder / "recipe.toml").write_text(recipe.replace('kind = "views"', 'kind = "by_name"'))
    with pytest.raises(RecipeError, match=r"^unknown pairs 'by_name', expected one of views, "):
        likewise.load(folder)
