"""What is left open is chosen for the data, and said; what cannot work is refused before anything is built."""

import numpy as np
import pytest
import torch
from PIL import Image

from likewise import data, methods
from likewise.recipe import Recipe, RecipeError, known_keys
from likewise.training import plan, plan_lines
from likewise.training.plan import make_plan, split

LARGE = torch.accelerator.is_available()
ENCODER = (
    "encoder.name = resnet18: there is an accelerator"
    if LARGE
    else "encoder.name = resnet_tiny: there is no accelerator; resnet18 is larger and slower"
)
BATCH = () if LARGE else ("training.batch_size = 128: there is no accelerator, and many small steps learn more",)


def colour(n=40, **columns):
    return {"x": np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8), **columns}


def grey(n=40, **columns):
    return {"x": np.random.default_rng(0).integers(0, 256, (n, 1, 8, 8), dtype=np.uint8), **columns}


def vectors(n=40, **columns):
    return {"x": np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32), **columns}


def labels(n=40, classes=4):
    return np.arange(n) % classes


def made(source, method=None, **asked):
    return make_plan(source, method, {key.replace("__", "."): value for key, value in asked.items()}, progress=False)


def refused(source, method=None, **asked):
    with pytest.raises(RecipeError) as error:
        made(source, method, **asked)
    return str(error.value)


def test_colour_images_get_simclr():
    ready = made(colour(600))
    recipe = ready.recipe
    assert (recipe.method, recipe.pairs.preset, recipe.data.size) == ("simclr", "simclr", 8)
    assert ready.chosen == (
        "method simclr: both views teach the encoder, which learns most in a short run",
        ENCODER,
        *BATCH,
    )


def test_images_of_one_channel_get_moco():
    ready = made(grey(600))
    assert (ready.recipe.method, ready.recipe.pairs.preset) == ("moco", "greyscale")
    assert ready.chosen[0] == "method moco: for drawings in one channel it needs the fewest labels"


def test_moco_is_as_published_but_for_what_the_data_and_the_steps_allow():
    ready = made(colour(600), "moco")
    assert ready.recipe.pairs.preset == "moco_v2"
    assert ready.chosen == (
        ENCODER,
        *BATCH,
        "dictionary.size = 600: there are only 600 keys in the data, so a longer queue would hold items twice",
        f"keys.momentum = 0.99: the run has only {400 if LARGE else 800} steps, "
        "and at 0.999 the copy averages over about 1,000",
    )


def test_a_long_run_keeps_the_papers_momentum():
    assert made(colour(600), "moco", training__steps=10_000).recipe.keys.momentum == 0.999
    assert made(colour(600), "moco", keys__momentum=0.5).recipe.keys.momentum == 0.5


def test_no_split_of_the_batch_norm_is_left_with_a_handful_of_items():
    """Statistics of two items are noise, and of one there are none."""
    assert made(colour(600), "moco").recipe.encoder.bn_splits == 8
    ready = made(colour(600), "moco", training__batch_size=64)
    assert ready.recipe.encoder.bn_splits == 4
    assert "encoder.bn_splits = 4: batch statistics need 16 items or more" in ready.chosen


def test_grey_images_get_augmentations_for_drawings():
    ready = made(grey(600), "simclr")
    assert ready.recipe.pairs.preset == "greyscale"
    assert ready.chosen == (ENCODER, "pairs.preset = greyscale: the images have one channel", *BATCH)


def test_methods_without_a_preset_of_their_own_get_simclrs():
    ready = made(colour(600, y=labels(600)), "triplet")
    assert ready.chosen == (ENCODER, "pairs.preset = simclr: they are colour images", *BATCH)


def test_vectors_get_an_mlp_and_noise():
    ready = made(vectors(600))
    recipe = ready.recipe
    assert (recipe.method, recipe.encoder.name, recipe.pairs.preset, recipe.data.size) == ("simclr", "mlp", "vector", 5)
    assert ready.chosen == (
        "method simclr: vectors make large batches cheap, and a large batch has enough negatives",
        "encoder.name = mlp: the items are vectors",
        "pairs.preset = vector: the items are vectors",
    )


@pytest.mark.parametrize(("n", "size"), [(255, 64), (129, 64), (128, 64), (127, 32), (40, 16), (8, 4), (4, 2)])
def test_few_items_get_a_smaller_batch(n, size):
    """A power of two that fits at least twice."""
    ready = made(vectors(n), "simclr")
    assert ready.recipe.training.batch_size == size
    assert f"training.batch_size = {size}: there are {n:,} items to train on" in ready.chosen
    assert 2 * size <= n


