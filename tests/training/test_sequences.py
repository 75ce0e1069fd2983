"""Sequences are trained on by every method: by their future where that is asked for or natural, else by views."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

import likewise
from likewise import data, modalities, ranks
from likewise.data import DataError
from likewise.pairs.future import FRAMES, Future
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.recipe import RecipeError
from likewise.training.batches import Batches
from likewise.training.learner import check_parts
from likewise.training.plan import make_plan
from likewise.training.plan_lines import lines
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from likewise.views.sounds import DisturbedSounds
from tests.training.conftest import rows, whole
from tests.waves import clips, series

# Few steps ahead among few frames: the same work, less of it.
QUICK = {
    "pairs.horizon": 3,
    "pairs.candidates": 16,
    "training.batch_size": 8,
    "training.log_every": 1,
    "training.steps": 3,
    "data.workers": 0,
}


def trained(source, out, method=None, **options):
    settings = QUICK | options.pop("settings", {})
    return likewise.train(source, method=method, out=out, settings=settings, progress=False, **options)


def finite(run, steps=3):
    losses = [row["loss"] for row in run.metrics]
    return len(losses) == steps and all(loss is not None and math.isfinite(loss) for loss in losses)


def planned(source, method=None, **asked):
    return make_plan(source, method, {key.replace("__", "."): value for key, value in asked.items()}, progress=False)


# Every method


@pytest.mark.parametrize(
    ("source", "chosen"),
    [
        (clips(), ("cpc", "future", "mel_8k")),
        (series(), ("simclr", "views", "sensors")),
        (series()["x"], ("simclr", "views", "sensors")),
    ],
    ids=["clips", "named series", "an array"],
)
def test_sounds_are_learned_by_their_future_and_series_by_two_windows(tmp_path, source, chosen):
    run = trained(source, tmp_path / "run")
    assert (run.recipe.method, run.recipe.pairs.kind, run.recipe.encoder.name) == chosen
    assert finite(run)
    assert run.report.exists()


@pytest.mark.parametrize(
    "method", ["simclr", "moco", "moco_v1", "instdisc", "bank", "e2e", "supcon", "pair", "triplet"]
)
def test_every_other_method_trains_on_views_of_sequences(tmp_path, method):
    run = trained(series(lengths=np.arange(48) % 20 + 13), tmp_path / "run", method)
    assert finite(run)
    assert run.recipe.pairs.kind == ("groups" if method in ("pair", "triplet") else "views")
    assert run.recipe.pairs.preset == "sequence"
    assert "accuracy" not in run.metrics[-1]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("cpc", {"settings": {"pairs.negatives": "others"}}),
        ("cpc", {"settings": {"pairs.negatives": "same"}}),
        ("cpc", {"settings": {"encoder.context": "transformer"}}),
        ("cpc", {"settings": {"loss.similarity": "cosine", "loss.temperature": 0.1, "loss.learnable": True}}),
        ("cpc", {"settings": {"loss.similarity": "cosine", "loss.policy": "hardest:4"}}),
        ("cpc", {"keys": "momentum"}),
        ("cpc", {"dictionary": "queue"}),
        ("cpc", {"precision": "64-true"}),
        ("cpc", {"settings": {"pairs.preset": "sequence"}}),
        ("e2e", {"pairs": "future"}),
        ("moco", {"pairs": "future"}),
        ("moco", {"pairs": "future", "settings": {"pairs.negatives": "others"}}),
        ("simclr", {"settings": {"encoder.context": "transformer"}}),
        ("simclr", {"pairs": "groups"}),
    ],
    ids=str,
)
def test_parts_are_exchangeable(tmp_path, method, options):
    """Also where sequences are too short for the horizon, and a batch is mostly padding."""
    run = trained(series(lengths=np.arange(48) % 25 + 8), tmp_path / "run", method, **options)
    assert finite(run)
    assert len({row["loss"] for row in run.metrics}) == 3, "the loss moves"


def test_the_loss_falls_and_the_future_is_found_more_often(tmp_path):
    settings = {"training.steps": 60, "training.batch_size": 16, "optimizer.lr": 0.005}
    run = trained(series(60), tmp_path / "run", "cpc", settings=settings)
    first, last = (run.metrics[part] for part in (slice(0, 5), slice(-5, None)))
    assert np.mean([row["loss"] for row in last]) < np.mean([row["loss"] for row in first]) - 0.5
    before, after = (np.mean([row["accuracy"] for row in part], axis=0) for part in (first, last))
    assert before.shape == (3,), "one for each step ahead"
    assert (after > before + 0.1).all()
    assert (after > 3 / 17).all(), "chance is 1 of 17"
    last = run.metrics[-1]
    assert last["estimate"] == pytest.approx(last["chance"] - last["loss"])
    assert "bound" not in last, "drawn with replacement, and the positive left out, candidates prove nothing"


def test_candidates_are_those_that_were_drawn_but_for_the_frame_that_is_looked_for(tmp_path):
    """16 of the batch's 64 frames are drawn, the positive itself with a chance of 1 in 64 each."""
    run = trained(series(), tmp_path / "both", "cpc")
    assert all(16.3 < row["candidates"] < 17 for row in run.metrics)
    run = trained(series(), tmp_path / "others", "cpc", settings={"pairs.negatives": "others"})
    assert all(13 < row["candidates"] < 16.3 for row in run.metrics), "a window is 1 of 8"
    run = trained(series(), tmp_path / "same", "cpc", settings={"pairs.negatives": "same"})
    assert all(13 < row["candidates"] < 16.3 for row in run.metrics), "a frame is 1 of 8"


