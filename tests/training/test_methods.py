"""Every method trains, and learns; every mixture of their parts trains, or is refused in a sentence."""

import dataclasses
import functools
import itertools
import math
import re

import numpy as np
import pytest
import torch

import likewise
from likewise import methods
from likewise.evaluation.few_labels import few_labels
from likewise.evaluation.knn import knn
from likewise.pairs.catalog import build_tower
from likewise.recipe import Recipe, RecipeError
from likewise.training import plan
from likewise.training.about import fitted
from likewise.training.encoder import Encoder
from tests.waves import series

LEARNING = {"encoder.name": "resnet_tiny", "training.steps": 40, "training.batch_size": 64, "data.test": 0.3}
OWN = {"instdisc": {"training.steps": 60}}  # one view a step
QUICK = {"encoder.name": "tests.training.plain_encoder:batch_normed", "encoder.dim": 8, "training.batch_size": 16}


def figures(encoder, ready):
    """k-NN on the held-out digits, and what five labels a class are good for."""
    vectors = torch.from_numpy(encoder.embed("digits", progress=False).vectors)
    labels, train, test = (torch.from_numpy(part) for part in (ready.items.labels, ready.train, ready.test))
    parts = vectors[train], labels[train], vectors[test], labels[test]
    return knn(*parts), few_labels(*parts, per_class=5)


@functools.cache
def untrained(preset):
    """The same architecture, weights before the first step and pre-processing, as a run would have had them."""
    ready = plan.make_plan("digits", "moco", {**LEARNING, "pairs.preset": preset}, progress=False)
    about = fitted(ready.recipe, ready.items, ready.train)
    tower = build_tower(ready.recipe, about).eval()
    return figures(Encoder(tower.encoder, tower.head, ready.recipe, about), ready)


@pytest.mark.parametrize("method", [method for method in methods.METHODS if method not in ("cpc", "clip")])
def test_every_method_learns(tmp_path, method):
    """Its k-NN on held-out digits beats that of the untrained encoder; digits have no future and no captions."""
    settings = LEARNING | OWN.get(method, {})
    run = likewise.train("digits", method=method, out=tmp_path, settings=settings, progress=False)
    ready = plan.make_plan("digits", method, settings, progress=False)
    assert (len(ready.train), len(ready.test)) == (1258, 539)
    before, before_few = untrained(run.recipe.pairs.preset)
    after, after_few = figures(run.encoder, ready)
    print(f"{method}: k-NN {before.accuracy:.3f} → {after.accuracy:.3f}", end="; ")
    print(f"five labels a class {before_few.accuracy:.3f} → {after_few.accuracy:.3f}")
    assert after.accuracy > before.accuracy + 0.02
    assert after_few.accuracy > before_few.accuracy + 0.05
    assert run.metrics[-1]["knn"] == pytest.approx(after.accuracy, abs=1e-6), "the figure in the run's own curve"


def test_the_untrained_encoder_is_the_run_before_its_first_step(tmp_path):
    """A learning rate that moves nothing leaves its weights: the baseline above is an honest one."""
    settings = QUICK | {"training.steps": 2, "optimizer.lr": 1e-30, "optimizer.weight_decay": 0.0}
    settings |= {"encoder.name": "tests.training.plain_encoder:plain"}
    run = likewise.train("digits", method="simclr", out=tmp_path, settings=settings, progress=False)
    ready = plan.make_plan("digits", "simclr", settings, progress=False)
    start = build_tower(ready.recipe, fitted(ready.recipe, ready.items, ready.train)).encoder.state_dict()
    for name, value in run.encoder.state_dict().items():
        assert torch.equal(value, start[name])


def some(n=64, *, labels=True):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    return {"x": x, "y": np.arange(n) % 4} if labels else {"x": x}