def test_enough_items_keep_the_batch():
    assert made(vectors(256), "simclr").recipe.training.batch_size == 256


def test_the_queue_is_no_longer_than_the_data_unless_that_is_asked_for():
    assert made(vectors(), "moco").recipe.dictionary.size == 40
    assert made(vectors(), "moco", dictionary__size=100).recipe.dictionary.size == 100
    assert made(vectors(), "moco", dictionary__size=7).recipe.dictionary.size == 7
    assert made(vectors(), "simclr").recipe.dictionary.size == 65536, "no queue, no choice"
    assert made(vectors(40, y=labels()), "moco").recipe.dictionary.size == 36, "of the items to train on"


def test_the_bank_draws_no_more_than_it_has_slots():
    ready = made(vectors(), "instdisc")
    assert ready.recipe.dictionary.negatives == 40
    assert "dictionary.negatives = 40: no more than there are slots" in ready.chosen
    assert made(vectors(), "instdisc", dictionary__negatives=64).recipe.dictionary.negatives == 64


def test_what_is_asked_for_is_never_changed():
    asked = {"encoder__name": "vit_tiny", "pairs__preset": "none", "training__batch_size": 3, "dictionary__size": 70000}
    asked |= {"encoder__bn_splits": 2, "keys__momentum": 0.75}
    ready = made(grey(), "moco", **asked)
    assert ready.chosen == ()
    for key, value in asked.items():
        assert ready.recipe.value(key.replace("__", ".")) == value


def test_the_recipe_names_its_source_and_has_nothing_left_open():
    assert made(vectors(), "moco").recipe.data.source == "arrays x"
    assert made("digits", "moco").recipe.data.source == "digits"
    recipe = made(colour(), "moco").recipe
    assert all((recipe.method, recipe.encoder.name, recipe.pairs.preset, recipe.data.size))
    again = make_plan(colour(), None, dict(leaves(recipe)), progress=False)
    assert again.recipe == recipe
    assert again.chosen == (), "a whole recipe leaves nothing to choose"


def leaves(recipe):
    return ((key, recipe.value(key)) for key in known_keys())


@pytest.mark.parametrize("method", ["pair", "triplet"])
def test_without_labels_two_views_are_a_pair(method):
    ready = made(vectors(), method)
    assert ready.recipe.pairs.kind == "views"
    why = "pairs.kind = views: there are no labels or groups, so two views of an item are a pair"
    assert why in ready.chosen
    assert made(vectors(y=labels()), method).recipe.pairs.kind == "groups"
    assert made(vectors(group=labels()), method).recipe.pairs.kind == "groups"


def test_asked_for_groups_need_labels_or_groups():
    sentence = "pairs groups needs class folders, labels or groups, got none in arrays x"
    assert refused(vectors(), "moco", pairs__kind="groups") == sentence
    assert made(vectors(group=labels()), "moco", pairs__kind="groups").recipe.pairs.kind == "groups"


def test_sup_con_needs_labels():
    sentence = "loss sup_con needs labels of several classes (class folders, or y in an .npz), got none in arrays x"
    assert refused(vectors(), "supcon") == sentence
    assert refused(vectors(), "simclr", loss__kind="sup_con") == sentence


def test_a_share_is_held_out_where_there_are_labels():
    ready = made(vectors(40, y=labels()), "moco", data__test=0.25)
    assert (len(ready.train), len(ready.test)) == (30, 10)
    assert sorted([*ready.train, *ready.test]) == list(range(40))
    assert ready.train.tolist() == sorted(ready.train)
    assert ready.test.tolist() == sorted(ready.test)
    assert len(made(vectors(40, y=labels()), "moco", data__test=0.0).test) == 0


def test_nothing_is_held_out_without_labels():
    ready = made(vectors(), "moco", data__test=0.25)
    assert ready.train.tolist() == list(range(40))
    assert len(ready.test) == 0


def test_the_split_follows_the_seed_and_nothing_else():
    source = vectors(40, y=labels())
    one = made(source, "moco", seed=1)
    other_method = made(source, "simclr", seed=1, training__batch_size=4)
    assert one.test.tolist() == other_method.test.tolist()
    assert one.test.tolist() != made(source, "moco", seed=2).test.tolist()