def test_a_queue_holds_frames_and_is_empty_at_the_first_step(tmp_path):
    run = trained(series(t=34), tmp_path / "run", "moco", pairs="future", settings={"dictionary.size": 150})
    assert [row["candidates"] for row in run.metrics[:1]] == [1.0]
    assert run.metrics[0]["loss"] == 0, "there is nothing that it could be mistaken for"
    assert all(row["candidates"] > 16 for row in run.metrics[1:])
    assert run.metrics[-1]["fill"] == 1
    found = whole(run.folder).tensors
    ids, keys = found["dictionary.ids"].squeeze(), found["dictionary.keys"]
    assert keys.shape == (150, 128), "as wide as a frame"
    assert len(ids.unique()) == 150
    assert set((ids % FRAMES).tolist()) <= set(range(9))
    assert set((ids // FRAMES).tolist()) <= set(range(43)), "places among the items to train on"
    assert {name.split(".")[2] for name in found if name.startswith("copy.")} == {"convolutions", "norms"}


def test_the_sequence_is_the_second_id_of_a_queue_whose_negatives_are_of_others(tmp_path):
    options = {"pairs": "future", "settings": {"pairs.negatives": "others"}}
    run = trained(series(lengths=np.full(48, 20)), tmp_path / "run", "moco", **options)
    frame, item = whole(run.folder).tensors["dictionary.ids"].T
    assert torch.equal(frame.div(FRAMES, rounding_mode="floor"), item)
    assert (item >= 0).any()


def test_a_batch_of_which_nothing_has_a_future_teaches_nothing_and_is_no_mistake(tmp_path):
    """Most are of one frame only, so that some batches hold no other."""
    source = series(t=40, lengths=np.where(np.arange(48) % 8, 5, 40))
    settings = {"pairs.window": 20, "training.batch_size": 2, "training.steps": 9}
    run = trained(source, tmp_path / "run", "cpc", settings=settings)
    assert finite(run, steps=9)
    nothing = [row for row in run.metrics if row["loss"] == 0]
    assert 0 < len(nothing) < 9
    assert all(row["accuracy"] == [None] * 3 for row in nothing)


# What cannot work


def test_windows_that_are_mixed_with_each_other_are_embedded_in_the_same_part(tmp_path, monkeypatch):
    why = "because preset sound mixes 4 items with each other"
    chunked = {"training.chunk": 6, "encoder.head": "mlp"}
    with pytest.raises(RecipeError, match=rf"^training.chunk must be a multiple of 4, {why}, got 6$"):
        trained(clips(), tmp_path / "chunks", "simclr", settings=chunked)
    trained(clips(), tmp_path / "others", "simclr", settings=chunked | {"pairs.preset": "sequence"})
    monkeypatch.setattr(ranks, "count", lambda: 4)
    recipe = planned(clips(), "simclr").recipe
    check_parts(DisturbedSounds((0.0,), (1.0,)), recipe, 16)
    with pytest.raises(RecipeError, match=rf"^training.batch_size must be a multiple of 4 for each of 4 ranks, {why}"):
        check_parts(DisturbedSounds((0.0,), (1.0,)), recipe, 24)


def refused(source, method=None, **asked):
    with pytest.raises(RecipeError) as error:
        planned(source, method, **asked)
    return str(error.value)


def test_a_mixture_that_cannot_work_is_refused_in_a_sentence():
    ready = series()
    assert refused("digits", "cpc") == "pairs future needs sequences, got images in digits"
    assert refused(np.zeros((40, 5), np.float32), "moco", pairs__kind="future") == (
        "pairs future needs sequences, got vectors in an array of shape (40, 5)"
    )
    assert refused(ready, "simclr", pairs__kind="future") == (
        "pairs future compares frames of sequences, which only loss info_nce can do, got nt_xent"
    )
    assert refused(ready, "bank", pairs__kind="future") == (
        "dictionary bank stores one key for each item, so pairs must be views, got future"
    )
    together = "pairs future and head steps, one matrix for each step ahead, need each other, got pairs {} and head {}"
    assert refused(ready, "simclr", encoder__head="steps") == together.format("views", "steps")
    assert refused(ready, "cpc", encoder__head="mlp") == together.format("future", "mlp")
    assert refused(ready, "cpc", pairs__symmetric=True) == (
        "pairs.symmetric needs two views of an item, but pairs future has one window"
    )
    assert refused(ready, "moco", pairs__kind="future", pairs__negatives="same") == (
        "pairs.negatives same draws from the query's own window, so the dictionary must be batch, got queue"
    )
    assert refused(ready, "cpc", pairs__negatives="other") == "unknown pairs.negatives 'other'; did you mean others?"
    assert refused(ready, "simclr", pairs__preset="moco_v2") == (
        "pairs.preset moco_v2 does not go with items that are sequences"
    )
    assert refused("digits", "simclr", pairs__preset="sequence") == (
        "pairs.preset sequence does not go with items that are images"
    )


@pytest.mark.parametrize("horizon", [8, 9, 100])
def test_a_horizon_behind_the_end_of_every_window_is_refused(horizon):
    assert refused(series(), "cpc", pairs__horizon=horizon) == (
        f"pairs.horizon must be below the 8 frames of a window of 32 samples, got {horizon}"
    )
    assert planned(series(), "cpc", pairs__horizon=7).recipe.pairs.horizon == 7


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({"pairs__window": 0}, ("pairs.window", 0)),
        ({"pairs__window": -4}, ("pairs.window", -4)),
        ({"pairs__horizon": 0}, ("pairs.horizon", 0)),
        ({"pairs__candidates": 0}, ("pairs.candidates", 0)),
    ],
)
def test_a_window_a_horizon_and_candidates_are_one_at_least(asked, got):
    assert refused(series(), "cpc", **asked) == f"{got[0]} must be at least 1, got {got[1]}"


