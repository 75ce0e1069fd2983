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


def finished(source, method, folder, **settings):
    """A trainer whose run is done, and the report's contents."""
    torch.set_num_threads(1)
    asked = {"training.steps": 6, "training.batch_size": 16, "training.log_every": 2, "training.evaluate_every": 3}
    ready = plan.make_plan(source, method, asked | settings, progress=False)
    trainer = Trainer(ready, folder, Observer())
    run = trainer.run(resume=False)
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
        tiles = pictures.of_views(trainer.learner.views(batch, which)[:8], trainer.learner.augmentation)
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
