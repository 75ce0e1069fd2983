"""`evaluate`: one ruler for raw input, the untrained and the learned encoder, and anyone's."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import likewise
from likewise import data
from likewise.cli import app
from likewise.data import DataError
from likewise.evaluation.interval import wilson
from likewise.evaluation.knn import knn
from likewise.evaluation.tables import tables
from likewise.training.plan import split
from likewise.training.run import RunError

ROWS = ["raw input", "untrained encoder", "learned encoder"]


def command(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


@pytest.fixture(scope="module")
def found(run):
    return likewise.evaluate(run.folder, progress=False)


class Means(nn.Module):
    """Anyone's encoder: the mean of every row of pixels."""

    dim = 8

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images):
        return self.scale * images.mean(dim=(1, 3))


def test_the_rows_are_raw_input_untrained_and_learned_and_learning_shows(found):
    assert list(found) == ["about", *ROWS]
    learned, untrained = found["learned encoder"], found["untrained encoder"]
    for name in ("knn", "linear"):
        assert learned[name]["accuracy"] > untrained[name]["accuracy"]
    assert learned["few_labels"][1]["accuracy"] > untrained["few_labels"][1]["accuracy"]
    assert learned["retrieval"]["mean_average_precision"] > untrained["retrieval"]["mean_average_precision"]
    assert learned["clustering"]["ari"] > untrained["clustering"]["ari"]
    assert learned["information"]["bound"] > untrained["information"]["bound"]
    assert learned["verdict"].startswith("not collapsed: ")


def test_figures_are_those_of_the_evaluators_on_the_part_that_the_run_held_out(run, found):
    items = data.open("digits")
    train, test = split(items, run.recipe)
    vectors, labels = torch.from_numpy(run.encoder.embed("digits").vectors), torch.from_numpy(items.labels)
    expected = knn(vectors[train], labels[train], vectors[test], labels[test])
    assert found["learned encoder"]["knn"]["accuracy"] == expected.accuracy
    pixels = torch.from_numpy(items.array).flatten(1).float()
    expected = knn(pixels[train], labels[train], pixels[test], labels[test])
    assert found["raw input"]["knn"]["accuracy"] == expected.accuracy


def test_fault_15_every_figure_is_printed_with_what_it_depends_on(run):
    """k, temperature, layer, encoder, stem, split and sizes; and the weights are the last step's, not the best's."""
    result = command(run.folder, "-k", 7, "--temperature", 0.1)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "180 items not trained on" in words
    assert "backbone of resnet_tiny, small stem, 256 features, simclr, seed 0" in words
    assert "k-NN: k 7, T 0.1, 1,617 labels" in words
    assert "Linear: 1,617 labels, l2 " in words
    assert "mean ± standard deviation of 20 draws" in words
    assert "180 queries among 1,617 items" in words
    assert "is at most log 180" in words
    assert "learned encoder: not collapsed: " in words
    assert "by chance 0.1" in words
    assert "In brackets: 95 % interval over the test items (Wilson)." in words


def test_accuracies_are_printed_with_their_interval_and_the_last_line_says_whether_it_was_worth_it(run, found):
    table = tables(found)[0]
    for name, cells in zip(ROWS, table.rows[1:], strict=True):
        for key, cell in (("knn", cells[1]), ("linear", cells[2])):
            accuracy = found[name][key]["accuracy"]
            assert cell == f"{accuracy:.3f} ({wilson(accuracy, 180)})"
    assert found["about"]["notes"] == []
    assert found["about"]["worth"].startswith("not better than raw pixels with five labels a class (")
    assert command(run.folder).stdout.splitlines()[-1] == f"learned encoder: {found['about']['worth']}"


def test_eight_items_are_said_to_say_nothing_and_copies_are_told(run, tmp_path):
    items = data.open("digits")
    rows = {"train": np.arange(300), "test": np.r_[5, 17, 400:406]}
    for name, some in rows.items():
        np.savez(tmp_path / f"{name}.npz", x=items.array[some], y=items.labels[some])
    result = command(run.folder, "--data", tmp_path / "train.npz", "--test", tmp_path / "test.npz")
    assert result.exit_code == 0, result.output
    few, copied = (line for line in result.stderr.splitlines() if line.startswith("note: "))
    assert few.startswith("note: 8 test items say nothing: the k-NN accuracy of ")
    assert copied.startswith(
        "note: 2 of the 8 test items are copies of training items: 2 exactly, such as item 0 of item 5; "
    )


