"""What the report says is what the run did."""

import base64
import io
import json
import wave

import numpy as np
import pytest
import torch
from PIL import Image

import likewise
from likewise import data, modalities
from likewise.evaluation.interval import wilson
from likewise.modalities.series import LINES
from likewise.modalities.tiles import SIDE
from likewise.report import contents as module
from likewise.report import pictures, sounds
from likewise.report.contents import contents
from likewise.report.page import render
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
    assert charts["k-NN accuracy"]["note"] == (
        "On 32 held-out items, with 32 labelled neighbours; the figure at the top may use more of both. "
        "Compare last values, not best ones."
    ), "of fewer items than the figure at the top, which is therefore another"
    assert (rows[-1]["knn_items"], rows[-1]["knn_labels"]) == (32, 32)
    assert charts["Dictionary: keys"]["series"][0]["points"][0] == [2, pytest.approx(rows[0]["size"] * rows[0]["fill"])]
    estimate, ceiling = charts["Mutual information, nats"]["series"]
    assert estimate["name"] == "estimate"
    assert all(a[1] <= b[1] for a, b in zip(estimate["points"], ceiling["points"], strict=True))


def test_figures_carry_what_they_depend_on(moco):
    figures = {figure["name"]: figure for figure in moco[1]["figures"]}
    assert list(figures) == ["k-NN", "linear", "5 labels a class", "effective rank", "information", "consistency"]
    assert figures["k-NN"]["note"] == (
        "k 20, T 0.07, 1,617 training labels, on 180 held-out items; backbone of resnet_tiny, small stem"
    )


def test_beside_each_figure_stand_its_interval_what_is_free_and_chance(moco):
    """The same as `evaluate` prints: the same items, of which there are few enough for all to be looked at."""
    trainer, found = moco
    figures = {figure["name"]: dict(figure["beside"]) for figure in found["figures"]}
    measured = likewise.evaluate(trainer.folder, progress=False)
    raw, untrained, learned = (measured[name] for name in ("raw input", "untrained encoder", "learned encoder"))
    for name, key in (("k-NN", "knn"), ("linear", "linear")):
        interval = wilson(learned[key]["accuracy"], 180)
        assert figures[name] == {
            "95 % interval": f"{interval.low:.3f} to {interval.high:.3f}",
            "raw pixels": f"{raw[key]['accuracy']:.3f}",
            "untrained": f"{untrained[key]['accuracy']:.3f}",
            "chance": f"{measured['about']['chance']:.3f}",
        }
    assert figures["5 labels a class"]["raw pixels"] == f"{raw['few_labels'][5]['accuracy']:.3f}"
    assert figures["effective rank"]["untrained"] == f"{untrained['geometry']['effective_rank']:.1f} of 256"
    assert figures["information"]["chance"] == "0"
    words = measured["about"]["worth"]
    assert found["worth"] == words[0].upper() + words[1:]
    assert found["worth"].startswith("Not better than raw pixels with five labels a class (")


