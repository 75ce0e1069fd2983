"""What the report says is what the run did."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import likewise
from likewise import data
from likewise.report import contents as module
from likewise.report import pictures
from likewise.report.contents import contents
from likewise.training import plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from tests.waves import clips, series


def finished(source, method, folder, **settings):
    """A trainer whose run is done, and the report's contents."""
    torch.set_num_threads(1)
    asked = {"training.steps": 6, "training.batch_size": 16, "training.log_every": 2, "training.evaluate_every": 3}
    ready = plan.make_plan(source, method, asked | settings, progress=False)
    trainer = Trainer(ready, folder, Observer())
    run = trainer.run()
    return trainer, contents(trainer, run.metrics)


def picture(sprite):
    """(rows, columns, side, side, 3) of a sheet."""
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["uri"].partition(",")[2]))))
    side = sprite["side"]
    return sheet.reshape(sheet.shape[0] // side, side, sprite["columns"], side, 3).transpose(0, 2, 1, 3, 4)


@pytest.fixture(scope="module")
def moco(tmp_path_factory):
    return finished("digits", "moco", tmp_path_factory.mktemp("moco") / "run")


def test_everything_is_plain_json(moco):
    json.dumps(moco[1], allow_nan=False)


def test_curves_are_the_logged_rows(moco):
    trainer, found = moco
    charts = {chart["title"]: chart for chart in found["charts"]}
    assert list(charts) == [
        "Loss",
        "Mutual information, nats",
        "k-NN accuracy",
        "Effective rank",
        "Dictionary: keys",
        "Dictionary: age",
        "Dictionary: consistency",
    ]
    rows = [json.loads(line) for line in (trainer.folder / "metrics.jsonl").read_text().splitlines()]
    loss, chance = charts["Loss"]["series"]
    assert loss["points"] == [[row["step"], row["loss"]] for row in rows]
    assert (chance["kind"], chance["points"][0]) == ("reference", [2, rows[0]["chance"]])
    assert charts["k-NN accuracy"]["series"][0]["points"] == [[r["step"], r["knn"]] for r in rows if "knn" in r]
    assert charts["Dictionary: keys"]["series"][0]["points"][0] == [2, pytest.approx(rows[0]["size"] * rows[0]["fill"])]
    estimate, ceiling = charts["Mutual information, nats"]["series"]
    assert estimate["name"] == "estimate"
    assert all(a[1] <= b[1] for a, b in zip(estimate["points"], ceiling["points"], strict=True))


def test_figures_carry_what_they_depend_on(moco):
    figures = {figure["name"]: figure for figure in moco[1]["figures"]}
    assert list(figures) == ["k-NN", "5 labels a class", "effective rank", "information", "consistency"]
    assert figures["k-NN"]["note"] == (
        "k 20, T 0.07, 1,617 labels, 180 items not trained on; backbone of resnet_tiny, small stem"
    )


def test_the_map_has_a_point_a_name_and_a_picture_for_each_item_that_was_held_out(moco):
    trainer, found = moco
    there = found["map"]
    ids = trainer.plan.test
    items = trainer.plan.items
    assert len(there["points"]) == len(there["labels"]) == len(there["names"]) == 180
    assert np.array(there["points"]).min() == 0
    assert np.array(there["points"]).max() == 1
    assert there["labels"] == items.labels[ids].tolist()
    sheet = picture(there["sprite"]).reshape(-1, 8, 8, 3)
    difference = sheet[:180, :, :, 0].astype(int) - items.array[ids][:, 0]
    assert np.abs(difference).mean() < 12, "but for the compression, its own picture"


def test_neighbours_are_the_nearest_of_those_trained_on(moco):
    trainer, found = moco
    rows = found["neighbours"]["rows"]
    assert [len(row["found"]) for row in rows] == [8] * 8
    encoder = likewise.load(trainer.folder)
    vectors = torch.nn.functional.normalize(torch.from_numpy(encoder.embed("digits", progress=False).vectors), dim=1)
    train = trainer.plan.train
    query = int(rows[0]["query"]["name"].removeprefix("item ").replace(",", ""))
    assert query in trainer.plan.test
    best = (vectors[train] @ vectors[query]).topk(8)
    assert [one["name"] for one in rows[0]["found"]] == [f"item {train[i]:,}" for i in best.indices]
    assert [one["similarity"] for one in rows[0]["found"]] == pytest.approx(best.values.tolist(), abs=2e-3)
    labels = trainer.plan.items.labels
    assert [one["same"] for one in rows[0]["found"]] == [bool(labels[train[i]] == labels[query]) for i in best.indices]


def test_pairs_are_the_very_views_of_the_first_step(moco):
    trainer, found = moco
    batch = trainer.batches.at(0)
    sheet = picture(found["pairs"]["sprite"]).reshape(-1, 8, 8, 3)
    assert found["pairs"]["columns"] == ["item", "first view", "second view"]
    for which, column in (("first", 1), ("second", 2)):
        views = trainer.learner.views(batch, which)[:8]
        tiles = pictures.of_views(views, trainer.learner.augmentation, trainer.plan.items)
        shown = np.stack([sheet[row[column]] for row in found["pairs"]["rows"]])
        assert np.abs(shown.astype(int) - tiles).mean() < 12


def test_the_histogram_tells_positives_from_negatives(moco):
    positives, negatives = moco[1]["histogram"]["series"]
    assert sum(positives["shares"]) == pytest.approx(1, abs=1e-5)
    assert sum(negatives["shares"]) == pytest.approx(1, abs=1e-5)
    middles = np.convolve(moco[1]["histogram"]["edges"], [0.5, 0.5], "valid")
    assert middles @ positives["shares"] > middles @ negatives["shares"]


def test_a_batch_is_no_dictionary_to_draw_and_its_bound_is_one(tmp_path):
    _, found = finished("digits", "simclr", tmp_path / "run")
    titles = [chart["title"] for chart in found["charts"]]
    assert not any(title.startswith("Dictionary") for title in titles)
    information = next(chart for chart in found["charts"] if chart["title"].startswith("Mutual"))
    assert information["series"][0]["name"] == "bound"


def test_a_bank_shows_one_view(tmp_path):
    _, found = finished("digits", "instdisc", tmp_path / "run")
    assert found["pairs"]["columns"] == ["item", "first view"]


def test_vectors_without_labels_have_pictures_too_and_nobody_is_its_own_neighbour(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32)
    _, found = finished(vectors, "simclr", tmp_path / "run")
    assert found["map"]["labels"] is None
    assert found["map"]["note"].startswith("PCA of 40 items")
    assert found["map"]["sprite"]["side"] == 4
    for row in found["neighbours"]["rows"]:
        assert row["query"]["name"] not in {one["name"] for one in row["found"]}
        assert all(one["same"] is None for one in row["found"])
    assert [figure["name"] for figure in found["figures"]] == ["effective rank", "information"]


def test_warnings_and_skipped_files_are_told(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for i in range(20):
        Image.fromarray(rng.integers(0, 256, (70, 90, 3), dtype=np.uint8)).save(photos / f"{i:02}.png")
    (photos / "torn.png").write_bytes(b"\x89PNG and no more")
    settings = {"data.size": 64, "encoder.name": "tests.training.plain_encoder:plain"}
    _, found = finished(str(photos), "moco", tmp_path / "run", **settings)
    assert found["skipped"]["count"] == 1
    assert found["skipped"]["files"][0][0] == "torn.png"
    assert found["map"]["names"][0] == "00.png"
    assert found["map"]["sprite"]["side"] == pictures.SIDE
    assert found["recipe"].startswith('method = "moco"')
    rows = [{"step": 4, "loss": 1.0, "health": ["the queue is still filling (10%)"]}]
    assert module.charts(rows, plan.Recipe())[0]["series"][0]["points"] == [[4, 1.0]]


def test_the_report_is_in_the_runs_folder_after_training(tmp_path):
    run = likewise.train("digits", method="simclr", steps=3, batch_size=16, out=tmp_path / "run", progress=False)
    text = run.report.read_text()
    assert "simclr on digits" in text
    assert text.count("<html") == 1


def test_a_tile_of_a_vector_is_its_features_row_by_row():
    vectors = np.array([[0, 1, 2], [3, 4, 2]], dtype=np.float32)
    tiles = pictures.of_items(data.open(vectors), np.array([0, 1]))
    assert tiles.shape == (2, 2, 2, 3)
    assert tiles[0, :, :, 0].tolist() == [[0, 0], [0, 0]]
    assert tiles[1, :, :, 0].tolist() == [[255, 255], [0, 0]]
    assert pictures.enlarged(tiles, 5).shape == (2, 5, 5, 3)
    assert pictures.enlarged(tiles, 3)[1, :, :, 0].tolist() == [[255, 255, 255], [255, 255, 255], [0, 0, 0]]


@pytest.mark.parametrize("rows", [torch.ones(60, 16), torch.zeros(60, 16), torch.arange(60.0)[:, None]])
def test_a_collapsed_run_has_a_map_too(rows):
    """t-SNE of one point is a division of zero by zero; an embedding of one number has no second axis."""
    points = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    found = module.map_of(data.open(points), np.arange(60), rows, held_out=False)
    assert found["note"].startswith("PCA of 60 items")
    assert np.isfinite(found["points"]).all()


# Sequences


@pytest.fixture(scope="module")
def cpc(tmp_path_factory):
    source = series(60, t=40, lengths=np.arange(60) % 20 + 21)
    settings = {"pairs.horizon": 5, "pairs.candidates": 16, "training.batch_size": 8, "data.test": 0.2}
    return finished(source, "cpc", tmp_path_factory.mktemp("cpc") / "run", **settings)


def test_the_report_of_a_future_is_plain_json(cpc):
    json.dumps(cpc[1], allow_nan=False)


def test_accuracy_is_drawn_over_the_horizon_for_the_last_step_and_held_out_items(cpc):
    trainer, found = cpc
    chart = found["charts"][0]
    assert (chart["title"], chart["x"]) == ("Accuracy over the horizon", "frames ahead")
    assert "among 16 other frames: by chance 0.0" in chart["note"]
    held_out, last = chart["series"]
    rows = [json.loads(line) for line in (trainer.folder / "metrics.jsonl").read_text().splitlines()]
    assert (held_out["name"], last["name"]) == ("held-out items", "the last step")
    assert last["points"] == [[ahead, value] for ahead, value in enumerate(rows[-1]["accuracy"], 1)]
    assert held_out["points"] == [[a, v] for a, v in enumerate(trainer.accuracy_ahead(trainer.plan.test), 1)]
    assert [ahead for ahead, _ in held_out["points"]] == [1, 2, 3, 4, 5]
    assert all(0 <= value <= 1 for _, value in held_out["points"])


def test_a_few_held_out_items_have_a_curve_and_one_has_none(cpc):
    trainer, _ = cpc
    assert len(trainer.accuracy_ahead(trainer.plan.test[:7])) == 5
    assert trainer.accuracy_ahead(trainer.plan.test[:1]) == []
    (chart,) = module.horizon(trainer, [{"accuracy": [0.5, 0.25]}])
    assert chart["series"][1]["points"] == [[1, 0.5], [2, 0.25]]
    assert module.horizon(trainer, [{"loss": 1.0}]) == [], "what predicts nothing has no horizon"


def test_a_future_is_shown_as_an_item_and_its_window(cpc):
    trainer, found = cpc
    pairs = found["pairs"]
    assert pairs["columns"] == ["item", "window"]
    assert pairs["rows"] == [[i, 8 + i] for i in range(8)]
    assert "has to find the rest of it among frames of all windows" in pairs["note"]
    views = trainer.learner.views(trainer.batches.at(0), "first")[:8]
    tiles = pictures.of_views(views, trainer.learner.augmentation, trainer.plan.items)
    shown = picture(pairs["sprite"]).reshape(-1, pictures.SIDE, pictures.SIDE, 3)[8:16]
    assert np.abs(shown.astype(int) - tiles).mean() < 12


def test_the_histogram_of_a_future_is_of_frames_that_are_there(cpc):
    trainer, found = cpc
    note = found["histogram"]["note"]
    first, second, ids = module.some_pairs(trainer.learner, trainer.batches.at(trainer.total - 1))
    assert len(first) == len(second) == len(ids)
    assert (ids >= 0).all()
    assert f"within the {len(ids):,} pairs" in note
    for heap in found["histogram"]["series"]:
        assert sum(heap["shares"]) == pytest.approx(1, abs=1e-5)


def test_views_of_series_are_shown_as_two(tmp_path):
    _, found = finished(series(40), "simclr", tmp_path / "run")
    assert found["pairs"]["columns"] == ["item", "first view", "second view"]
    assert found["map"]["sprite"]["side"] == pictures.SIDE
    assert not any(chart["title"] == "Accuracy over the horizon" for chart in found["charts"])


def test_a_picture_of_audio_is_lighter_where_it_is_louder():
    """A high tone in the first half, silence in the second: light at the upper left, dark elsewhere."""
    time = np.arange(8000) / 8000
    tone = np.where(time < 0.5, 0.8 * np.sin(2 * np.pi * 3000 * time), 0).astype(np.float32)
    items = data.open({"audio": np.tile(tone, 2), "offsets": np.array([0, 8000, 16000]), "rate": 8000})
    tiles = pictures.of_items(items, np.array([0, 1]))
    assert tiles.shape == (2, pictures.SIDE, pictures.SIDE, 3)
    assert tiles.dtype == np.uint8
    light = tiles[0].astype(int).sum(axis=2)
    top, left = slice(0, 16), slice(4, 20)
    assert light[top, left].max() > 500
    assert light[32:, left].mean() < light[top, left].mean()
    assert light[:, 30:].max() < 100, "silence is dark"


def test_pictures_of_clips_of_unequal_length_have_one_size():
    items = data.open(clips(6))
    assert len(set(items.lengths.tolist())) > 1
    tiles = pictures.of_items(items, np.arange(6))
    assert tiles.shape == (6, pictures.SIDE, pictures.SIDE, 3)
    assert all(tile.std() > 5 for tile in tiles), "something is drawn in each"


def test_a_picture_of_a_series_has_a_line_a_channel():
    """One channel rises, one falls, each in its colour."""
    rise = np.linspace(0, 1, 50, dtype=np.float32)
    array = np.stack([np.stack([rise, 1 - rise], axis=1)] * 2)
    tile = pictures.of_items(data.open(array), np.array([0, 1]))[0].astype(int)
    assert tile.shape == (pictures.SIDE, pictures.SIDE, 3)

    def places(colour):
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return np.argwhere(np.abs(tile - wanted).sum(axis=2) < 60)  # rows from above, columns

    for colour, sign in ((pictures.LINES[0], -1), (pictures.LINES[1], 1)):
        found = places(colour)
        assert len(found) > 20
        assert np.corrcoef(found.T)[0, 1] * sign > 0.95
    assert not len(places(pictures.LINES[2])), "there is no third"