def test_a_window_of_one_frame_has_no_future():
    assert refused(series(), "cpc", pairs__window=5) == "pairs.window must be at least two frames of 4 samples, got 5"


def test_data_that_is_all_test_part_is_refused():
    source = series() | {"is_test": np.ones(48, bool)}
    assert refused(source, "cpc").startswith("there is nothing to train on in ")


def test_a_rate_that_cannot_be_had_is_refused():
    source = series() | {"rate": np.array(50)}
    assert refused(source, "cpc", data__rate=25).startswith("data.rate resamples audio")
    assert planned(clips(), "cpc", data__rate=16_000).items.rate == 16_000
    assert planned("sounds", "cpc", data__rate=16_000).items.rate == 16_000


def test_a_run_refuses_series_of_another_rate(tmp_path):
    encoder = trained(series() | {"rate": np.array(50)}, tmp_path / "run").encoder
    with pytest.raises(DataError, match=r"^the encoder takes 50 samples a second, got 100 in "):
        encoder.embed(series() | {"rate": np.array(100)})


def test_cpc_by_views_has_a_head_of_views():
    assert planned(series(), "cpc", pairs__kind="views", loss__similarity="cosine").recipe.encoder.head == "mlp"


def test_the_frames_of_anyones_encoder_are_its_own(tmp_path):
    encoder = "tests.training.plain_encoder:of_long_frames"
    ready = planned(series(60, t=64), "cpc", encoder__name=encoder)
    assert modalities.of(ready.items.main).hop(ready.recipe, ready.items.main) == 6
    assert ready.recipe.pairs.window % 6 == 0
    assert finite(trained(series(60, t=64), tmp_path / "run", encoder=encoder, settings={"pairs.window": 48}))