def captioned(n):
    """Images of noise, each with two captions, of which one is another item's too."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(n, 8, 8, 3), dtype=np.uint8)
    return {"x": pixels, "y": np.arange(n) % 4, "captions": [(f"item {i}", f"noise {i // 2}") for i in range(n)]}


def steps(folder, method, *, source=None, steps=2, **options):
    """The losses of a few steps."""
    settings = QUICK | {"training.log_every": 1, "data.workers": 0} | options.pop("settings", {})
    run = likewise.train(
        source or some(), method=method, out=folder, steps=steps, settings=settings, progress=False, **options
    )
    found = [row["loss"] for row in run.metrics]
    assert len(found) == steps
    assert all(loss is not None and math.isfinite(loss) for loss in found)
    return found


MIXTURES = {
    "MoCo with triplets": ("moco", {"loss": "triplet"}),
    "SimCLR in both directions": ("simclr", {"loss": "symmetric_info_nce"}),
    "end to end by sigmoids": ("e2e", {"loss": "sigmoid"}),
    "MoCo over groups": ("moco", {"pairs": "groups"}),
    "MoCo, symmetric": ("moco", {"settings": {"pairs.symmetric": True}}),
    "MoCo without the copy": ("moco", {"keys": "encoder"}),
    "MoCo by dot product": ("moco", {"settings": {"loss.similarity": "dot"}}),
    "MoCo, the hardest negatives": ("moco", {"settings": {"loss.policy": "hardest:4"}}),
    "MoCo, momentum rising": ("moco", {"settings": {"keys.schedule": "cosine"}}),
    "MoCo, a queue of less than a batch": ("moco", {"settings": {"dictionary.size": 5}}),
    "SimCLR, debiased": ("simclr", {"settings": {"loss.policy": "debiased:0.1"}}),
    "SimCLR over groups": ("simclr", {"pairs": "groups"}),
    "SimCLR, learning its temperature": ("simclr", {"settings": {"loss.learnable": True}}),
    "SimCLR in float64": ("simclr", {"precision": "64-true"}),
    "SimCLR with clipped gradients": ("simclr", {"settings": {"optimizer.clip": 0.1}}),
    "SimCLR by LARS": ("simclr", {"settings": {"optimizer.name": "lars"}}),
    "a batch of keys by the copy": ("e2e", {"keys": "momentum"}),
    "SupCon over groups": ("supcon", {"pairs": "groups"}),
    "InstDisc by triplets": ("instdisc", {"loss": "triplet"}),
    "triplets, symmetric": ("triplet", {"settings": {"pairs.symmetric": True}}),
    "MoCo without a head": ("moco", {"settings": {"encoder.head": "none"}}),
    "InstDisc without a head": ("instdisc", {"settings": {"encoder.head": "none"}}),
    "pairs without labels": ("pair", {"source": some(labels=False)}),
    "triplets without labels": ("triplet", {"source": some(labels=False)}),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_parts_are_exchangeable(tmp_path, name):
    method, options = MIXTURES[name]
    losses = steps(tmp_path, method, steps=6, **options)
    assert len(set(losses)) > 1, "the loss moves"


ANSWERS = list(itertools.product(methods.PAIRS, methods.KEYS, methods.DICTIONARIES, methods.LOSSES))


def mixture(pairs, keys, dictionary, loss):
    values = {"pairs.kind": pairs, "keys.by": keys, "dictionary.kind": dictionary, "loss.kind": loss}
    head = "steps" if pairs == "future" else "mlp"
    return Recipe(method="simclr").with_values(values | {"encoder.head": head})


REFUSED = {
    r"keys by bank and dictionary bank need each other, because the bank stores the keys, "
    r"got keys by \w+ and dictionary \w+",
    r"loss \w+ scores a batch against itself, so its dictionary must be batch, got \w+",
    r"loss \w+ uses every row as query and as key, so keys must be by encoder, got \w+",
    r"loss nce needs negatives drawn with a known probability, which only dictionary bank provides, got \w+",
    r"dictionary bank stores one key for each item, so pairs must be views, got (groups|future|captions)",
    r"pairs future compares frames of sequences, which only loss info_nce can do, got \w+",
    r"pairs captions encodes keys with the text encoder, which is trained too, so keys must be by encoder, "
    r"got momentum",
}


def test_every_mixture_that_cannot_work_is_refused_in_one_of_seven_sentences():
    reasons = [reason for answers in ANSWERS if (reason := methods.refusal(mixture(*answers)))]
    assert all(any(re.fullmatch(sentence, reason) for sentence in REFUSED) for reason in reasons)
    assert all(any(re.fullmatch(sentence, reason) for reason in reasons) for sentence in REFUSED)
    assert len(ANSWERS) - len(reasons) == 61


@pytest.mark.parametrize("answers", [a for a in ANSWERS if not methods.refusal(mixture(*a))], ids="-".join)
def test_every_mixture_that_is_not_refused_takes_steps(tmp_path, answers):
    pairs, keys, dictionary, loss = answers
    options = {"pairs": pairs, "keys": keys, "dictionary": dictionary, "loss": loss}
    if pairs == "future":
        options |= {"source": series(64), "settings": {"encoder.name": "sensors", "pairs.horizon": 3}}
    if pairs == "captions":
        options |= {"source": captioned(64), "settings": {"encoder.head": "mlp"}}
    steps(tmp_path, "simclr", **options)


def test_a_refused_mixture_leaves_no_folder_behind(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RecipeError, match=r"^loss nt_xent scores a batch against itself, so its dictionary must be"):
        steps(folder, "moco", loss="nt_xent")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("method", "values", "sentence"),
    [
        (
            "instdisc",
            {"pairs.symmetric": True},
            "pairs.symmetric needs two views of an item, but dictionary bank uses only one",
        ),
        (
            "supcon",
            {"pairs.symmetric": True},
            "pairs.symmetric cannot be used with loss sup_con, which is already symmetric",
        ),
        (
            "triplet",
            {"loss.policy": "hardest:3"},
            "loss.policy works only with losses info_nce and nt_xent, got triplet",
        ),
        ("pair", {"loss.learnable": True}, "loss.learnable needs a loss with a temperature, got pair_margin"),
        ("moco", {"loss.kind": "infonce"}, "unknown loss 'infonce'; did you mean info_nce?"),
        ("moco", {"pairs.kind": "view"}, "unknown pairs 'view'; did you mean views?"),
        ("moco", {"keys.by": "xyz"}, "unknown keys 'xyz', expected one of encoder, momentum, bank"),
        ("moco", {"dictionary.kind": "que"}, "unknown dictionary 'que'; did you mean queue?"),
    ],
)
def test_settings_that_cannot_work_are_refused_to_the_letter(method, values, sentence):
    with pytest.raises(RecipeError) as error:
        methods.check(methods.defaults(method).with_values(values))
    assert str(error.value) == sentence


def test_no_method_of_the_table_is_refused_and_an_unknown_one_is():
    for method in methods.METHODS:
        assert methods.refusal(methods.defaults(method)) is None
    with pytest.raises(RecipeError, match=r"^unknown method 'mocco'; did you mean moco\?$"):
        methods.defaults("mocco")


def test_the_table_says_what_the_recipes_do():
    head, *lines = methods.table()
    assert len(lines) == len(methods.METHODS)
    assert all(len(line) == len(head) for line in lines)
    for name, pairs, _, dictionary, loss, _, paper in lines:
        recipe = methods.defaults(name)
        assert (recipe.method, recipe.pairs.kind, recipe.loss.kind) == (name, pairs, loss)
        assert dictionary.startswith(recipe.dictionary.kind)
        assert re.search(r"(19|20)\d\d", paper)


def test_settings_of_the_papers():
    """DESIGN, section 1."""
    assert methods.defaults("pair").loss.margin == 1.0
    assert methods.defaults("triplet").loss.margin == 0.2
    instdisc = methods.defaults("instdisc")
    assert (instdisc.dictionary.momentum, instdisc.dictionary.negatives, instdisc.loss.temperature) == (0.5, 4096, 0.07)
    assert {methods.defaults(name).loss.temperature for name in ("instdisc", "bank", "e2e", "moco_v1")} == {0.07}
    assert methods.defaults("moco").loss.temperature == 0.2
    assert methods.defaults("supcon").loss.temperature == 0.1
    for name in ("moco", "moco_v1"):
        recipe = methods.defaults(name)
        assert (recipe.keys.momentum, recipe.dictionary.size, recipe.encoder.dim) == (0.999, 65536, 128)
    v1, v2 = methods.defaults("moco_v1"), methods.defaults("moco")
    assert (v1.encoder.head, v2.encoder.head) == ("linear", "mlp")
    assert (v1.optimizer.schedule, v2.optimizer.schedule) == ("step", "cosine")
    assert dataclasses.asdict(v2)["pairs"]["preset"] == "moco_v2"
