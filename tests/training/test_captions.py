"""Images and words: two towers, one loss over a batch that is embedded in chunks, and a run that keeps its words."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

import likewise
from likewise.data.words import all_words
from likewise.losses.catalog import LOSSES
from likewise.pairs.across import Across
from likewise.recipe import Recipe, RecipeError
from likewise.training import learner as module
from likewise.training.encoder import CaptionEncoder
from likewise.training.plan import make_plan
from likewise.training.progress import Observer, words
from likewise.training.run import RunError
from likewise.training.signals import Interrupted
from likewise.training.trainer import Trainer
from tests.training.conftest import assert_same
from tests.waves import series

PLAIN = "tests.training.plain_encoder:plain"
QUICK = {
    "encoder.name": PLAIN,
    "encoder.dim": 16,
    "text.dropout": 0.3,
    "training.steps": 4,
    "training.batch_size": 24,
    "training.log_every": 1,
    "training.evaluate_every": 2,
    "data.workers": 0,
}
CHUNKED = {"training.chunk": 7}  # the last of four chunks is shorter
VIEWS = {"encoder.name": "vit_tiny", "encoder.head": "mlp", "loss.learnable": True, "training.batch_size": 8}
SIMCLR = VIEWS | {"training.chunk": 3, "training.steps": 1}


def pictures(n=60, *, groups=False):
    """Images of noise with one to three captions each, some of them those of other items too."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(n, 8, 8, 3), dtype=np.uint8)
    captions = [(f"picture {i}", f"noise of kind {i // 3}", "noise")[: 1 + i % 3] for i in range(n)]
    found = {"x": pixels, "captions": captions, "y": np.arange(n) % 4}
    return found | ({"group": np.arange(n) // 2} if groups else {})


def trainer(folder, method="clip", source=None, **settings):
    ready = make_plan(source or pictures(), method, QUICK | settings, progress=False)
    return Trainer(ready, folder, Observer())


def gradients(run, step=0):
    """Of every parameter, the temperature's included, by name."""
    learner, batch = run.learner, run.batches.at(step)
    learner.step(batch, 10)
    modules = {"tower": learner.tower, "loss": learner.loss}
    named = ((f"{part}.{name}", value) for part, owner in modules.items() for name, value in owner.named_parameters())
    return {name: value.grad.clone() for name, value in named}


def kept(of, *inputs, use_reentrant):
    """Instead of a checkpoint: the chunk in the graph of all."""
    return of(*inputs)


def dropped_out(run):
    """SimCLR's tower with dropout between encoder and head: the encoders of images have none of their own."""
    run.learner.tower.head.insert(0, nn.Dropout(0.4))
    return run


# Gradient caching


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-10), ("32", 1e-4)])
@pytest.mark.parametrize("loss", ["symmetric_info_nce", "sigmoid"])
def test_a_cached_step_is_that_of_the_same_chunks_in_one_graph(tmp_path, monkeypatch, precision, tolerance, loss):
    """DESIGN 7 (5, 16): for every parameter, the temperature and a sigmoid's bias included, dropout on."""
    settings = CHUNKED | {"training.precision": precision, "loss.kind": loss}
    cached = gradients(trainer(tmp_path / "cached", **settings))
    monkeypatch.setattr(module, "checkpoint", kept)
    in_one_graph = gradients(trainer(tmp_path / "graph", **settings))
    assert {"loss.log_temperature", "tower.text.encoder.token_embed.weight"} <= set(cached) == set(in_one_graph)
    for name, expected in in_one_graph.items():
        assert expected.abs().max() > 0, name
        torch.testing.assert_close(cached[name], expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-10), ("32", 1e-4)])