def test_features_in_different_units_are_standardised_as_evaluate_does(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(300) % 3
    x = np.column_stack([y + rng.normal(0, 0.2, 300), rng.normal(0, 1000, (300, 5)).T[0], rng.normal(0, 1, (300, 4))])
    np.savez(tmp_path / "rows.npz", x=x.astype(np.float32), y=y, is_test=np.arange(300) >= 240)
    trainer, found = finished(tmp_path / "rows.npz", "simclr", tmp_path / "run")
    figures = {figure["name"]: dict(figure["beside"]) for figure in found["figures"]}
    raw = likewise.evaluate(trainer.folder, progress=False)["raw input"]
    name = modalities.of(trainer.plan.items.main).baseline_in_words(by_frame=False)
    assert figures["k-NN"][name] == f"{raw['knn']['accuracy']:.3f}"
    assert raw["knn"]["accuracy"] > 0.6, "unscaled, the largest numbers would decide alone"
    assert figures["5 labels a class"][name] == f"{raw['few_labels'][5]['accuracy']:.3f}"


def test_few_held_out_items_are_said_to_be_few(moco, cpc):
    assert moco[1]["doubt"] is None
    assert cpc[1]["doubt"].startswith("12 test items say ")


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


def test_what_has_no_captions_is_not_found_by_words(moco):
    assert moco[1]["words"] is None
    assert moco[1]["pairs"]["captions"] is None


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
    assert found["worth"] == (
        "Without labels of held-out items it cannot be said whether this is better than the vectors themselves"
    )
    assert found["doubt"] is None, "nothing was held out, so that nothing is claimed"


def test_warnings_and_skipped_files_are_told(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for i in range(20):
        Image.fromarray(rng.integers(0, 256, (70, 90, 3), dtype=np.uint8)).save(photos / f"{i:02}.png")
    (photos / "torn.png").write_bytes(b"\x89PNG and no more")
    settings = {"data.size": 64, "encoder.name": "tests.training.plain_encoder:plain"}
    _, found = finished(str(photos), "moco", tmp_path / "run", **settings)
    assert (found["skipped"]["count"], found["skipped"]["said"]) == (1, "1 file could not be read")
    assert found["skipped"]["files"][0][0] == "torn.png"
    assert found["map"]["names"][0] == "00.png"
    assert found["map"]["sprite"]["side"] == SIDE
    assert found["recipe"].startswith('format = 2\nmethod = "moco"\n')
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


# Captions


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return finished("shapes", "clip", tmp_path_factory.mktemp("clip") / "run")


def test_the_report_of_captions_is_plain_json(clip):
    json.dumps(clip[1], allow_nan=False)


def test_captions_find_the_nearest_of_the_images_that_were_held_out(clip):
    trainer, found = clip
    words, held_out, captions = found["words"], trainer.plan.test, trainer.plan.items.captions
    assert "Some captions of 120 held-out items" in words["note"]
    asked = [row["query"]["name"] for row in words["rows"]]
    assert len(set(asked)) == 8
    assert asked[0] == captions[held_out[0]][0], "they are spread from the first item on"
    assert asked[-1] in captions[held_out[-1]] or asked[-1] in captions[held_out[-2]]
    encoder = likewise.load(trainer.folder)
    images = torch.from_numpy(encoder.embed("shapes", progress=False).vectors)[held_out]
    texts = torch.from_numpy(encoder.embed_text(asked))
    best = torch.nn.functional.cosine_similarity(texts[:, None], images, dim=2).topk(8)
    sheet = picture(words["sprite"]).reshape(-1, 32, 32, 3)
    marks = []
    for row, caption, cosines, places in zip(words["rows"], asked, *best, strict=True):
        ids = held_out[places]
        assert [one["similarity"] for one in row["found"]] == pytest.approx(cosines.tolist(), abs=2e-3)
        assert [one["name"] for one in row["found"]] == [captions[i][0] for i in ids]
        assert [one["same"] for one in row["found"]] == [caption in captions[i] for i in ids]
        shown = np.stack([sheet[one["tile"]] for one in row["found"]]).astype(int)
        assert np.abs(shown - trainer.plan.items.array[ids].transpose(0, 2, 3, 1)).mean() < 12
        marks += [one["same"] for one in row["found"]]
    assert set(marks) == {True, False}, "else the marks are not tested"


def test_recall_both_ways_is_told_of_images_that_were_held_out(clip):
    trainer, found = clip
    held_out = trainer.plan.test
    own = [trainer.plan.items.captions[i] for i in held_out]
    texts = list(dict.fromkeys(text for several in own for text in several))
    has = torch.tensor([[text in several for text in texts] for several in own])
    encoder = likewise.load(trainer.folder)
    vectors = encoder.embed("shapes", progress=False).vectors[held_out], encoder.embed_text(texts)
    unit = [torch.nn.functional.normalize(torch.from_numpy(rows), dim=1) for rows in vectors]
    cosines = unit[0] @ unit[1].T
    figures = found["figures"]
    assert [figure["name"] for figure in figures[:3]] == ["recall@10, image → text", "recall@10, text → image", "k-NN"]
    for figure, scores, right in ((figures[0], cosines, has), (figures[1], cosines.T, has.T)):
        best = scores.masked_fill(~right, -2).amax(dim=1)
        ranks = 1 + (scores.masked_fill(right, -2) >= best[:, None]).sum(dim=1)
        assert float(figure["value"]) == pytest.approx(float((ranks <= 10).double().mean()), abs=0.01)
        assert f"median rank {np.median(ranks):g}; head of resnet_tiny" in figure["note"]
        assert [name for name, _ in figure["beside"]] == ["95 % interval", "untrained", "chance"]
    count = len(texts)
    assert figures[0]["note"].startswith(f"120 held-out images, each searched among {count} captions, ")
    assert figures[1]["note"].startswith(f"{count} held-out captions, each searched among 120 images, ")


def test_captions_are_worth_it_by_recall_beside_chance_and_the_untrained_encoder(clip):
    assert "better than chance by " in clip[1]["worth"].lower()
    assert "recall@10 image → text" in clip[1]["worth"]
    assert "the untrained encoder" in clip[1]["worth"]


def test_recall_is_drawn_over_the_steps(clip):
    trainer, found = clip
    charts = {chart["title"]: chart["series"][0]["points"] for chart in found["charts"]}
    rows = [json.loads(line) for line in (trainer.folder / "metrics.jsonl").read_text().splitlines()]
    assert charts["Recall@1 in the batch"] == [[row["step"], row["recall"]] for row in rows]
    held_out = [[row["step"], row["recall_at_10"]] for row in rows if "recall_at_10" in row]
    assert charts["Recall@10, image → text"] == held_out
    assert 0 < len(held_out) < len(rows)
    assert charts["Temperature"] == [[row["step"], row["temperature"]] for row in rows]


def test_an_item_with_captions_is_called_by_its_first(clip):
    trainer, found = clip
    captions = trainer.plan.items.captions
    assert found["map"]["names"] == [captions[i][0] for i in trainer.plan.test]
    assert found["neighbours"]["rows"][0]["query"]["name"] == captions[trainer.plan.test[0]][0]


def test_a_caption_and_a_file_are_one_name(tmp_path):
    for i in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{i}.png")
    lines = ("0.png,a dog", "0.png,a puppy", "1.png,a cat", f"2.png,{'very ' * 200}long")
    (tmp_path / "captions.csv").write_text("image,caption\n" + "\n".join(lines))
    items = data.open(tmp_path)
    names = [module.name_of(items, i) for i in range(3)]
    assert names[:2] == ["a dog (0.png)", "a cat (1.png)"]
    assert names[2] == "very " * 19 + "very… (2.png)"


def test_the_caption_shown_is_the_one_that_was_drawn(clip):
    trainer, found = clip
    pairs, batch = found["pairs"], trainer.batches.at(0)
    assert pairs["columns"] == ["item", "view"]
    assert pairs["rows"] == [[i, 8 + i] for i in range(8)]
    assert "An image has to find its caption among those of the batch, and a caption its image." in pairs["note"]
    own = [trainer.plan.items.captions[i] for i in trainer.plan.train[batch.items[:8]]]
    for caption, texts, tokens in zip(pairs["captions"], own, batch.partner_data, strict=False):
        assert caption in texts
        again = trainer.pairs.tokenizer.encode([caption], 99)[0]
        assert again.tolist() == tokens[: len(again)].tolist()
    assert pairs["captions"] != [texts[0] for texts in own], "not always the first"
    views = trainer.learner.views(batch, "first")[:8]
    tiles = pictures.of_views(views, trainer.learner.augmentation, trainer.plan.items)
    shown = picture(pairs["sprite"]).reshape(-1, 32, 32, 3)[8:16]
    assert np.abs(shown.astype(int) - tiles).mean() < 12


def test_a_loss_of_one_direction_asks_nothing_of_captions(tmp_path):
    _, found = finished("shapes", "clip", tmp_path / "run", **{"loss.kind": "info_nce"})
    assert found["pairs"]["note"].endswith("An image has to find its caption among others.")


AWKWARD = (
    "</script><script>window.hurt = 1</script>",
    "a very long one, " * 300,
    "x" * 4000,
    "כלב אדום קטן רץ",
    "\u202eback to front",
    "👩‍👩‍👧‍👦 at the sea 🏖️",
    "<start> <end>",
)


def test_any_captions_can_be_shown_also_where_nothing_was_held_out(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (42, 16, 16, 3), dtype=np.uint8)
    trainer, found = finished(
        {"x": x, "captions": np.array(AWKWARD * 6)}, "clip", tmp_path / "run", **{"data.test": 0.0}
    )
    assert len(trainer.plan.test) == 0
    assert not any(figure["name"].startswith("recall") for figure in found["figures"])
    assert "Recall@10, image → text" not in [chart["title"] for chart in found["charts"]]
    words = found["words"]
    assert "Some captions of 42 items, each" in words["note"]
    assert len(words["rows"]) == len(AWKWARD), "a caption of several items is asked for once"
    assert {row["query"]["name"] for row in words["rows"]} >= {AWKWARD[0], *AWKWARD[3:]}
    for row in words["rows"]:
        assert [one["same"] for one in row["found"]] == [one["name"] == row["query"]["name"] for one in row["found"]]
    assert max(map(len, found["map"]["names"] + found["pairs"]["captions"])) == module.LETTERS_SHOWN
    html = render(found)
    assert "window.hurt" in html
    assert "<script>window" not in html
    assert html.count("</script>") == 2


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
    titles = [chart["title"] for chart in found["charts"]]
    chart = found["charts"][titles.index("Mutual information, nats") + 1]
    assert (chart["title"], chart["x"]) == ("Accuracy over the horizon", "frames ahead")
    assert "among 16 other frames: by chance 0.0" in chart["note"]
    held_out, last = chart["series"]
    rows = [json.loads(line) for line in (trainer.folder / "metrics.jsonl").read_text().splitlines()]
    assert (held_out["name"], last["name"]) == ("held-out items", "the last step")
    assert last["points"] == [[ahead, value] for ahead, value in enumerate(rows[-1]["accuracy"], 1)]
    measured = trainer.measure_held_out(trainer.plan.test)["accuracy"]
    assert held_out["points"] == [[ahead, value] for ahead, value in enumerate(measured, 1)]
    assert [ahead for ahead, _ in held_out["points"]] == [1, 2, 3, 4, 5]
    assert all(0 <= value <= 1 for _, value in held_out["points"])


def test_a_few_held_out_items_have_a_curve_and_one_has_none(cpc):
    trainer, _ = cpc
    held_out = trainer.measure_held_out(trainer.plan.test[:7])
    assert len(held_out["accuracy"]) == 5
    assert trainer.measure_held_out(trainer.plan.test[:1]) == {}
    (chart,) = module.pair_charts([{"accuracy": [0.5, 0.25]}], trainer.recipe, held_out)
    assert chart["series"][1]["points"] == [[1, 0.5], [2, 0.25]]
    assert module.pair_charts([{"loss": 1.0}], trainer.recipe, held_out) == [], "what predicts nothing has no horizon"


def test_a_future_is_shown_as_an_item_and_its_window(cpc):
    trainer, found = cpc
    pairs = found["pairs"]
    assert pairs["columns"] == ["item", "window"]
    assert pairs["rows"] == [[i, 8 + i] for i in range(8)]
    assert "has to find the rest of it among the frames of all windows" in pairs["note"]
    views = trainer.learner.views(trainer.batches.at(0), "first")[:8]
    tiles = pictures.of_views(views, trainer.learner.augmentation, trainer.plan.items)
    shown = picture(pairs["sprite"]).reshape(-1, SIDE, SIDE, 3)[8:16]
    assert np.abs(shown.astype(int) - tiles).mean() < 12


def test_the_histogram_of_a_future_is_of_frames_that_are_there(cpc):
    trainer, found = cpc
    note = found["histogram"]["note"]
    first, second, ids = module.some_pairs(trainer.learner, trainer.batches.at(trainer.total - 1))
    assert len(first) == len(second) == len(ids)
    assert (ids >= 0).all()
    assert f"within and between {len(ids):,} pairs" in note
    for heap in found["histogram"]["series"]:
        assert sum(heap["shares"]) == pytest.approx(1, abs=1e-5)


def test_views_of_series_are_shown_as_two(tmp_path):
    _, found = finished(series(40), "simclr", tmp_path / "run")
    assert found["pairs"]["columns"] == ["item", "first view", "second view"]
    assert found["map"]["sprite"]["side"] == SIDE
    assert not any(chart["title"] == "Accuracy over the horizon" for chart in found["charts"])


def test_a_picture_of_audio_is_lighter_where_it_is_louder():
    """A high tone in the first half, silence in the second: light at the upper left, dark elsewhere."""
    time = np.arange(8000) / 8000
    tone = np.where(time < 0.5, 0.8 * np.sin(2 * np.pi * 3000 * time), 0).astype(np.float32)
    items = data.open({"audio": np.tile(tone, 2), "offsets": np.array([0, 8000, 16000]), "rate": 8000})
    tiles = pictures.of_items(items, np.array([0, 1]))
    assert tiles.shape == (2, SIDE, SIDE, 3)
    assert tiles.dtype == np.uint8
    light = tiles[0].astype(int).sum(axis=2)
    top, left = slice(0, 16), slice(4, 20)
    assert light[top, left].max() > 500
    assert light[32:, left].mean() < light[top, left].mean()
    assert light[:, 30:].max() < 100, "silence is dark"


def test_recordings_among_the_neighbours_can_be_heard(tmp_path):
    _, found = finished(clips(40), "simclr", tmp_path / "run", **{"training.steps": 2})
    neighbours = found["neighbours"]
    items = data.open(clips(40))
    tiles = [item for row in neighbours["rows"] for item in (row["query"], *row["found"])]
    assert sorted(neighbours["sounds"]) == sorted(item["tile"] for item in tiles), "short ones all have room"
    for item in tiles[:12]:
        with wave.open(io.BytesIO(base64.b64decode(neighbours["sounds"][item["tile"]].partition(",")[2]))) as file:
            place = int(item["name"].removeprefix("item "))
            assert (file.getframerate(), file.getnframes()) == (8000, items.lengths[place])
    assert neighbours["note"].endswith("Press play to listen, at most 1.5 s.")
    html = render(found)
    assert html.count("<audio controls") == len(tiles)
    assert html.count("data:audio/wav") == len(tiles), "each is embedded once"


def test_sounds_are_cut_and_take_up_bounded_room(monkeypatch):
    items = data.open(clips(10, shortest=2, longest=3))
    uris = sounds.of_items(items, range(10))
    assert len(uris) == 10
    with wave.open(io.BytesIO(base64.b64decode(uris[0].partition(",")[2]))) as file:
        assert file.getnframes() == 1.5 * 8000
    monkeypatch.setattr(sounds, "MOST_LETTERS", 4 * len(uris[0]))
    assert sounds.of_items(items, range(10)) == uris[:4]
    assert sounds.of_items(data.open(series(9)), range(9)) == [], "a series is not heard"


def test_pictures_of_clips_of_unequal_length_have_one_size():
    items = data.open(clips(6))
    assert len(set(items.lengths.tolist())) > 1
    tiles = pictures.of_items(items, np.arange(6))
    assert tiles.shape == (6, SIDE, SIDE, 3)
    assert all(tile.std() > 5 for tile in tiles), "something is drawn in each"


def test_a_picture_of_a_series_has_a_line_a_channel():
    """One channel rises, one falls, each in its colour."""
    rise = np.linspace(0, 1, 50, dtype=np.float32)
    array = np.stack([np.stack([rise, 1 - rise], axis=1)] * 2)
    tile = pictures.of_items(data.open(array), np.array([0, 1]))[0].astype(int)
    assert tile.shape == (SIDE, SIDE, 3)

    def places(colour):
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        return np.argwhere(np.abs(tile - wanted).sum(axis=2) < 60)  # rows from above, columns

    for colour, sign in ((LINES[0], -1), (LINES[1], 1)):
        found = places(colour)
        assert len(found) > 20
        assert np.corrcoef(found.T)[0, 1] * sign > 0.95
    assert not len(places(LINES[2])), "there is no third"
