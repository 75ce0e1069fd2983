"""Commands on texts: train, evaluate beside TF-IDF, search by words, find copies, embed, export, look."""

import csv
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise
from likewise.cli import app
from likewise.data.tokens import Tokenizer
from likewise.explorer.explorer import Explorer
from likewise.explorer.scene import Scene
from tests.sentences import sentences


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A table of sentences; the last is the first with another label, so that it is kept."""
    folder = tmp_path_factory.mktemp("texts")
    given = sentences(200)
    rows = [*zip(given["text"], given["y"], strict=True)]
    rows.append((rows[0][0], next(topic for topic in given["y"] if topic != rows[0][1])))
    with (folder / "notes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "topic"), *rows])
    return folder


@pytest.fixture(scope="module")
def run(here):
    options = ["--column", "y=topic", "--steps", 60, "--batch-size", 64, "--set", "text.vocabulary=400"]
    result = command("train", here / "notes.csv", *options, "--out", here / "run")
    assert result.exit_code == 0, result.output
    told = " ".join(result.stderr.split())
    assert "181 texts of about 12 words" in told
    assert "chosen method simclr: two spans of one text are alike" in told
    assert "pairs views, text augmentations" in told
    return here / "run"


def test_tf_idf_is_the_baseline(run):
    result = command("evaluate", run, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found)[1:] == ["TF-IDF", "untrained encoder", "learned encoder"]
    assert found["TF-IDF"]["knn"]["accuracy"] > 0.9
    assert "TF-IDF" in found["about"]["worth"]


def test_words_find_texts_about_the_same(run, here):
    result = command("search", run, "a guitar goes well with the choir", "-k", 5, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [match["label"] for match in found].count("music") >= 4
    assert all(set(match) == {"id", "path", "label", "text", "similarity"} for match in found)
    own = command("search", run, 3, "-k", 1, "--json")
    assert json.loads(own.stdout)[0]["id"] != 3


def test_words_that_name_a_folder_are_words(run, here, monkeypatch):
    monkeypatch.chdir(here)
    (here / "music").mkdir(exist_ok=True)
    result = command("search", run, "music", "-k", 1, "--json")
    assert result.exit_code == 0, result.output


def test_a_text_that_is_there_twice_is_found(run):
    result = command("search", run, "--duplicates", 0.9999, "--json")
    groups = json.loads(result.stdout)
    assert any({0, 200} == {item["id"] for item in group["items"]} for group in groups)


def test_suspects_are_printed_with_their_text(run):
    result = command("search", run, "--suspects", 3)
    assert result.exit_code == 0, result.output
    assert "number" in result.stdout


def test_vectors_of_a_file_and_of_strings_are_the_same(run, here):
    result = command("embed", run, "--out", here / "notes.npz")
    assert result.exit_code == 0, result.output
    texts = sentences(200)["text"]
    with np.load(here / "notes.npz") as stored:
        np.testing.assert_allclose(stored["vectors"][:200], likewise.load(run).embed_text(texts), atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("ending", ["onnx", "pt", "safetensors"])
def test_an_exported_encoder_takes_tokens_and_comes_with_its_tokenizer(run, here, ending):
    folder = here / ending
    folder.mkdir()
    result = command("export", run, "--out", folder / f"notes.{ending}")
    assert result.exit_code == 0, result.output
    tokenizer = Tokenizer((folder / "tokenizer.json").read_text())
    record = json.loads((folder / f"notes.{ending}.json").read_text())
    assert (record["input"], record["modality"]) == ("tokens", "text")
    texts = ["a song", "the bread is near an apple and some cheese"]
    tokens, expected = tokenizer.encode(texts, record["length"]), likewise.load(run).embed_text(texts)
    if ending == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(str(folder / "notes.onnx"), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"tokens": tokens.numpy()})[0], expected, atol=1e-5)
    if ending == "pt":
        np.testing.assert_allclose(torch.jit.load(folder / "notes.pt")(tokens).numpy(), expected, atol=1e-5)


def test_the_report_and_the_explorer_show_the_texts(run, here):
    text = sentences(200)["text"][7]
    page = (run / "report.html").read_text()
    assert "TF-IDF" in page
    assert any(each in page for each in sentences(200)["text"])
    scene = Scene.open(run, here / "notes.csv", say=lambda told, share: None)
    explorer = Explorer(run, lambda say: scene)
    assert list(explorer.describe(scene, 7)["captions"]) == [text]
    found, count = explorer.search_names(scene, text[:20].upper())
    assert count >= 1
    assert found[0]["text"].startswith(text[:20])


def test_a_layer_of_words_and_items_is_the_same(run):
    encoder = likewise.load(run)
    texts = sentences(200)["text"][:4]
    head = encoder.embed_text(texts, layer="head")
    assert head.shape == (4, 128)
    np.testing.assert_allclose(encoder.embed({"text": texts}, layer="head", progress=False).vectors, head, atol=1e-5)