def test_a_cached_step_of_simclr_too(tmp_path, monkeypatch, precision, tolerance):
    settings = SIMCLR | {"training.precision": precision}
    cached = gradients(dropped_out(trainer(tmp_path / "cached", "simclr", **settings)))
    monkeypatch.setattr(module, "checkpoint", kept)
    in_one_graph = gradients(dropped_out(trainer(tmp_path / "graph", "simclr", **settings)))
    assert "loss.log_temperature" in cached
    for name, expected in in_one_graph.items():
        torch.testing.assert_close(cached[name], expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_a_cached_step_over_sequences_draws_the_same_noise_again(tmp_path, monkeypatch):
    """Their views are noisy, and are made anew in backward, where the default dtype is another."""
    settings = {"encoder.name": "sensors", "encoder.head": "mlp", "pairs.window": 16, "training.chunk": 7}
    settings |= {"training.precision": "64-true"}
    cached = gradients(trainer(tmp_path / "cached", "simclr", series(60, t=40), **settings))
    monkeypatch.setattr(module, "checkpoint", kept)
    in_one_graph = gradients(trainer(tmp_path / "graph", "simclr", series(60, t=40), **settings))
    for name, expected in in_one_graph.items():
        torch.testing.assert_close(cached[name], expected, rtol=1e-10, atol=1e-12)


def test_draws_of_a_device_are_replayed_too(tmp_path, monkeypatch):
    """torch keeps the draws of those devices only whose tensors a checkpoint is handed."""
    handed = []

    def spy(of, *inputs, use_reentrant):
        handed.append({value.device for value in inputs if isinstance(value, torch.Tensor)})
        return of(*inputs)

    monkeypatch.setattr(module, "checkpoint", spy)
    run = trainer(tmp_path, **CHUNKED)
    run.learner.step(run.batches.at(0), 10)
    assert handed == [{run.fabric.device}] * 4


@pytest.mark.parametrize("method", ["clip", "simclr"])
def test_chunks_change_nothing_where_nothing_is_dropped(tmp_path, method):
    settings = {"text.dropout": 0.0, "training.precision": "64-true"} | (VIEWS if method == "simclr" else {})
    whole = gradients(trainer(tmp_path / "whole", method, **settings))
    cached = gradients(trainer(tmp_path / "cached", method, **settings | {"training.chunk": 3}))
    for name, expected in whole.items():
        torch.testing.assert_close(cached[name], expected, rtol=1e-10, atol=1e-12)


def test_dropout_that_is_drawn_anew_would_be_noticed(tmp_path, monkeypatch):
    """The tests above can fail: the same step, its chunks replayed with other draws, has other gradients."""
    replayed = gradients(trainer(tmp_path / "replayed", **CHUNKED))

    def careless(of, *inputs, use_reentrant):
        return torch.utils.checkpoint.checkpoint(of, *inputs, use_reentrant=use_reentrant, preserve_rng_state=False)

    monkeypatch.setattr(module, "checkpoint", careless)
    anew = gradients(trainer(tmp_path / "anew", **CHUNKED))
    name = "tower.text.encoder.token_embed.weight"
    assert not torch.allclose(anew[name], replayed[name], rtol=1e-3)


def test_no_more_than_a_chunk_is_ever_embedded_with_a_graph(tmp_path):
    run = trainer(tmp_path, **CHUNKED)
    seen = []
    run.learner.tower.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    run.learner.step(run.batches.at(0), 10)
    assert sorted(seen) == sorted([7, 7, 7, 3] * 2), "each chunk twice: for its embeddings, and in backward"


def test_batch_norm_is_refused_in_chunks(tmp_path):
    """DESIGN 7 (16): statistics of a chunk are not those of the batch."""
    with pytest.raises(RecipeError) as error:
        trainer(tmp_path, **CHUNKED | {"encoder.name": "resnet_tiny"})
    assert str(error.value) == (
        "training.chunk embeds a batch in parts, which changes the statistics of batch norm: choose an "
        "encoder and a head without batch norm, such as vit_tiny and mlp, got resnet_tiny and linear"
    )
    with pytest.raises(RecipeError, match=r"got vit_tiny and mlp_bn$"):
        trainer(tmp_path, "simclr", **SIMCLR | {"encoder.head": "mlp_bn"})


@pytest.mark.parametrize("method", ["moco", "instdisc"])
def test_chunks_are_for_pairs_that_the_encoder_makes(tmp_path, method):
    with pytest.raises(RecipeError, match=r"^training.chunk embeds a batch in parts and then scores it as a whole, so"):
        trainer(tmp_path, method, **CHUNKED)


# Pairs and their ids


def test_items_of_one_caption_or_group_are_not_each_others_negatives(tmp_path):
    """The step's loss is that of a loop over the batch that leaves them out."""
    run = trainer(tmp_path, source=pictures(groups=True), **{"training.precision": "64-true", "text.dropout": 0.0})
    learner, batch = run.learner, run.batches.at(0)
    image, text, ids = learner.encode(batch)
    taken = learner.look_ups(image, learner.dictionary.lookup(text, ids), ids, batch)[0]
    found = LOSSES["symmetric_info_nce"].score(learner.loss, taken)
    cosine = nn.functional.normalize(image, dim=1) @ nn.functional.normalize(text, dim=1).T
    scores = cosine / learner.loss.temperature
    items = run.plan.train[batch.items.numpy()]
    words = [run.pairs.tokenizer.decode(tokens) for tokens in batch.partner_data]
    apart = 0
    total = 0.0
    for i in range(len(items)):
        negatives = [
            j
            for j in range(len(items))
            if run.plan.items.groups[items[i]] != run.plan.items.groups[items[j]] and words[i] != words[j]
        ]
        apart += len(items) - 1 - len(negatives)
        rows = torch.stack([scores[i, i], *(scores[i, j] for j in negatives)])
        columns = torch.stack([scores[i, i], *(scores[j, i] for j in negatives)])
        total += (rows.logsumexp(0) + columns.logsumexp(0)) / 2 - scores[i, i]
    assert apart > 0, "some are of one caption or group"
    torch.testing.assert_close(found, total / len(items), rtol=1e-10, atol=0)


def test_whole_groups_are_held_out():
    """Of an item that was drawn by several hands, no drawing is trained on while another is tested."""
    ready = make_plan(pictures(groups=True), "clip", QUICK, progress=False)
    groups = ready.items.groups
    assert len(ready.test) == 6
    assert not set(groups[ready.train]) & set(groups[ready.test])


def test_an_item_without_a_group_is_held_out_alone():
    """Group −1 is none: its items are not one group."""
    source = pictures() | {"group": np.where(np.arange(60) < 40, -1, np.arange(60))}
    ready = make_plan(source, "clip", QUICK, progress=False)
    assert len(ready.test) == 6
    named = pictures() | {"group": np.array(["" if i < 40 else f"g{i}" for i in range(60)])}
    assert np.array_equal(make_plan(named, "clip", QUICK, progress=False).test, ready.test)


def test_the_progress_has_recall_temperature_and_information(tmp_path):
    run = likewise.train(pictures(), method="clip", out=tmp_path, settings=QUICK, progress=False)
    row = run.metrics[-1]
    assert 0 <= row["recall"] <= 1
    assert 0 <= row["recall_at_10"] <= 1
    assert 0.01 <= row["temperature"] <= 0.08
    assert row["estimate"] == pytest.approx(row["chance"] - row["loss"])
    alone = {"x": pictures()["x"], "captions": [f"picture {i}" for i in range(60)]}
    run = likewise.train(alone, method="clip", out=tmp_path / "alone", settings=QUICK, progress=False)
    assert "bound" in run.metrics[-1], "no two items share a caption, so that it is one"


MISTAKES = {
    "text.name": ("text_tinny", r"^unknown text.name 'text_tinny'; did you mean text_tiny\?$"),
    "text.vocabulary": (10, r"^text.vocabulary must be at least 259, since every byte is a token, got 10$"),
    "text.dropout": (1.0, r"^text.dropout must be a share from 0 to below 1, got 1$"),
    "encoder.head": (
        "none",
        r"^encoder.head none needs encoders of the same width for images and text, got 24 and 128$",
    ),
}


@pytest.mark.parametrize("key", MISTAKES)
def test_settings_of_the_text_tower_are_checked(tmp_path, key):
    value, sentence = MISTAKES[key]
    with pytest.raises(RecipeError, match=sentence):
        trainer(tmp_path, **{key: value})


@pytest.mark.parametrize(("key", "what"), [("captions", "have the same caption"), ("group", "belong to one group")])
def test_where_there_is_nothing_to_tell_apart_it_says_so(tmp_path, key, what):
    source = pictures() | {"captions": [f"p {i}" for i in range(60)], key: ["the same"] * 60}
    with pytest.raises(RecipeError, match=rf"^there are no negatives in .*: all items {what}$"):
        trainer(tmp_path, source=source)


def test_captions_that_are_cut_are_counted(tmp_path):
    heard = []

    class Ear(Observer):
        def say(self, sentence):
            heard.append(sentence)

    source = pictures() | {"captions": [" ".join(map(str, range(i))) + "." for i in range(60)]}
    Trainer(make_plan(source, "clip", QUICK | {"data.test": 0.0}, progress=False), tmp_path, Ear())
    (sentence,) = heard
    assert sentence.endswith("of 60 captions are longer than the 32 tokens that text_tiny reads, and are truncated")


def test_a_loss_without_a_temperature_says_none():
    row = {"loss": 1.0, "recall": 0.5, "items_per_second": 1.0, "oldest": 0.0}
    metrics = Across.metrics(row, Recipe())
    assert words(row, {}, metrics) == "loss 1.000  recall@1 in the batch 0.50  1 items/s"


def test_vectors_with_captions_are_vectors():
    source = {"x": np.zeros((60, 4), dtype=np.float32), "captions": pictures()["captions"]}
    assert make_plan(source, None, {"training.batch_size": 8}, progress=False).recipe.method == "simclr"


def test_images_without_captions_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(RecipeError, match=r"^pairs captions needs images with captions \(.*\), got none in digits$"):
        trainer(tmp_path, source="digits")


def test_the_words_that_were_trained_on_stand_beside_the_tokenizer(tmp_path):
    source = pictures()
    run = trainer(tmp_path / "run", source=source)
    assert len(run.plan.test) > 0
    found = run.run()
    trained_on = [text for item in run.plan.train for text in source["captions"][item]]
    assert (found.folder / "words.txt").read_text().split() == all_words(trained_on)
    held_out = set(all_words(text for texts in source["captions"] for text in texts)) - set(all_words(trained_on))
    assert held_out
    encoder = found.encoder
    assert encoder.unseen("noise of kind 0 zzz " + min(held_out)) == ["zzz", min(held_out)]
    (found.folder / "words.txt").unlink()
    assert found.encoder.unseen("zzz") == [], "a run from before there was such a file"


# The image tower of another run


def test_it_starts_from_another_run_and_may_freeze_it(tmp_path):
    """Batch norm that is frozen is none: it can be trained on in chunks."""
    first = {"encoder.name": "resnet_tiny", "training.steps": 2, "training.batch_size": 24, "data.workers": 0}
    moco = likewise.train(pictures(), method="moco", out=tmp_path / "moco", settings=first, progress=False)
    before = moco.encoder.state_dict()
    settings = {key: value for key, value in QUICK.items() if key != "encoder.name"} | CHUNKED
    words = {"method": "clip", "init": moco.folder, "progress": False}
    run = likewise.train(pictures(), frozen=True, out=tmp_path / "clip", settings=settings, **words)
    assert run.recipe.encoder.name == "resnet_tiny", "chosen, as it is that of the run"
    after = run.encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    moving = {key: value for key, value in settings.items() if key != "training.chunk"}
    run = likewise.train(pictures(), out=tmp_path / "moving", settings=moving, **words)
    assert not all(torch.equal(value, run.encoder.state_dict()[name]) for name, value in before.items())


def test_only_what_was_learned_can_be_frozen(tmp_path):
    with pytest.raises(RecipeError, match=r"^encoder.frozen keeps the weights of encoder.init unchanged, "):
        trainer(tmp_path, **{"encoder.frozen": True})


# What a run leaves behind


def test_a_run_goes_on_to_the_bit(tmp_path, monkeypatch):
    whole = likewise.train(pictures(), method="clip", out=tmp_path / "whole", settings=QUICK, progress=False).folder
    folder = tmp_path / "cut"
    save = Trainer._save

    def cut(run, done):
        save(run, done)
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_save", cut)
    settings = QUICK | {"training.checkpoint_every": 2}
    with pytest.raises(Interrupted):
        likewise.train(pictures(), method="clip", out=folder, settings=settings, progress=False)
    monkeypatch.undo()
    likewise.train(pictures(), method="clip", out=folder, settings=settings, resume=True, progress=False)
    assert_same(folder, whole)
    assert (folder / "tokenizer.json").read_bytes() == (whole / "tokenizer.json").read_bytes()


def test_images_that_start_from_a_run_of_captions_have_no_use_for_its_tokenizer(finished):
    ready = make_plan(pictures(), "simclr", {"encoder.init": str(finished)}, progress=False)
    assert ready.recipe.text.tokenizer == ""
    assert not any("text.tokenizer" in reason for reason in ready.chosen)


def test_a_run_does_not_go_on_with_another_tokenizer(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "changed")
    kept = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(kept + "\n")
    with pytest.raises(RunError, match=r"^the tokenizer.json in .* is not the one that the run started with$"):
        likewise.train(pictures(), method="clip", out=folder, settings=QUICK, resume=True, progress=False)
    (folder / "tokenizer.json").unlink()
    likewise.train(pictures(), method="clip", out=folder, settings=QUICK, resume=True, progress=False)
    assert (folder / "tokenizer.json").read_text() == kept, "learned on the same captions, it is the same"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    return likewise.train(pictures(), method="clip", out=folder, settings=QUICK, progress=False).folder


def test_a_run_that_was_moved_still_loads(finished, tmp_path):
    expected = likewise.load(finished)
    moved = shutil.copytree(finished, tmp_path / "elsewhere" / "moved")
    encoder = likewise.load(moved)
    assert isinstance(encoder, CaptionEncoder)
    words = ["picture 3", "Noise", "never seen: 🙂"]
    vectors = encoder.embed_text(words)
    assert np.array_equal(vectors, expected.embed_text(words))
    images = encoder.embed(pictures(), progress=False).vectors
    assert vectors.shape[1] == images.shape[1] == 16, "the head is where both meet"
    assert encoder.embed(pictures(), layer="backbone", progress=False).vectors.shape[1] == encoder.image.dim
    assert set(encoder.state_dict()) == set(encoder.image.state_dict())
    assert encoder.text.dim == 128


@pytest.mark.parametrize("texts", ["a dog", [], [1], None])
def test_texts_are_a_list_of_strings(finished, texts):
    """One string would else be a list of its letters."""
    with pytest.raises(ValueError, match=r"^texts must be a list of one or more strings, got "):
        likewise.load(finished).embed_text(texts)


def test_another_tokenizer_is_recognised(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "changed")
    other = likewise.data.tokens.Tokenizer.learned(["something else", "something entirely else"])
    (folder / "tokenizer.json").write_text(other.text)
    with pytest.raises(
        RunError, match=r"^the tokenizer.json of .* does not fit its weights: expected \d+ tokens, got \d+$"
    ):
        likewise.load(folder)


def test_a_caption_run_can_be_started_from(finished, tmp_path):
    settings = {"encoder.name": PLAIN, "training.steps": 1, "training.batch_size": 8, "data.workers": 0}
    run = likewise.train(
        pictures(), method="e2e", init=finished, out=tmp_path / "e2e", settings=settings, progress=False
    )
    assert run.recipe.encoder.init == str(finished)
