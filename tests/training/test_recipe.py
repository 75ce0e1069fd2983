"""A recipe: written and read without loss, refused with the nearest key, and meaning what it says."""

import dataclasses
import math
import tomllib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import likewise
from likewise import losses, methods
from likewise.pairs.catalog import build_tower
from likewise.recipe import FORMAT, Recipe, RecipeError, check_choice, known_keys, parse_settings, read_toml
from likewise.training import plan
from likewise.training.about import fitted

KINDS = {
    int: st.integers(-(2**60), 2**60),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
}
VALUES = st.fixed_dictionaries({key: KINDS[type(Recipe().value(key))] for key in known_keys()})


def read(tmp_path, text):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return read_toml(path)


def refused(call):
    with pytest.raises(RecipeError) as error:
        call()
    return str(error.value)


@given(values=VALUES)
def test_every_value_comes_back_from_toml(tmp_path_factory, values):
    recipe = Recipe().with_values(values)
    tree = tomllib.loads(recipe.toml())
    assert tree == {"format": FORMAT} | dataclasses.asdict(recipe)
    path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_text(recipe.toml(), encoding="utf-8")
    again = Recipe().with_values(read_toml(path))
    assert again == recipe
    assert [type(again.value(key)) for key in known_keys()] == [type(Recipe().value(key)) for key in known_keys()]


def test_known_keys_are_all_there_is():
    keys = known_keys()
    assert keys[:3] == ["method", "seed", "data.source"]
    assert len(keys) == len(set(keys))
    tree = tomllib.loads(Recipe().toml())
    assert tree.pop("format") == FORMAT
    sections = [f"{name}.{key}" for name, value in tree.items() if isinstance(value, dict) for key in value]
    assert keys == [name for name, value in tree.items() if not isinstance(value, dict)] + sections


def test_a_file_names_what_it_changes_and_no_more(tmp_path):
    values = read(tmp_path, 'seed = 3\n[dictionary]\nsize = 4096\n[pairs]\nkind = "groups"\n')
    assert values == {"seed": 3, "dictionary.size": 4096, "pairs.kind": "groups"}
    changed = Recipe().with_values(values)
    assert {key for key in known_keys() if changed.value(key) != Recipe().value(key)} == set(values)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("dictionary.sise", "dictionary.size"),
        ("dictionery.size", "dictionary.size"),
        ("sise", "data.size"),
        ("temperature", "loss.temperature"),
        ("optimiser.lr", "optimizer.lr"),
        ("batch_size", "training.batch_size"),
        ("metod", "method"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(tmp_path, key, meant):
    sentence = f"unknown recipe key '{key}'; did you mean {meant}?"
    assert refused(lambda: Recipe().with_values({key: 1})) == sentence
    assert refused(lambda: parse_settings([f"{key}=1"])) == sentence
    section, _, name = key.rpartition(".")
    text = f"[{section}]\n{name} = 1" if section else f"{name} = 1"
    assert refused(lambda: read(tmp_path, text)) == sentence
    assert refused(lambda: likewise.train("digits", settings={key: 1}, progress=False)) == sentence


def test_what_is_near_nothing_is_refused_without_a_hint():
    assert refused(lambda: Recipe().with_values({"zzzzzzzz": 1})) == "unknown recipe key 'zzzzzzzz'"
    assert refused(lambda: Recipe().with_values({"data": {"size": 3}})).startswith("unknown recipe key 'data'")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("dictionary.size", 4096.0, "dictionary.size must be a whole number, got 4096.0"),
        ("dictionary.size", "4096", "dictionary.size must be a whole number, got '4096'"),
        ("dictionary.size", True, "dictionary.size must be a whole number, got True"),
        ("optimizer.lr", "0.1", "optimizer.lr must be a number, got '0.1'"),
        ("optimizer.lr", False, "optimizer.lr must be a number, got False"),
        ("optimizer.lr", math.nan, "optimizer.lr must be a number, got nan"),
        ("optimizer.lr", math.inf, "optimizer.lr must be a number, got inf"),
        ("loss.learnable", 1, "loss.learnable must be true or false, got 1"),
        ("loss.kind", True, "loss.kind must be a string, got True"),
        ("loss.kind", ["nce"], "loss.kind must be a string, got ['nce']"),
        ("seed", None, "seed must be a whole number, got None"),
    ],
)
def test_a_value_of_another_kind_is_refused(key, value, sentence):
    assert refused(lambda: Recipe().with_values({key: value})) == sentence


