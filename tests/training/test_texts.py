"""Every method on texts: views by dropout or by augmentation, bit-exact resuming, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch

import likewise
from likewise import data
from likewise.data.text_part import TextPart
from likewise.data.tokens import Tokenizer
from likewise.recipe import RecipeError
from likewise.training.about import complaint
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from tests.sentences import sentences
from tests.training.conftest import assert_same, whole

QUICK = {
    "encoder.dim": 16,
    "text.vocabulary": 300,
    "training.steps": 3,
    "training.batch_size": 12,
    "training.log_every": 1,
    "data.workers": 0,
}


def trained(out, method=None, source=None, **settings):
    settings = QUICK | {key.replace("__", "."): value for key, value in settings.items()}
    source = sentences(60) if source is None else source
    return likewise.train(source, method=method, out=out, settings=settings, progress=False)


def refused(method=None, **settings):
    asked = QUICK | {key.replace("__", "."): value for key, value in settings.items()}
    with pytest.raises(RecipeError) as error:
        make_plan(sentences(60), method, asked, progress=False)
    return str(error.value)


METHODS = ["simcse", "simclr", "moco", "instdisc", "bank", "e2e", "supcon", "triplet", "dcl", "nnclr", "moco_v3"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_views_or_groups_trains_on_texts(tmp_path, method):
    run = trained(tmp_path / "run", method)
    losses = [row["loss"] for row in run.metrics]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    assert run.recipe.encoder.name.startswith("bert_")
    assert run.recipe.pairs.preset == ("dropout" if method == "simcse" else "text")
    assert run.report.exists()


def test_texts_get_simclr_and_reasons():
    ready = make_plan(sentences(60), None, {}, progress=False)
    assert ready.chosen[0] == "method simclr: two spans of one text are alike"
    assert "pairs.preset = text: the items are texts" in ready.chosen
    assert ready.recipe.text.dropout == 0


def test_the_two_views_of_simcse_differ_by_dropout_alone(tmp_path):
    trainer = Trainer(make_plan(sentences(60), "simcse", QUICK, progress=False), tmp_path, Observer())
    batch, learner = trainer.batches.at(0), trainer.learner
    assert torch.equal(learner.views(batch, "first"), learner.views(batch, "second"))
    query, key, _ = learner.encode(batch)
    assert not torch.allclose(query, key)
    again = learner.encode(batch)
    assert torch.equal(again[0], query), "dropout is drawn for the step"
    learner.tower.eval()
    query, key, _ = learner.encode(batch)
    torch.testing.assert_close(query, key)


@pytest.mark.parametrize("method", ["simcse", "moco"])
def test_a_run_on_texts_goes_on_to_the_bit(tmp_path, cut, method):
    options = QUICK | {"training.steps": 7, "training.checkpoint_every": 2, "text.dropout": 0.1}

    def train(folder, *, resume=False):
        run = likewise.train(sentences(60), method=method, out=folder, settings=options, resume=resume, progress=False)
        return run.folder

    undisturbed, folder = train(tmp_path / "undisturbed"), tmp_path / "unlucky"
    cut(3)
    with pytest.raises(cut.error):
        train(folder)
    cut.undo()
    assert whole(folder).step == 2
    train(folder, resume=True)
    assert_same(folder, undisturbed)


def test_another_tokenizer_is_refused_when_a_run_goes_on(tmp_path, cut):
    cut(2)
    with pytest.raises(cut.error):
        trained(tmp_path / "run", "simcse", training__checkpoint_every=1)
    cut.undo()
    path = tmp_path / "run" / "tokenizer.json"
    path.write_text(Tokenizer.learned(["something else"], 300).text)
    with pytest.raises(ValueError, match=r"^the tokenizer.json in .* is not the one that the run started with$"):
        likewise.train(
            sentences(60),
            method="simcse",
            out=tmp_path / "run",
            settings=QUICK | {"training.checkpoint_every": 1},
            resume=True,
            progress=False,
        )


def test_a_loaded_encoder_embeds_texts_and_sources_alike(tmp_path):
    run = trained(tmp_path / "run", "simcse")
    encoder, texts = likewise.load(run.folder), sentences(60)["text"]
    vectors = encoder.embed(sentences(60), progress=False).vectors
    np.testing.assert_allclose(encoder.embed_text(texts), vectors, atol=1e-6)
    np.testing.assert_allclose(encoder.embed_text(texts[5:6]), vectors[5:6], atol=1e-6)
    assert encoder.embed_text(texts[:2], layer="head").shape == (2, 16)
    with pytest.raises(ValueError, match=r"^texts must be a list of one or more strings, got 'a song'$"):
        encoder.embed_text("a song")


def test_line_breaks_are_no_difference(tmp_path):
    encoder = trained(tmp_path / "run", "simclr").encoder
    one, other = encoder.embed_text(["a song\n  and the choir ", "a song and the choir"])
    np.testing.assert_array_equal(one, other)


def test_many_test_items_are_evaluated(tmp_path):
    """Their views come in parts of different widths."""
    run = trained(tmp_path / "run", "simclr", sentences(700), data__test=0.5)
    assert likewise.evaluate(run.folder, sentences(700), progress=False)["learned encoder"]["alignment"] > 0


def test_the_alignment_of_views_that_are_the_same_is_not_measured(tmp_path):
    run = trained(tmp_path / "run", "simcse", sentences(300))
    found = likewise.evaluate(run.folder, sentences(300), progress=False)
    assert "alignment" not in found["learned encoder"]


def test_weights_of_a_run_come_with_its_encoder_and_tokenizer(tmp_path):
    first = trained(tmp_path / "first", "simclr", encoder__name="text_tiny")
    ready = make_plan(sentences(60, seed=1), "simclr", {"encoder.init": str(first.folder)}, progress=False)
    assert ready.recipe.encoder.name == "text_tiny"
    assert ready.recipe.text.tokenizer == str(first.folder / "tokenizer.json")
    sentence = refused("simclr", encoder__init=str(first.folder / "encoder.safetensors"))
    assert sentence.startswith("encoder.init needs text.tokenizer, the tokenizer.json that belongs to the weights")


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("vocabulary", 10**13, "expected a tokenizer of 10,000,000,000,000 tokens, got one of "),
        ("tokenizer", [1], "expected a tokenizer as text"),
        ("end", None, "expected a whole number >= 0 for end, got 'None'"),
        ("size", 1, "expected texts of more than 2 tokens, got 1"),
    ],
)
def test_a_run_of_a_stranger_is_checked_before_anything_is_built(tmp_path, name, value, wrong):
    about = dict(trained(tmp_path / "run", "simclr").encoder.about)
    assert complaint(about) is None
    assert complaint(about | {name: value}).startswith(wrong)


def test_topics_are_learned(tmp_path):
    """Sentences of three topics share no nouns; TF-IDF tells them apart, and so must what was learned."""
    run = trained(tmp_path / "run", "simclr", sentences(300), training__steps=150, training__batch_size=64)
    found = likewise.evaluate(run.folder, sentences(300), progress=False)
    assert list(found)[1:] == ["TF-IDF", "untrained encoder", "learned encoder"]
    assert found["learned encoder"]["knn"]["accuracy"] > 0.9
    assert (
        found["learned encoder"]["few_labels"][1]["accuracy"] > found["untrained encoder"]["few_labels"][1]["accuracy"]
    )


def test_the_tokenizer_is_a_file_of_the_run_and_can_be_given_to_another(tmp_path):
    first = trained(tmp_path / "first", "simclr")
    given = trained(tmp_path / "given", "simclr", text__tokenizer=str(first.folder / "tokenizer.json"))
    assert (given.folder / "tokenizer.json").read_text() == (first.folder / "tokenizer.json").read_text()
    assert json.loads((first.folder / "tokenizer.json").read_text())["model"]["type"] == "BPE"


def test_what_cannot_be_is_one_sentence(tmp_path):
    assert refused("simcse", text__dropout=0.0) == (
        "pairs.preset dropout needs text.dropout above 0, or both views of a text are the same"
    )
    assert refused("simclr", pairs__preset="moco_v2").startswith(
        "pairs.preset moco_v2 does not go with items that are "
    )
    assert refused("simclr", encoder__name="resnet18").startswith("unknown encoder.name 'resnet18'")
    assert refused("simclr", text__dropout=1.0) == "text.dropout must be a share from 0 to below 1, got 1"
    assert refused("cpc").startswith("pairs future needs sequences")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^a tokenizer must be JSON as the tokenizers library writes it"):
        trained(tmp_path / "run", "simclr", text__tokenizer=str(tmp_path / "bad.json"))
    with pytest.raises(RecipeError, match=r"^text.tokenizer must be a tokenizer.json, got none.json: No such file"):
        trained(tmp_path / "run", "simclr", text__tokenizer="none.json")


def test_an_encoder_of_texts_refuses_images_and_the_reverse(tmp_path):
    encoder = trained(tmp_path / "run", "simclr").encoder
    with pytest.raises(data.DataError, match=r"^the encoder takes texts, got images of 1 channel in digits$"):
        encoder.embed("digits", progress=False)


def test_long_texts_are_cut_where_the_encoder_ends(tmp_path):
    encoder = trained(tmp_path / "run", "simclr").encoder
    long = "word " * 2000
    assert np.isfinite(encoder.embed_text([long])).all()
    part = TextPart.of([long])
    assert encoder.augmentation.plain(torch.from_numpy(part[np.array([0])])).shape[1] == encoder.about["size"]