def test_one_long_recording_is_enough(tmp_path):
    run = trained(series(1, t=4000)["x"], tmp_path / "run", settings={"pairs.window": 32})
    assert finite(run)
    assert len(data.open(series(1, t=4000)["x"]).main.visits(np.arange(1), 32)) == 125


def test_windows_of_pairs_future_begin_where_frames_begin():
    """So a frame of two windows of one sequence is one frame, or two that do not overlap by a part."""
    ready = planned(series(4, t=400, lengths=np.full(4, 400)), "cpc", pairs__window=32)
    hop = modalities.of(ready.items.main).hop(ready.recipe, ready.items.main)
    options = {"size": 8, "seed": 0, "workers": 0, "window": 32}
    starts = torch.cat(
        [Batches(ready.items, ready.train, Future(), grid=hop, **options).at(i).starts for i in range(5)]
    )
    assert (starts % hop == 0).all()
    assert len(starts.unique()) > 10
    anywhere = Batches(ready.items, ready.train, Future(), **options)
    free = torch.cat([anywhere.at(step).starts for step in range(5)])
    assert not (free % hop == 0).all(), "views may begin anywhere"


def test_encoders_that_do_not_go_with_the_pairs_are_refused_and_leave_no_folder(tmp_path):
    plain = "tests.training.plain_encoder:of_sequences"
    with pytest.raises(RecipeError, match=rf"^pairs future needs an encoder with frames and contexts, got {plain}$"):
        trained(series(), tmp_path / "run", "cpc", encoder=plain)
    with pytest.raises(ValueError, match=r"^resnet_tiny takes images, got sequences; audio_16k and others take those$"):
        trained(series(), tmp_path / "run", encoder="resnet_tiny")
    with pytest.raises(ValueError, match=r"^context must be one of gru, transformer, got 'lstm'$"):
        trained(series(), tmp_path / "run", settings={"encoder.context": "lstm"})
    assert not (tmp_path / "run").exists()
    assert finite(trained(series(), tmp_path / "run", "simclr", encoder=plain)), "views need no frames"


def test_an_encoder_of_other_sequences_is_refused(tmp_path):
    encoder = trained(series(), tmp_path / "run").encoder
    with pytest.raises(DataError, match=r"^the encoder takes sequences of 2 channels, got sequences of 1 channel in "):
        encoder.embed(clips())
    with pytest.raises(DataError, match=r"^the encoder takes sequences of 2 channels, got images of 1 channel in "):
        encoder.embed("digits")


# What is chosen


