"""A run's folder, and the encoder that it leaves behind."""

import numpy as np
import pytest
import torch
from torch import nn

import likewise
from likewise.training import trainer
from likewise.training.recipe import RecipeError
from likewise.training.run import RunError, features

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
    with pytest.raises(RunError, match=r"are not those of its recipe\.toml: one of them was changed$"):
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
    with pytest.raises(RecipeError, match=r"is of method moco, got method simclr$"):
        likewise.train("digits", method="simclr", recipe=digits.folder / "recipe.toml", out=tmp_path / "run")


def test_epochs_or_steps_and_what_is_said_counts_more_than_a_file(tmp_path, digits):
    with pytest.raises(RecipeError, match=r"^give epochs or steps, not both, got 1 epochs and 2 steps$"):
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
    run = trained(folder, tmp_path / "run")
    assert "caf\\udce9.png" in (run.folder / "skipped.txt").read_text()