def test_a_whole_number_serves_as_a_number_and_a_number_or_path_as_a_string(tmp_path):
    recipe = Recipe().with_values({"optimizer.lr": 1, "training.precision": 32, "encoder.init": tmp_path})
    assert (recipe.optimizer.lr, type(recipe.optimizer.lr)) == (1.0, float)
    assert recipe.training.precision == "32"
    assert recipe.encoder.init == str(tmp_path)


def test_settings_are_toml_or_else_strings():
    settings = ["dictionary.size=4096", "loss.learnable = true", "loss.kind=nce", 'pairs.preset="simclr"']
    more = ["optimizer.lr=1e-3", "training.precision=bf16-mixed", "loss.policy=hardest:16", "encoder.init="]
    assert parse_settings([*settings, *more]) == {
        "dictionary.size": 4096,
        "loss.learnable": True,
        "loss.kind": "nce",
        "pairs.preset": "simclr",
        "optimizer.lr": 1e-3,
        "training.precision": "bf16-mixed",
        "loss.policy": "hardest:16",
        "encoder.init": "",
    }
    assert refused(lambda: parse_settings(["dictionary.size"])) == "--set must be key=value, got 'dictionary.size'"


def test_files_that_are_no_recipe_are_refused_in_one_sentence(tmp_path):
    missing = tmp_path / "none.toml"
    assert refused(lambda: read_toml(missing)) == f"recipe {missing} cannot be read: No such file or directory"
    assert refused(lambda: read_toml(tmp_path)) == f"recipe {tmp_path} cannot be read: Is a directory"
    path = tmp_path / "recipe.toml"
    assert refused(lambda: read(tmp_path, "seed 3")).startswith(f"recipe {path} is not TOML: Expected '='")
    path.write_bytes(b"\xff\xfe\x00")
    assert refused(lambda: read_toml(path)) == f"recipe {path} is not TOML: expected UTF-8 text, got other bytes"


def test_a_choice_is_refused_with_the_nearest_or_all_of_them():
    assert check_choice("loss", "nce", ("nce", "triplet")) is None
    assert refused(lambda: check_choice("loss", "tripplet", ("nce", "triplet"))) == (
        "unknown loss 'tripplet'; did you mean triplet?"
    )
    assert refused(lambda: check_choice("loss", "xyz", ("nce", "triplet"))) == (
        "unknown loss 'xyz', expected one of nce, triplet"
    )


def vectors(n=48, features=5):
    return np.random.default_rng(0).normal(size=(n, features)).astype(np.float32)


def trained(out, **options):
    """A recipe as a run leaves it, after one step."""
    return likewise.train(vectors(), out=out, steps=1, progress=False, **options)