@pytest.mark.parametrize(
    ("rate", "channels", "encoder"),
    [
        (16_000, 1, "mel_16k"),
        (12_000, 1, "mel_16k"),
        (11_025, 1, "mel_8k"),
        (4_000, 1, "mel_8k"),
        (3_999, 1, "sensors"),
        (16_000, 1, "sensors"),
        (16_000, 2, "sensors"),
        (0, 1, "sensors"),
    ],
)
def test_the_encoder_follows_the_rate(rate, channels, encoder):
    if encoder.startswith("mel"):
        x = series(t=1000, channels=1)["x"]
        source = {"audio": x.reshape(-1) / 100, "offsets": np.arange(len(x) + 1) * 1000, "rate": rate}
    else:
        source = series(t=1000, channels=channels) | {"rate": rate}
    ready = planned(source, pairs__horizon=1)
    assert ready.recipe.encoder.name == encoder
    assert any(text.startswith(f"encoder.name = {encoder}: ") for text in ready.chosen)


def test_what_is_chosen_for_sequences_is_said():
    assert planned(series(200, t=60)).chosen[0] == (
        "method simclr: two windows of one sequence are alike, whatever comes next"
    )
    ready = planned(series(200, t=60), "cpc")
    assert ready.chosen == (
        "encoder.name = sensors: 2 channels of a series",
        "training.batch_size = 64: each sequence has many frames",
        "optimizer.lr = 0.001: dot products of unnormalised rows need smaller steps",
        "pairs.window = 60: three quarters of the training sequences are at most 60 samples long, in whole frames of 4",
    )
    assert (ready.recipe.encoder.head, ready.recipe.pairs.preset, ready.recipe.pairs.horizon) == ("steps", "none", 12)


def test_a_window_is_typical_and_no_longer_than_128_frames():
    assert planned(series(t=1000), "cpc").recipe.pairs.window == 128 * 4
    lengths = np.repeat([21, 33, 41, 100], 12)
    ragged = series(t=100, lengths=lengths) | {"is_test": np.zeros(48, dtype=bool)}
    assert planned(ragged, "cpc").recipe.pairs.window == 52, "three of four end before it: 55.75, in whole frames"
    assert planned(ragged, "simclr").recipe.pairs.window == 24, "three quarters of the median, in whole frames"
    assert planned(ragged, "cpc", pairs__window=20).recipe.pairs.window == 20


def test_the_reason_for_a_window_names_the_length_it_is_made_of():
    def why(source, method):
        (reason,) = (text for text in planned(source, method).chosen if text.startswith("pairs.window"))
        return reason

    ragged = series(t=100, lengths=np.repeat([21, 33, 41, 100], 12)) | {"is_test": np.zeros(48, dtype=bool)}
    assert why(ragged, "cpc") == (
        "pairs.window = 52: three quarters of the training sequences are at most 55 samples long, in whole frames of 4"
    )
    assert why(ragged, "simclr") == (
        "pairs.window = 24: 27 samples is three quarters of the training sequences' median length, in whole frames of 4"
    )
    assert why(ragged | {"rate": 50}, "cpc").endswith(" at most 55 samples (1.1 s) long, in whole frames of 4")
    assert why(series(t=1000), "cpc") == "pairs.window = 512: at most 128 frames of 4 samples are chosen by default"


def test_short_sequences_have_a_short_horizon():
    ready = planned(series(t=50), "cpc")
    assert (ready.recipe.pairs.window, ready.recipe.pairs.horizon) == (48, 6)
    assert "pairs.horizon = 6: a window of 48 samples has 12 frames" in ready.chosen
    assert planned(series(t=52), "cpc").recipe.pairs.horizon == 12


def test_pairs_future_brings_its_head_and_its_augmentations():
    ready = planned(series(100), "moco", pairs__kind="future")
    assert (ready.recipe.encoder.head, ready.recipe.pairs.preset, ready.recipe.training.batch_size) == (
        "steps",
        "none",
        64,
    )
    assert "encoder.head = steps: one matrix for each step ahead" in ready.chosen
    assert "pairs.preset = none: the items are sequences" in ready.chosen