def test_a_test_part_of_its_own_is_held_out_whole():
    is_test = np.arange(40) % 3 == 0
    ready = made(vectors(40, y=labels(), is_test=is_test), "moco", data__test=0.5, seed=9)
    assert ready.test.tolist() == np.flatnonzero(is_test).tolist()
    assert ready.train.tolist() == np.flatnonzero(~is_test).tolist()


def test_whole_groups_are_held_out():
    people = np.arange(40) // 4
    ready = made(vectors(40, y=labels(), group=people), "moco", data__test=0.2)
    assert len(ready.test) == 8
    assert not set(people[ready.train]) & set(people[ready.test])
    assert "8 held out (2 whole groups)" in plan_lines.data_in_words(ready)
    by_item = made(vectors(40, y=labels(), group=people), "moco", data__test=0.2, data__apart="items")
    assert by_item.test.tolist() == made(vectors(40, y=labels()), "moco", data__test=0.2).test.tolist()


@pytest.mark.parametrize("group", [np.arange(40) // 10, labels()], ids=["few groups", "a class in one group"])
def test_items_are_held_out_one_by_one_if_groups_cannot_be(group):
    ready = made(vectors(40, y=labels(), group=group), "moco", data__test=0.2)
    assert ready.test.tolist() == made(vectors(40, y=labels()), "moco", data__test=0.2).test.tolist()


def test_data_apart_must_be_known():
    sentence = "unknown data.apart 'people', expected one of groups, items"
    assert refused(vectors(40, y=labels()), "moco", data__apart="people") == sentence


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_that_is_none_is_refused(share):
    sentence = f"data.test must be a share from 0 to below 1, got {share:g}"
    assert refused(vectors(40, y=labels()), "moco", data__test=share) == sentence
    items = data.open(vectors(40, y=labels()))
    with pytest.raises(RecipeError, match=r"data\.test must be a share"):
        split(items, Recipe().with_values({"data.test": share}))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"training__batch_size": 41},
            "training.batch_size must be at most the 40 items to train on, got 41",
        ),
        ({"training__batch_size": 1}, "training.batch_size must be 2 or more, got 1"),
        (
            {"training__batch_size": 9, "training__devices": 2},
            "training.batch_size must be 2 or more, and a multiple of the 2 ranks, got 9",
        ),
        ({"training__epochs": 0}, "training.epochs must be at least 1, got 0"),
        ({"training__log_every": 0}, "training.log_every must be at least 1, got 0"),
        ({"training__checkpoint_every": -1}, "training.checkpoint_every must be at least 1, got -1"),
        ({"training__evaluate_every": 0}, "training.evaluate_every must be at least 1, got 0"),
        ({"training__steps": -1}, "training.steps must not be negative, got -1"),
        ({"data__workers": -1}, "data.workers must not be negative, got -1"),
        ({"optimizer__clip": -0.5}, "optimizer.clip must not be negative, got -0.5"),
        ({"optimizer__weight_decay": -1.0}, "optimizer.weight_decay must not be negative, got -1.0"),
        ({"optimizer__lr": 0.0}, "optimizer.lr must be positive, got 0"),
        ({"training__precision": "fp16-mixed"}, "unknown training.precision 'fp16-mixed'; did you mean bf16-mixed?"),
        (
            {"training__precision": "8"},
            "unknown training.precision '8', expected one of 32, bf16-mixed, 16-mixed, 64-true",
        ),
        ({"pairs__preset": "simclr"}, "pairs.preset simclr does not go with items that are vectors"),
        (
            {"loss__kind": "nt_xent"},
            "loss nt_xent scores a batch against itself, so its dictionary must be batch, got queue",
        ),
    ],
)
def test_what_cannot_work_is_refused_to_the_letter(asked, sentence):
    assert refused(vectors(), "moco", **asked) == sentence


def test_a_vector_preset_does_not_go_with_images():
    sentence = "pairs.preset vector does not go with items that are images"
    assert refused(colour(), "moco", pairs__preset="vector") == sentence


def test_an_unknown_method_is_refused_before_the_data_is_opened(monkeypatch):
    monkeypatch.setattr(plan.data, "open", lambda *_, **__: pytest.fail("opened"))
    assert refused("nowhere", "simcrl") == "unknown method 'simcrl'; did you mean simclr?"