def test_settings_come_before_options_and_options_before_the_file(tmp_path):
    """recipe file < options < settings; what none of them names is the method's, or chosen for the data."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'method = "simclr"\nseed = 5\n[loss]\ntemperature = 0.11\n[optimizer]\nlr = 0.011\nclip = 0.5\n'
        "[training]\nbatch_size = 8\n"
    )
    options = {"recipe": file, "temperature": 0.22, "lr": 0.022}
    run = trained(tmp_path / "run", **options, settings={"optimizer.lr": 0.033})
    found = run.recipe
    assert found.optimizer.lr == 0.033, "settings"
    assert found.loss.temperature == 0.22, "options"
    assert (found.method, found.seed, found.optimizer.clip, found.training.batch_size) == ("simclr", 5, 0.5, 8)
    assert found.encoder.head == "mlp_bn", "the method's"
    assert found.encoder.name == "mlp", "chosen for the data"
    words = trained(tmp_path / "words", **options, settings=["optimizer.lr=0.033"])
    assert words.recipe == found, "settings may be words"


def test_the_recipe_of_a_run_makes_the_same_run_again(tmp_path):
    first = trained(tmp_path / "one", method="moco", batch_size=16, seed=3)
    again = likewise.train(vectors(), recipe=first.folder / "recipe.toml", out=tmp_path / "two", progress=False)
    assert again.recipe == first.recipe
    assert again.metrics[-1]["loss"] == first.metrics[-1]["loss"]


def test_fault_11_the_temperature_divides_the_similarity(tmp_path, monkeypatch):
    """0.1 makes scores ten times as large; as a logit scale it would make them ten times smaller."""
    seen = {}

    def watch(self, query, positive, negatives, **ids):
        seen["query"], seen["positive"], seen["negatives"] = (x.detach().clone() for x in (query, positive, negatives))
        return losses.info_nce(query, positive, negatives, temperature=self.temperature, **ids)

    monkeypatch.setattr(losses.InfoNCE, "forward", watch)
    run = trained(tmp_path / "run", method="e2e", batch_size=8, temperature=0.1)
    unit = {name: torch.nn.functional.normalize(rows.double(), dim=1) for name, rows in seen.items()}
    scores = 10 * unit["query"] @ unit["positive"].T
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(8))
    assert run.metrics[-1]["loss"] == pytest.approx(float(expected), rel=1e-5)
    wrong = torch.nn.functional.cross_entropy(scores / 100, torch.arange(8))
    assert abs(float(wrong) - run.metrics[-1]["loss"]) > 0.01
    assert run.metrics[-1]["temperature"] == pytest.approx(0.1)


def test_fault_11_momentum_0_999_keeps_0_999(tmp_path):
    """After one step the copy has gone a thousandth of the encoder's way, not all but a thousandth of it."""
    run = trained(
        tmp_path / "run", method="e2e", keys="momentum", batch_size=16, lr=10.0, settings=["keys.momentum=0.999"]
    )
    kept = likewise.training.checkpoint.newest(run.folder / "checkpoints").tensors
    ready = plan.make_plan(vectors(), "e2e", read_toml(run.folder / "recipe.toml"), progress=False)
    about = fitted(ready.recipe, ready.items, ready.train)
    start = build_tower(ready.recipe, about).state_dict()
    moved = 0
    for name, before in start.items():
        encoder, copy = kept[f"tower.{name}"], kept[f"copy.copy.{name}"]
        if (encoder - before).abs().max() < 1e-3:
            continue
        moved += 1
        torch.testing.assert_close(copy - before, 0.001 * (encoder - before), rtol=0.01, atol=1e-6)
    assert moved >= 4
    assert run.metrics[-1]["key_momentum"] == 0.999


def test_true_is_no_number_from_python_either(tmp_path):
    for option in ("steps", "epochs", "batch_size", "seed"):
        sentence = refused(lambda option=option: likewise.train(vectors(), out=tmp_path / "run", **{option: True}))
        assert sentence.endswith(f"{option} must be a whole number, got True")
    assert not (tmp_path / "run").exists()


def test_a_runs_recipe_has_the_options_of_its_parts_and_no_others():
    tree = tomllib.loads(methods.to_toml(methods.defaults("simclr")))
    assert set(tree["loss"]) == {"kind", "temperature", "learnable", "policy", "weight"}
    assert tree["dictionary"] == {"kind": "batch"}
    assert "text" not in tree
    assert set(tree["pairs"]) == {"kind", "preset", "symmetric", "window"}
    tree = tomllib.loads(methods.to_toml(methods.defaults("clip")))
    assert set(tree["text"]) == {"name", "vocabulary", "tokenizer", "dropout"}
    assert set(tomllib.loads(methods.to_toml(methods.defaults("pair")))["loss"]) == {"kind", "margin", "weight"}


def test_what_is_asked_for_in_vain_is_said_in_the_plan():
    asked = {"loss.margin": 3.0, "dictionary.size": 12, "text.dropout": 0.5, "pairs.negatives": "both"}
    ready = plan.make_plan("digits", "simclr", asked, progress=False)
    assert [text for text in ready.chosen if text.startswith("note")] == [
        "note that loss.margin = 3.0 has no effect: loss nt_xent does not use it",
        "note that dictionary.size = 12 has no effect: dictionary batch does not use it",
        "note that text.dropout = 0.5 has no effect: pairs views does not use it",
    ]