def test_json_is_json_and_nothing_else(run, found):
    result = command(run.folder, "--json")
    assert json.loads(result.stdout) == json.loads(json.dumps(found))
    assert result.stderr == ""


@pytest.fixture(scope="module")
def again(run):
    """A caller's own encoder, in training mode, and its figures."""
    encoder = run.encoder.train()
    return encoder, likewise.evaluate(encoder, "digits", progress=False)


def test_the_same_again(found, again):
    assert again[1] == found


def test_the_head_is_a_layer_too(run, found):
    head = likewise.evaluate(run.folder, layer="head", progress=False)
    assert head["about"]["encoder"].startswith("head of resnet_tiny, small stem, 128 features")
    assert head["learned encoder"]["geometry"]["dim"] == 128
    assert head["raw input"] == found["raw input"]


def test_another_source_is_tested_by_the_names_of_its_classes(run):
    """Two sources may number the same classes differently, and one may have a class that the other lacks."""
    items = data.open("digits")
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    first, second = {"x": items.array[:900], "y": names[items.labels[:900]]}, slice(900, None)
    kept = items.labels[second] > 0  # nobody is a zero here, so that all others are numbered anew
    asked = {"x": items.array[second][kept], "y": names[items.labels[second][kept]]}
    found = likewise.evaluate(run.encoder, first, asked, progress=False)
    assert found["about"]["train_items"] == 900
    assert found["about"]["test_items"] == kept.sum()
    assert found["learned encoder"]["knn"]["accuracy"] > 0.8


def test_without_labels_the_geometry_remains(run):
    found = likewise.evaluate(run.encoder, {"x": data.open("digits").array}, progress=False)
    assert set(found["learned encoder"]) == {"geometry", "verdict", "alignment", "information"}
    assert found["about"]["worth"].startswith("without labels of held-out items it cannot be said whether")
    assert found["about"]["notes"] == [], "they were trained on, so that all of them are copies"
    assert (found["about"]["labels"], found["about"]["test_words"]) == (False, "items, none held out")
    assert [table.rows[0][0] for table in tables(found)] == ["geometry"]


def test_items_are_called_not_trained_on_only_where_that_is_known(run, found):
    assert found["about"]["test_words"] == "items not trained on"
    items = data.open("digits")
    other = likewise.evaluate(run.encoder, {"x": items.array[::-1], "y": items.labels[::-1]}, progress=False)
    assert other["about"]["test_words"] == "test items"


def test_a_test_part_without_labels_or_without_a_known_class_loses_only_what_needs_them(run):
    items = data.open("digits")
    x, y = items.array, items.labels
    without = {"x_train": x[:900], "y_train": y[:900], "x_test": x[900:]}
    assert "knn" not in likewise.evaluate(run.encoder, without, progress=False)["learned encoder"]
    low, high = y < 5, y >= 5
    parts = {"x": x[low], "y": y[low]}, {"x": x[high], "y": y[high]}
    apart = likewise.evaluate(run.encoder, *parts, progress=False)
    assert apart["learned encoder"]["knn"]["accuracy"] == 0
    assert "retrieval" not in apart["learned encoder"]
    assert len(tables(apart)) == 2


def test_the_callers_encoder_stays_as_it_is(again):
    assert all(module.training for module in again[0].backbone.modules())