def test_ranks_that_a_launcher_started_count(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sentence = "training.batch_size must be 2 or more, and a multiple of the 3 ranks, got 16"
    assert refused(vectors(), "simclr", training__batch_size=16) == sentence
    assert made(vectors(), "simclr", training__batch_size=15).recipe.training.batch_size == 15


def test_the_plan_is_told_in_a_few_lines():
    ready = made(vectors(40, y=labels()), "moco")
    told = plan_lines.lines(ready, 24, parameters=12345, seconds=75.0, device="cpu")
    assert [text.partition("\t")[0] for text in told][:7] == [
        "data",
        "method",
        "pairs",
        "dictionary",
        "loss",
        "encoder",
        "training",
    ]
    words = "\n".join(told)
    assert "36 vectors of 5, 4 held out, 4 classes" in words
    assert f"moco ({methods.METHODS['moco'].paper})" in words
    assert "a queue of 36, keys by momentum copy, m 0.99" in words
    assert "info_nce, temperature 0.2" in words
    assert "mlp, mlp head to 128, 12,345 parameters" in words
    assert "24 steps of 16 (12.0 epochs), adamw at 0.002, on cpu: about 1 min 15 s" in words
    assert told[7:] == [f"chosen\t{text}" for text in ready.chosen]


# What is said of the data


def told(source, **asked):
    """The lines of the plan, by their names."""
    ready = made(source, "moco", **asked)
    lines = (text.partition("\t") for text in plan_lines.lines(ready, 10, parameters=1, seconds=None, device="cpu"))
    return {name: words for name, _, words in lines}


def pictures(folder, *sizes):
    """A folder with an image for each (width, height)."""
    folder.mkdir()
    for place, size in enumerate(sizes):
        Image.new("RGB", size, (place, 0, 0)).save(folder / f"{place:02}.png")
    return folder


SAID = {"crop": "centre-cropped to squares", "pad": "padded to squares", "stretch": "stretched to squares"}


@pytest.mark.parametrize("fit", SAID)
def test_images_that_are_not_square_are_said_to_be_cut(tmp_path, fit):
    photos = str(pictures(tmp_path / "wide", *[(12, 8)] * 8))
    assert told(photos, data__fit=fit)["data"] == f"{photos}: 8 images of 3×8×8, {SAID[fit]}, no labels"
    some = str(pictures(tmp_path / "some", *[(12, 8)] * 2, *[(8, 8)] * 6))
    assert told(some, data__fit=fit)["data"] == f"{some}: 8 images of 3×8×8, 2 of them {SAID[fit]}, no labels"
    square = str(pictures(tmp_path / "square", *[(8, 8)] * 8))
    assert told(square, data__fit=fit)["data"] == f"{square}: 8 images of 3×8×8, no labels"


def test_one_image_that_is_not_square(tmp_path):
    one = str(pictures(tmp_path / "one", (12, 8), *[(8, 8)] * 7))
    assert told(one)["data"] == f"{one}: 8 images of 3×8×8, 1 of them centre-cropped to a square, no labels"


def test_arrays_that_are_not_square_are_said_to_be_cut():
    x = np.random.default_rng(0).integers(0, 256, (40, 8, 12, 3), dtype=np.uint8)
    assert told({"x": x})["data"] == "arrays x: 40 images of 3×8×12, centre-cropped to squares, no labels"
    assert (
        told({"x": x}, data__fit="stretch")["data"] == "arrays x: 40 images of 3×8×8, stretched to squares, no labels"
    )


def test_a_fit_is_for_images():
    sentence = "data.fit is for images, got pad for the vectors of arrays x"
    assert refused(vectors(), "moco", data__fit="pad") == sentence
    with pytest.raises(data.DataError, match=r"^fit must be crop, pad or stretch, got 'squeeze'$"):
        made(colour(), data__fit="squeeze")


def test_files_that_are_not_read_have_a_line_of_their_own(tmp_path):
    photos = pictures(tmp_path / "photos", *[(8, 8)] * 8)
    (photos / "torn.png").write_text("no")
    for name in ("a.mp4", "b.mp4", "c.svg", "README"):
        (photos / name).touch()
    lines = told(str(photos))
    assert lines["data"].endswith(", no labels; 1 file could not be read, see skipped.txt")
    assert lines["left out"] == "2 .mp4, 1 .svg; see skipped.txt"
    assert list(lines)[:3] == ["data", "left out", "method"]


def test_images_without_captions_are_not_files_that_cannot_be_read(tmp_path):
    photos = pictures(tmp_path / "photos", *[(8, 8)] * 12)
    rows = "".join(f"{place:02}.png,number {place}\n" for place in range(9))
    (photos / "captions.csv").write_text(f"image,caption\n{rows}")
    lines = told(str(photos))
    assert lines["data"].endswith("; 3 images without captions left out, see skipped.txt")