def test_few_sequences_get_a_smaller_batch_and_that_alone_is_said():
    ready = planned(series(40) | {"is_test": np.zeros(40, dtype=bool)}, "cpc")
    sizes = [text for text in ready.chosen if text.startswith("training.batch_size")]
    assert sizes == ["training.batch_size = 16: there are 40 items to train on"]


def test_the_queue_is_no_longer_than_the_frames():
    lengths = np.arange(48) % 20 + 8
    ready = planned(series(lengths=lengths), "moco", pairs__kind="future")
    frames = (lengths[ready.train] // 4).sum()
    assert ready.recipe.dictionary.size == frames
    assert planned(series(lengths=lengths), "moco").recipe.dictionary.size == len(ready.train), "one view an item"


def test_the_plan_is_told_in_the_words_of_sequences():
    ready = planned(clips(90) | {"is_test": np.arange(90) > 79}, "cpc", pairs__window=800, pairs__horizon=3)
    words = "\n".join(lines(ready, 20, parameters=12345, seconds=None, device="cpu"))
    assert "80 sequences of 1 channel, 8,000 samples a second, 0.15 s long (median), 10 held out, 3 classes" in words
    assert "future, windows of 800 samples, 0.1 s, 10 frames; 3 steps ahead, each among 128 frames of all seq" in words
    assert "mel_8k, gru context, 3 matrices for the steps ahead, 12,345 parameters" in words


def test_a_whole_recipe_leaves_nothing_to_choose(tmp_path):
    run = trained(series(), tmp_path / "run", "moco", pairs="future")
    again = likewise.train(series(), recipe=run.folder / "recipe.toml", out=tmp_path / "again", progress=False)
    assert (again.folder / "recipe.toml").read_text() == (run.folder / "recipe.toml").read_text()
    assert rows(again.folder) == rows(run.folder)


# Windows

LENGTHS = np.array([10, 3, 12, 40, 8, 11, 25, 9])
WINDOW = 10


@pytest.fixture(scope="module")
def items():
    """Sample t of sequence i is (i, t)."""
    array = np.full((8, 40, 2), np.nan, dtype=np.float32)
    for i, length in enumerate(LENGTHS):
        array[i, :length] = np.stack([np.full(length, i), np.arange(length)], axis=1)
    return data.open(array)


def batches(items, pairs, **options):
    return Batches(items, np.arange(8), pairs, **{"size": 6, "seed": 0, "workers": 0, "window": WINDOW} | options)


PAIRS = {"views": Views(), "groups": Groups(torch.arange(8) % 3), "future": Future()}


def same(one, other):
    return all(
        torch.equal(getattr(one, name).nan_to_num(-1), getattr(other, name).nan_to_num(-1))
        for name in ("items", "ids", "data", "partner_data", "starts")
    )


def test_a_window_is_a_stretch_of_its_sequence_and_not_a_number_behind_its_end(items):
    for step in range(6):
        batch = batches(items, Future()).at(step)
        assert batch.data.shape == (6, WINDOW, 2)
        for item, start, window in zip(batch.items.tolist(), batch.starts.tolist(), batch.data, strict=True):
            there = min(WINDOW, LENGTHS[item])
            assert 0 <= start <= LENGTHS[item] - there
            assert window[:there, 0].tolist() == [item] * there
            assert window[:there, 1].tolist() == list(range(start, start + there))
            assert window[there:].isnan().all()


def test_every_place_of_a_window_is_drawn(items):
    made = [batches(items, Future()).at(step) for step in range(200)]
    starts = {int(s) for batch in made for item, s in zip(batch.items, batch.starts, strict=True) if item == 3}
    assert starts == set(range(31)), "from the first sample to the last that leaves a whole window"


@pytest.mark.parametrize("pairs", PAIRS)
def test_windows_follow_from_seed_and_step(items, pairs):
    one, again = batches(items, PAIRS[pairs]), batches(items, PAIRS[pairs])
    assert same(one.at(7), again.at(7))
    assert same(list(batches(items, PAIRS[pairs], workers=2).ahead(5, 8))[2], one.at(7))
    assert not same(one.at(7), batches(items, PAIRS[pairs], seed=1).at(7))
    assert not same(one.at(7), one.at(6))


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("count", [2, 3])
def test_ranks_share_out_the_windows_of_one_process(items, monkeypatch, pairs, count):
    batch = batches(items, PAIRS[pairs]).at(5)
    parts = []
    monkeypatch.setattr(ranks, "count", lambda: count)
    for index in range(count):
        monkeypatch.setattr(ranks, "index", lambda index=index: index)
        parts.append(batches(items, PAIRS[pairs]).at(5))
    for name in ("items", "ids", "data", "partner_data", "starts"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined.nan_to_num(-1), getattr(batch, name).nan_to_num(-1))


def test_each_of_two_views_has_a_window_of_its_own_and_a_future_has_one(items):
    batch = batches(items, Views()).at(0)
    assert torch.equal(batch.data[:, 0, 0], batch.partner_data[:, 0, 0]), "of the same sequences"
    assert not torch.equal(batch.data.nan_to_num(-1), batch.partner_data.nan_to_num(-1))
    batch = batches(items, Future()).at(0)
    assert batch.partner_data is batch.data


def test_a_long_sequence_comes_once_an_epoch_for_each_whole_window_in_it(items):
    assert np.bincount(items.main.visits(np.arange(8), WINDOW)).tolist() == [1, 1, 1, 4, 1, 1, 2, 1]
    assert items.main.visits(np.array([3, 6]), WINDOW).tolist() == [0, 0, 0, 0, 1, 1], "places in the training part"
    made = batches(items, Future())
    assert made.per_epoch == 2
    epoch = torch.cat([made.places(0), made.places(1)])
    assert torch.bincount(epoch, minlength=8).tolist() == [1, 1, 1, 4, 1, 1, 2, 1]
    assert not made.distinct, "two windows of one sequence may meet in a batch"
    assert batches(items, Future(), window=40).distinct
    vectors = data.open(np.zeros((5, 3), np.float32))
    assert vectors.main.visits(np.array([1, 4]), 0).tolist() == [0, 1]


def test_two_long_recordings_are_enough_to_train_on(tmp_path):
    """They come as often as there are windows in them."""
    run = trained(series(2, t=1000)["x"], tmp_path / "run", settings={"pairs.window": 100, "training.steps": 5})
    assert finite(run, steps=5)
    assert run.metrics[-1]["epoch"] == 2.5, "20 windows, 8 a step"


def test_a_run_with_more_held_out_than_trained_on_has_its_report(tmp_path):
    """Places of held-out items are not places among the labels of those trained on."""
    data = series(60, t=40)
    data["is_test"] = np.arange(60) < 45
    run = likewise.train(data, method="cpc", steps=2, batch_size=8, out=tmp_path / "run", progress=False)
    assert "held-out items" in run.report.read_text()


@pytest.mark.parametrize(
    ("method", "settings", "sides"),
    [
        ("cpc", {}, {"first": 1}),
        ("moco", {"pairs.symmetric": True}, {"first": 1, "second": 1}),
        ("simclr", {}, {"first": 1, "second": 1}),
    ],
)
def test_each_side_of_a_step_is_augmented_once(tmp_path, monkeypatch, method, settings, sides):
    asked = {"training.batch_size": 8, "training.steps": 2, "data.workers": 0} | settings
    run = Trainer(make_plan(series(60, t=40), method, asked, progress=False), tmp_path, Observer())
    made, views = Counter(), run.learner.views

    def counted(batch, side, *rest):
        made[side] += 1
        return views(batch, side, *rest)

    monkeypatch.setattr(run.learner, "views", counted)
    run.learner.step(run.batches.at(0), 2)
    assert made == sides
