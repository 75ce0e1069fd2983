"""Commands on images with captions: train chooses clip, evaluate measures both ways and by names alone."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app
from likewise.training.plan import split

NAMES = ["star", "circle", "square", "triangle", "cross", "ring"]  # not in the order of the classes


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """CLIP on the built-in shapes: colours and grounds are learned within so few steps."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    result = command("train", "shapes", "--steps", 50, "--batch-size", 128, "--out", folder)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "chosen method clip: the images have captions" in said
    assert "pairs captions, 2,400 of them, one per image drawn each step" in said
    assert "keys by text encoder" in said
    assert "temperature 0.07 to start with, learned" in said
    assert "text text_tiny, linear head to 128" in said
    assert "recall@1 in the batch" in said
    return folder


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "names.txt"
    path.write_text("\n".join(NAMES) + "\n\n")
    return path


@pytest.fixture(scope="module")
def figures(run):
    return likewise.evaluate(run, progress=False)


def test_recall_is_that_of_a_loop_over_the_held_out_part(run, figures):
    """Of all distinct captions of the part, an image's own best is at a place; in both directions."""
    found = figures["learned encoder"]["cross_modal"]
    encoder, items = likewise.load(run), data.open("shapes")
    _, test = split(items, encoder.recipe)
    images = normalize(torch.from_numpy(encoder.embed("shapes", progress=False).vectors[test]), dim=1)
    texts = sorted({text for item in test for text in items.captions[item]})
    words = normalize(torch.from_numpy(encoder.embed_text(texts)), dim=1)
    scores = (images @ words.T).numpy()
    has = np.array([[text in items.captions[item] for text in texts] for item in test])
    for way, score, own in (("image_to_text", scores, has), ("text_to_image", scores.T, has.T)):
        ranks = [1 + int(((row >= row[mine].max()) & ~mine).sum()) for row, mine in zip(score, own, strict=True)]
        assert found[way]["median_rank"] == np.median(ranks)
        assert found[way]["candidates"] == score.shape[1]
        for k, share in found[way]["recall"].items():
            assert share == pytest.approx(np.mean([rank <= k for rank in ranks]))


def test_learning_shows_in_both_directions(figures):
    assert "cross_modal" not in figures["raw input"], "pixels know no words"
    for way in ("image_to_text", "text_to_image"):
        learned, untrained = (figures[f"{name} encoder"]["cross_modal"][way] for name in ("learned", "untrained"))
        assert learned["recall"][10] > untrained["recall"][10] + 0.2
        assert learned["median_rank"] < untrained["median_rank"]


def parts(folder, labelled=("train", "test")):
    """Some of the shapes as two files: a hundred to train on, eighty to test with."""
    items = data.open("shapes")
    pixels, captions = items.array.transpose(0, 2, 3, 1), [texts[0] for texts in items.captions]
    classes = np.array(items.classes)[items.labels]
    for name, some in (("train", slice(0, 100)), ("test", slice(100, 180))):
        labels = {"y": classes[some]} if name in labelled else {}
        np.savez(folder / f"{name}.npz", x=pixels[some], captions=captions[some], **labels)
    return folder / "train.npz", folder / "test.npz"


def test_classes_are_named_in_any_order_and_by_any_prompts(run, names, tmp_path):
    """The loop: the class whose averaged prompts are nearest."""
    templates = ["{}", "a large red {}", "a small blue {} on black"]
    train, test = parts(tmp_path)
    found = likewise.evaluate(run, train, test, names=names, templates=templates, progress=False)
    encoder, items = likewise.load(run), data.open(test)
    assert sorted(items.classes) == sorted(NAMES)
    images = normalize(torch.from_numpy(encoder.embed(test, progress=False).vectors), dim=1)
    classes = []
    for name in items.classes:
        prompts = torch.from_numpy(encoder.embed_text([template.format(name) for template in templates]))
        classes.append(normalize(normalize(prompts, dim=1).mean(dim=0), dim=0))
    predicted = (images @ torch.stack(classes).T).argmax(dim=1).numpy()
    assert found["learned encoder"]["zero_shot"]["accuracy"] == np.mean(predicted == items.labels)
    assert found["about"]["templates"] == templates
    other_order = list(reversed(items.classes))
    swapped = likewise.evaluate(run, train, test, names=other_order, templates=templates, progress=False)
    assert swapped["learned encoder"]["zero_shot"] == found["learned encoder"]["zero_shot"]
    renamed = ["ball", *items.classes[1:]]
    other = likewise.evaluate(run, train, test, names=renamed, templates=templates, progress=False)
    assert other["learned encoder"]["zero_shot"] != found["learned encoder"]["zero_shot"], "these count by place"