def test_a_run_on_arrays_has_no_data_to_go_back_to(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    made = likewise.train(vectors, method="simclr", steps=2, batch_size=16, out=tmp_path / "run", progress=False)
    with pytest.raises(
        RunError, match=r"^the data of the run, .*, cannot be found: say where it is \(DATA or --data\)$"
    ):
        likewise.evaluate(made.folder)


def test_untrained_is_untrained_also_where_the_run_started_from_weights_that_are_gone(run, here):
    start = here / "start.safetensors"
    start.write_bytes((run.folder / "encoder.safetensors").read_bytes())
    later = likewise.train("digits", method="simclr", init=start, steps=2, batch_size=64, out="later", progress=False)
    start.unlink()
    found = likewise.evaluate(later.folder, progress=False)
    assert found["untrained encoder"]["knn"]["accuracy"] < found["learned encoder"]["knn"]["accuracy"] - 0.03


def test_anyones_encoder_by_name():
    result = command("tests.commands.test_evaluate:Means", "--data", "digits", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == ["about", "raw input", "tests.commands.test_evaluate:Means"]
    assert 0.2 < found["tests.commands.test_evaluate:Means"]["knn"]["accuracy"] < 0.99


def test_a_file_of_embeddings_is_measured_by_the_same_ruler(run, found, here):
    embeddings = run.encoder.embed("digits", progress=False)
    _, test = split(data.open("digits"), run.recipe)
    is_test = np.isin(embeddings.ids, test)
    np.savez("vectors.npz", vectors=embeddings.vectors, labels=embeddings.labels, is_test=is_test)
    measured = likewise.evaluate("vectors.npz")
    assert list(measured) == ["about", "embeddings"]
    assert measured["about"]["worth"] is None, "there is nothing to compare them with"
    for name in ("knn", "linear", "retrieval", "clustering", "geometry"):
        assert measured["embeddings"][name] == found["learned encoder"][name]


def test_a_second_file_is_the_test_part(run, here):
    embeddings = run.encoder.embed("digits", progress=False)
    np.savez("a.npz", x=embeddings.vectors[:1500], y=embeddings.labels[:1500])
    np.savez("b.npz", x=embeddings.vectors[1500:], y=embeddings.labels[1500:])
    found = likewise.evaluate("a.npz", test="b.npz")
    assert (found["about"]["train_items"], found["about"]["test_items"]) == (1500, 297)


def test_embeddings_that_are_not_numbers_are_refused_in_a_sentence(here):
    np.savez("nan.npz", x=np.full((20, 3), np.nan, dtype=np.float32), y=np.arange(20) % 2)
    result = command("nan.npz")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("likewise: ")
    assert len(result.stderr.splitlines()) == 1


def test_mistakes_are_one_sentence(run, here):
    with pytest.raises(RunError, match=r"^nowhere is not a run: expected a folder with recipe\.toml$"):
        likewise.evaluate("nowhere")
    with pytest.raises(ValueError, match=r"^layer must be backbone or head, got 'neck'$"):
        likewise.evaluate(run.folder, layer="neck")
    with pytest.raises(ValueError, match=r"^size can only be given for a module:callable, got 32$"):
        likewise.evaluate(run.folder, size=32)
    with pytest.raises(ValueError, match=r"^e\.npz has no head, so layer must be backbone, got 'head'$"):
        likewise.evaluate("e.npz", layer="head")
    with pytest.raises(ValueError, match=r"^tests:x needs data to be evaluated on \(--data\)$"):
        likewise.evaluate("tests:x")
    with pytest.raises(DataError, match=r"^the encoder takes images of 1 channel, got vectors of 64 features in "):
        likewise.evaluate(run.folder, np.zeros((9, 64), dtype=np.float32))
    with pytest.raises(ValueError, match=r"^data cannot be given for a file of embeddings, got e\.npz and digits$"):
        likewise.evaluate("e.npz", "digits")


def test_each_encoder_is_named_while_it_is_evaluated(run):
    result = command(run.folder)
    assert result.stderr.splitlines() == [
        "evaluating: raw input (1/3) …",
        "evaluating: untrained encoder (2/3) …",
        "evaluating: learned encoder (3/3) …",
    ]


def test_a_test_source_of_one_class_is_said_to_have_no_labels(run, tmp_path, capsys):
    digits = data.open("digits")
    for name, rows in {"train": np.arange(60), "test": np.flatnonzero(digits.labels == 3)[:30]}.items():
        np.savez(tmp_path / f"{name}.npz", x=digits.array[rows], y=digits.labels[rows])
    found = likewise.evaluate(run.folder, tmp_path / "train.npz", tmp_path / "test.npz")
    assert not found["about"]["labels"]
    assert "knn" not in found["learned encoder"]
    said = f"{tmp_path / 'test.npz'} has no labels, or only one class, so figures that need labels are left out"
    assert said in capsys.readouterr().err