def test_the_tables_say_what_the_figures_depend_on(run, names):
    result = command("evaluate", run, "--labels", names, "--template", "{}", "--template", "a red {}")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "image → text @1" in said
    assert "learned encoder: better than chance by " in said
    assert "text → image @1" in said
    assert "head of resnet_tiny, small stem, 128 features, clip, seed 0: images among" in said
    assert (
        "120 items not trained on, classified into 6 classes by the class names, with the mean of 2 prompts per class"
        in said
    )
    assert "{}, a red {}; head of resnet_tiny, small stem, 128 features, clip, seed 0." in said
    printed = json.loads(command("evaluate", run, "--labels", names, "--json").stdout)
    assert set(printed["learned encoder"]) >= {"cross_modal", "zero_shot", "knn", "geometry"}


MISTAKES = {
    "names.txt --layer backbone": "zero-shot classification needs the head of a run trained on captions, got backbone",
    "nowhere.txt": "cannot read class names: nowhere.txt (no such file or directory)",
    "few.txt": "there must be one name for each of the 6 classes, got 2 names",
    "bytes.txt": "class names must be UTF-8 text, got bytes.txt",
    "names.txt --template photo": "a template must have one {} for the class name, got 'photo'",
    "twice.txt": "names must differ, got 'star' twice",
    "typo.txt": "names must be exactly the class names, or be in their order, got 'star' out of order and 'triangl'",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_end_in_one_sentence(run, here, words):
    (here / "names.txt").write_text("\n".join(NAMES))
    (here / "few.txt").write_text("circle\nsquare\n")
    (here / "twice.txt").write_text("\n".join(["star", *NAMES[:5]]))
    (here / "typo.txt").write_text("\n".join(["star", "ring", "cross", "triangl", "square", "circle"]))
    (here / "bytes.txt").write_bytes(b"caf\xe9\n")
    result = command("evaluate", run, "--labels", *words.split())
    assert result.exit_code == 1
    assert " ".join(result.stderr.split()).startswith(f"likewise: {MISTAKES[words]}")


def test_templates_are_for_names(run):
    result = command("evaluate", run, "--template", "a {}")
    assert result.exit_code == 1
    assert result.stderr == "likewise: templates need class names (--labels), got none\n"


def test_only_the_test_items_need_labels(run, tmp_path):
    """Zero-shot is without any labels to learn from."""
    train, test = parts(tmp_path, labelled=("test",))
    found = likewise.evaluate(run, train, test, names=NAMES, progress=False)
    assert found["learned encoder"]["zero_shot"]["images"] == 80
    assert "knn" not in found["learned encoder"]


def test_only_an_encoder_of_words_can_be_asked_by_name(here):
    settings = {"encoder.name": "resnet_tiny", "training.batch_size": 32}
    run = likewise.train("digits", method="e2e", steps=1, out=here / "run", settings=settings, progress=False)
    (here / "names.txt").write_text("\n".join(map(str, range(10))))
    result = command("evaluate", run.folder, "--labels", "names.txt")
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert said.startswith(
        "likewise: zero-shot classification needs the head of a run trained on captions, got backbone"
    )


def test_the_image_tower_is_fine_tuned_like_any_other(run):
    result = command("finetune", run, "--labels", 0.05, "--epochs", 1, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["classes"] == 6


def test_anothers_captions_and_a_folder_of_pictures(run, here):
    """A folder with captions.csv, read as a person would give it, is embedded and evaluated by the same run."""
    from PIL import Image

    items = data.open("shapes")
    lines = ["image,caption"]
    for item in range(40):
        Image.fromarray(items.array[item].transpose(1, 2, 0)).save(here / f"{item:02}.png")
        lines.append(f"{item:02}.png,{items.captions[item][0]}")
    (here / "captions.csv").write_text("\n".join(lines))
    found = likewise.evaluate(run, here, here, progress=False)
    assert found["learned encoder"]["cross_modal"]["image_to_text"]["queries"] == 40
    assert found["about"]["test_words"] == "test items"
