"""The command line: a mistake is one sentence and an exit code, and a run's folder holds what it should."""

import errno
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import likewise
from likewise import methods
from likewise.cli import app
from likewise.data.columns import CAPTIONS, SPLIT, WHOLE
from likewise.data.images import EXTENSIONS
from likewise.data.roles import ROLES
from likewise.training.plan import make_plan
from tests.training.conftest import ROOT, assert_same, rows, whole

ENCODER = "tests.training.plain_encoder:normed"
QUICK = ["--encoder", ENCODER, "--batch-size", "8", "--steps", "3", "--set", "encoder.dim=8"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder to be in, and a cache of its own; nothing may be written elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setenv("COLUMNS", "1000")
    return tmp_path


@pytest.fixture
def photos(here):
    """Twenty small images in two class folders, one of them broken, and a text beside them."""
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (here / "photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 256, (10, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{i}.png")
    (here / "photos" / "dogs" / "7.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (here / "photos" / "README.txt").write_text("photos of animals")
    return here / "photos"


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments, code=1):
    """The one sentence that `likewise train` refuses with, and that it left nothing behind."""
    before = sorted(os.walk("."))
    result = command("train", *arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    after = sorted(entry for entry in os.walk(".") if not entry[0].startswith("./.cache"))
    assert [entry for entry in after if entry[0] != "."] == [entry for entry in before if entry[0] != "."]
    name, _, sentence = lines[0].partition(": ")
    assert name == "likewise"
    return sentence


# Data that cannot be


def test_a_path_that_is_not_there(here):
    assert refused("photos") == "data not found: photos"
    assert refused("digitz") == "data not found: digitz; the nearest built-in is digits"


def test_a_folder_that_may_not_be_read(photos, monkeypatch):
    def refusing(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        result = command("train", "photos")
    assert result.exit_code == 1
    assert result.stderr == "likewise: cannot read photos/: permission denied\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_really_may_not_be_read(photos):
    photos.chmod(0)
    try:
        assert refused("photos") == "cannot read photos/: permission denied"
    finally:
        photos.chmod(0o700)


def test_a_folder_of_other_files_and_an_empty_one(here):
    (here / "photos").mkdir()
    kinds = ", ".join((*EXTENSIONS, "wav, flac, ogg, opus, mp3, csv, txt"))
    expected = f"no images, audio, series or texts in photos/: expected {kinds}; got "
    assert refused("photos") == expected + "no files"
    for name in "abc":
        (here / "photos" / f"{name}.md").write_text("no image")
    assert refused("photos") == expected + "3 files of other kinds (.md)"


def test_a_text_that_is_called_an_array(here):
    (here / "x.npy").write_text("no array")
    (here / "x.npz").write_text("no arrays")
    for name in ("x.npy", "x.npz"):
        assert name in refused(name)


def test_labels_that_are_needed_and_not_there(here):
    np.save("x.npy", np.zeros((40, 8, 8), np.uint8))
    assert refused("x.npy", "--method", "supcon") == (
        "loss sup_con needs labels of several classes (class folders, or y in an .npz), got none in x.npy"
    )
    assert refused("x.npy", "--pairs", "groups") == (
        "pairs groups needs class folders, labels or groups, got none in x.npy"
    )


# Values that cannot be

TOLD = {
    "--batch-size 5000": "training.batch_size must be at most the 1,617 items to train on, got 5,000",
    "--steps 0": "steps must be at least 1, got 0",
    "--encoder mlp": "mlp takes vectors, got images; resnet_tiny and others take those",
    "--batch-size 1": "training.batch_size must be 2 or more, got 1",
    "--batch-size 9 --devices 2": "training.batch_size must be 2 or more, and a multiple of the 2 ranks, got 9",
    "--method mocco": "unknown method 'mocco'; did you mean moco?",
    "--method zzz": "unknown method 'zzz', expected one of " + ", ".join(methods.METHODS),
    "--encoder resnet81": "got 'resnet81'; did you mean 'resnet18'?",
    "--encoder no_such_module:make": "encoder must be an importable module:callable, got no module 'no_such_module'",
    "--encoder json:no_such_name": ("encoder must be an importable module:callable, got no 'no_such_name' in 'json'"),
    "--encoder os:getcwd": "os:getcwd must return an nn.Module, got str",
    "--pairs vews": "unknown pairs 'vews'; did you mean views?",
    "--keys bnak": "unknown keys 'bnak'; did you mean bank?",
    "--dictionary queeu": "unknown dictionary 'queeu'; did you mean queue?",
    "--loss infonce": "unknown loss 'infonce'; did you mean info_nce?",
    "--set dictionary.sise=5": "unknown recipe key 'dictionary.sise'; did you mean dictionary.size?",
    "--set temperatur=5": "unknown recipe key 'temperatur'; did you mean loss.temperature?",
    "--set lr": "--set must be key=value, got 'lr'",
    "--set training.epochs=x": "training.epochs must be a whole number, got 'x'",
    "--set training.epochs=1.5": "training.epochs must be a whole number, got 1.5",
    "--set training.epochs=0": "training.epochs must be at least 1, got 0",
    "--set training.log_every=0": "training.log_every must be at least 1, got 0",
    "--set training.checkpoint_every=-1": "training.checkpoint_every must be at least 1, got -1",
    "--set optimizer.lr=nan": "optimizer.lr must be a number, got nan",
    "--set loss.learnable=maybe": "loss.learnable must be true or false, got 'maybe'",
    "--set data.test=1": "data.test must be a share from 0 to below 1, got 1",
    "--seed -1": "seed must not be negative, got -1",
    "--set seed=-1": "seed must not be negative, got -1",
    "--set seed=true": "seed must be a whole number, got True",
    "--set training.steps=true": "training.steps must be a whole number, got True",
    "--set training.epochs=false": "training.epochs must be a whole number, got False",
    "--set data.workers=-1": "data.workers must not be negative, got -1",
    "--set data.size=-8": "size must be a whole number >= 1, got -8",
    "--set optimizer.name=sgdd": "optimizer must be one of sgd, adam, adamw, lars; got 'sgdd', did you mean 'sgd'?",
    "--set optimizer.momentum=1": "momentum must be in [0, 1), got 1",
    "--set optimizer.schedule=cosin": "unknown optimizer.schedule 'cosin'; did you mean cosine?",
    "--set optimizer.warmup=2": "optimizer.warmup must be a share from 0 to 1, got 2",
    "--method moco --set keys.schedule=cosin": "unknown keys.schedule 'cosin'; did you mean cosine?",
    "--method moco --set keys.momentum=2": (
        "momentum, the share of the old value that is kept, must be in [0, 1], got 2"
    ),
    "--method moco --set dictionary.size=0": "size must be a whole number of at least 1, got 0",
    "--method instdisc --set dictionary.negatives=0": "negatives must be a whole number of at least 1, got 0",
    "--set encoder.dim=0": "out_dim must be a whole number >= 1, got 0",
    "--set encoder.head=mpl": "got 'mpl'; did you mean 'mlp'?",
    "--set pairs.preset=simcrl": "got 'simcrl', did you mean 'simclr'?",
    "--set pairs.preset=vector": "pairs.preset vector does not go with items that are images",
    "--method moco --set loss.similarity=cosin": "similarity must be one of cosine, dot, euclidean; got 'cosin'",
    "--set loss.policy=hard": "unknown loss.policy 'hard'; did you mean hardest?",
    "--set loss.policy=hardest:x": "loss.policy must be like hardest:16 or debiased:0.1, got 'hardest:x'",
    "--lr -1": "optimizer.lr must be positive, got -1",
    "--lr 1e308": "optimizer.lr must be at most 3.4e38, the largest float32, got 1e+308",
    "--temperature 0": "temperature must be positive",
    "--steps -1": "steps must be at least 1, got -1",
    "--devices 0": "training.devices must be at least 1, got 0",
    "--set data.workers=1000000": "data.workers must be at most 256 on this machine, got 1,000,000",
    "--devices 1000000": "training.devices must be at most ",
    "--devices -1": "training.devices must be at least 1, got -1",
    "--precision 8": "unknown training.precision '8', expected one of 32, bf16-mixed, 16-mixed, 64-true",
    "--init weights.pt": "weights must be a file or a run's folder, got weights.pt, which does not exist",
    "--recipe recipe.toml": "recipe recipe.toml cannot be read: No such file or directory",
}
MIXTURES = {
    "--method moco --keys bank": (
        "keys by bank and dictionary bank need each other, because the bank stores the keys, "
        "got keys by bank and dictionary queue"
    ),
    "--method simclr --dictionary queue": (
        "loss nt_xent scores a batch against itself, so its dictionary must be batch, got queue"
    ),
    "--method simclr --keys momentum": (
        "loss nt_xent uses every row as query and as key, so keys must be by encoder, got momentum"
    ),
    "--method e2e --loss nce": (
        "loss nce needs negatives drawn with a known probability, which only dictionary bank provides, got batch"
    ),
    "--method instdisc --pairs groups": (
        "dictionary bank stores one key for each item, so pairs must be views, got groups"
    ),
    "--method bank --set pairs.symmetric=true": (
        "pairs.symmetric needs two views of an item, but dictionary bank uses only one"
    ),
    "--method supcon --set pairs.symmetric=true": (
        "pairs.symmetric cannot be used with loss sup_con, which is already symmetric"
    ),
    "--method supcon --set loss.policy=hardest:4": (
        "loss.policy works only with losses info_nce and nt_xent, got sup_con"
    ),
    "--method triplet --set loss.learnable=true": "loss.learnable needs a loss with a temperature, got triplet",
}


@pytest.mark.parametrize("words", [*TOLD, *MIXTURES])
def test_a_value_or_a_mixture_that_cannot_be_is_one_sentence(here, words):
    assert (TOLD | MIXTURES)[words] in refused("digits", *words.split())


@pytest.mark.parametrize("words", ["--method moco --epochs x", "--no-such-option", "--lr high"])
def test_words_that_are_no_options_are_usage_errors(here, words):
    result = command("train", "digits", *words.split())
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("not = toml = at all", r"recipe my.toml is not TOML: .*"),
        ("\0", r"recipe my.toml is not TOML: .*"),
        ("[dictionary]\nsise = 5", r"unknown recipe key 'dictionary\.sise'; did you mean dictionary\.size\?"),
        ("lr = 5", r"unknown recipe key 'lr'; did you mean optimizer\.lr\?"),
        ("[training]\nepochs = 'x'", r"training\.epochs must be a whole number, got 'x'"),
        ("training = 5", r"unknown recipe key 'training'.*"),
        ("method = 5", r"unknown method '5', expected one of .*"),
        ("method = []", r"method must be a string, got \[\]"),
        ("seed = -1", r"seed must not be negative, got -1"),
        ("[training]\nsteps = true", r"training\.steps must be a whole number, got True"),
        ("method = 'mocco'", r"unknown method 'mocco'; did you mean moco\?"),
        ("[a.b.c]\nd = 5", r"unknown recipe key 'a\.b'.*"),
    ],
)
def test_a_recipe_that_cannot_be(here, text, sentence):
    (here / "my.toml").write_text(text)
    assert re.fullmatch(sentence, refused("digits", "--recipe", "my.toml"))


def test_a_recipe_that_is_no_text(here):
    (here / "my.toml").write_bytes(b"\xff\xfe\xfd")
    assert (
        refused("digits", "--recipe", "my.toml") == "recipe my.toml is not TOML: expected UTF-8 text, got other bytes"
    )


# Places that cannot be


def test_a_place_that_is_taken(here):
    (here / "file").write_text("mine")
    assert refused("digits", "--out", "file") == "--out must be a folder, got the file file"
    assert refused("digits", *QUICK, "--out", "file/run") in ("file/run: Not a directory", "file: Not a directory")
    (here / "folder").mkdir()
    (here / "folder" / "thesis.tex").write_text("mine")
    for resume in ([], ["--resume"]):
        assert refused("digits", *QUICK, "--out", "folder", *resume) == (
            "--out must be a new folder or a run, got folder, which holds other files"
        )
    assert (here / "folder" / "thesis.tex").read_text() == "mine"


def test_a_run_is_not_written_over(here):
    assert command("train", "digits", *QUICK, "--out", "run").exit_code == 0
    before = {path: path.read_bytes() for path in (here / "run").rglob("*") if path.is_file()}
    assert refused("digits", *QUICK, "--out", "run") == (
        "run already holds a run: use --resume to continue it, or another --out to start a new one"
    )
    assert {path: path.read_bytes() for path in (here / "run").rglob("*") if path.is_file()} == before
    changed = refused("digits", *QUICK, "--out", "run", "--resume", "--lr", "0.5")
    assert changed == "optimizer.lr was 0.002 in run and cannot become 0.5 on resuming"


def test_names_with_brackets_are_shown_as_they_are(here):
    """Brackets are markup to what prints them."""
    name = "[red]my[/data]"  # a folder in a folder
    (here / name).mkdir(parents=True)
    np.save(here / name / "x.npy", np.random.default_rng(0).normal(size=(40, 5)))
    result = command("train", f"{name}/x.npy", *QUICK, "--out", f"{name}/run", "--resume")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert f"there is no checkpoint in {name}/run: starting from the beginning" in result.stderr
    assert f"{name}/x.npy: 40 vectors" in result.stderr


# What is not a number


def test_a_loss_that_is_no_number_is_said_with_its_step_and_its_items(here):
    """One item breaks the encoder, at the step that sees it."""
    vectors = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    vectors[17] = 1e6
    np.save("x.npy", vectors)
    settings = ["--set", "encoder.dim=8", "--set", "training.log_every=8", "--batch-size", "8", "--steps", "8"]
    encoder = "tests.training.plain_encoder:fragile"
    result = command("train", "x.npy", "--encoder", encoder, *settings, "--out", "run")
    found = json.loads((here / "run" / "not_finite.json").read_text())
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"likewise: the loss was not finite at step {found['step']}; its items are in run/not_finite.json; "
        "lower optimizer.lr, set optimizer.clip = 1.0, or raise loss.temperature "
        "(see docs/guide/reading-a-run.md#not-finite)"
    )
    assert "Traceback" not in result.stderr
    assert len(found["ids"]) == 8
    assert 17 in found["ids"]
    assert found["paths"] is None
    assert 1 <= found["step"] <= 8, "steps are counted from one, as in metrics.jsonl"
    assert not (here / "run" / "encoder.safetensors").exists()
    assert whole("run") is None, "what is no number is in no checkpoint"


def test_an_absurd_learning_rate_is_one_sentence(here):
    words = ["--lr", "1e30", "--steps", "30", "--set", "training.log_every=1", "--set", "loss.similarity=dot"]
    result = command("train", "digits", "--method", "e2e", *QUICK[:4], *words, "--out", "run")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("likewise: the loss was not finite at step ")


# Runs


def test_a_folder_of_images_becomes_a_run(here, photos):
    result = command("train", "photos", *QUICK, "--out", "run")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stdout == "encoder in run: likewise.load('run')\nreport in run/report.html\n"
    assert {path.name for path in (here / "run").iterdir()} >= {
        *("recipe.toml", "metrics.jsonl", "checkpoints", "encoder.safetensors", "head.safetensors", "skipped.txt"),
    }
    path, reason = (here / "run" / "skipped.txt").read_text().strip().split("\t")
    assert path == "dogs/7.png"
    assert reason
    assert "17 images of 3×10×10, centre-cropped to squares, 2 held out, 2 classes; " in result.stderr
    assert "; 1 file could not be read, see skipped.txt\n" in result.stderr
    (row,) = [json.loads(line) for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    assert row["step"] == 3
    encoder = likewise.load("run")
    assert encoder.embed("photos", progress=False).vectors.shape == (19, 24)


def test_the_recipe_of_a_run_reproduces_it(here, photos):
    words = ["--set", "training.log_every=1", "--set", "loss.learnable=true", "--seed", "7"]
    assert command("train", "photos", "--method", "moco", *QUICK, *words, "--out", "one").exit_code == 0
    result = command("train", "photos", "--recipe", "one/recipe.toml", "--out", "two")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert_same("two", "one")
    assert (here / "one" / "recipe.toml").read_text() == (here / "two" / "recipe.toml").read_text()
    assert len(rows("two")) == 3
    third = command("train", "photos", "--recipe", "one/recipe.toml", "--seed", "8", "--out", "three")
    assert third.exit_code == 0
    assert rows("three") != rows("one"), "what is said beside a recipe counts more"


def test_a_head_of_nothing_leaves_the_features_as_they_are(here):
    for method in ("moco", "instdisc"):
        words = ["--method", method, *QUICK, "--set", "encoder.head=none", "--out", method]
        result = command("train", "digits", *words)
        assert result.exit_code == 0, result.stderr
        assert command("train", "digits", *words, "--resume").exit_code == 0


# Other commands


def test_methods_are_all_listed():
    result = command("methods")
    assert result.exit_code == 0
    for name, method in methods.METHODS.items():
        (line,) = [line for line in result.stdout.splitlines() if line.split()[1:2] == [name]]
        for word in (method.pairs, method.loss, method.paper):
            assert word in line


def test_the_version():
    result = command("--version")
    assert (result.exit_code, result.stdout) == (0, f"likewise {likewise.__version__}\n")


def test_nothing_asked_shows_the_help():
    result = command()
    assert result.exit_code == 2
    for word in ("train", "demo", "methods"):
        assert word in result.output


@pytest.mark.parametrize("name", ["train", "evaluate", "finetune", "embed", "search", "explore"])
def test_every_role_of_a_column_is_in_the_help(name):
    """Of tables and of arrays."""
    (line,) = (line for line in command(name, "--help").stdout.splitlines() if "--column" in line)
    words = re.findall(r"\w+", line)
    for role in (*ROLES, *WHOLE, *SPLIT, CAPTIONS):
        assert role in words


def test_a_mistake_in_a_process_of_its_own(here):
    """As a person meets it."""
    words = [sys.executable, "-m", "likewise", "train", str(here / "photos")]
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == f"likewise: data not found: {here / 'photos'}\n"


# What nobody foresaw


def test_where_a_mistake_was_found_is_shown_on_demand(here):
    result = command("--debug", "train", "photos")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert result.stderr.endswith("\nlikewise: data not found: photos\n")
    assert "Traceback" not in command("train", "photos").stderr, "it is asked for each time"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("a tensor\nof the wrong kind"), "RuntimeError: a tensor of the wrong kind"),
        (MemoryError(), "MemoryError"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (AssertionError(), "AssertionError"),
        (KeyError("step"), "KeyError: 'step'"),
    ],
)
def test_what_nobody_foresaw_is_one_sentence_with_an_exit_code_of_its_own(here, monkeypatch, error, words):
    def fails(*arguments, **options):
        raise error

    monkeypatch.setattr("likewise.commands.train.train", fails)
    result = command("train", "digits")
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr == (
        f"likewise: unexpected error, probably a bug in likewise: {words}; likewise --debug shows the traceback\n"
    )
    shown = command("--debug", "train", "digits")
    assert shown.exit_code == 70
    assert shown.stderr.startswith("Traceback (most recent call last):")
    assert shown.stderr.endswith(result.stderr)


def test_what_fails_while_it_is_printed_is_one_sentence_too(monkeypatch):
    def fails():
        raise ValueError("no table")

    monkeypatch.setattr("likewise.methods.table", fails)
    result = command("methods")
    assert result.exit_code == 70
    assert result.stderr == (
        "likewise: unexpected error, probably a bug in likewise: ValueError: no table; "
        "likewise --debug shows the traceback\n"
    )


# Sizes that cannot be

TOO_MUCH = {
    "--method moco --set dictionary.size=1000000000000": "dictionary.size = 1,000,000,000,000 and encoder.dim = 128",
    "--method moco --set encoder.dim=1000000000 --batch-size 256": (
        "encoder.dim = 1,000,000,000 and training.batch_size = 256"
    ),
    "--method simclr --set encoder.dim=1000000000 --batch-size 2": "encoder.dim = 1,000,000,000",
    "--set data.size=1000000": "data.size = 1,000,000",
    "--method instdisc --set dictionary.negatives=1000000000000": (
        "dictionary.negatives = 1,000,000,000,000 and encoder.dim = 128"
    ),
}


@pytest.mark.parametrize("words", TOO_MUCH)
def test_a_size_beyond_all_memory_is_refused_before_anything_is_allocated(here, words):
    sentence = refused("digits", *words.split())
    assert sentence.startswith(TOO_MUCH[words])
    assert re.search(r" \S+ [GTPE]iB of memory, and this machine has \S+ [MGT]iB$", sentence), sentence


def test_what_a_machine_has_no_memory_for_is_said_with_what_it_has(here, monkeypatch):
    monkeypatch.setattr("likewise.memory.total", lambda: 3 << 20)
    has = "of memory, and this machine has 3 MiB"
    for words, told in {
        "--set data.size=900": f"data.size = 900 stores each image as 1,028 × 1,028 pixels, which takes 3.02 MiB {has}",
        "--set data.size=64": f"1,797 images of 64 × 64 pixels would take 7.02 MiB {has}, in digits",
        "--set data.size=40": f"data.size = 40 and training.batch_size = 256 would take 3.12 MiB {has}",
        "--set encoder.dim=2000": f"encoder.dim = 2,000 and training.batch_size = 256 would take 3.91 MiB {has}",
    }.items():
        assert refused("digits", "--batch-size", 256, *words.split()) == told
    without_head = {"encoder.dim": 10**9, "encoder.head": "none"}
    assert make_plan("digits", "moco", without_head, progress=False), "then there is no matrix of that size"


def test_a_recipe_nested_deeply_is_one_sentence(here):
    deep = 50_000
    (here / "deep.toml").write_text("seed = " + "[\n" * deep + "]" * 9 + "\n")
    sentence = refused("digits", "--recipe", "deep.toml")
    assert sentence == "recipe deep.toml must have sections of plain values, got deeply nested ones"
    for text in (f"seed = {'[' * deep}{']' * deep}", "seed = " + "{a = " * deep, "[" + "a." * deep + "a]\nseed = 1"):
        (here / "deep.toml").write_text(text)
        sentence = refused("digits", "--recipe", "deep.toml")
        assert sentence.startswith("recipe deep.toml must have lines of at most 10,000 characters, got one of ")
    assert refused("digits", "--set", f"seed={'[' * deep}") == f"seed must be a whole number, got '{'[' * 99}…"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed = 1" + "0" * 5000, r"recipe my\.toml is not TOML: .*"),
        ("seed = 1" + "0" * 50, r"seed must be a number of at most 64 bits, got one of 167 bits"),
        (
            "[optimizer]\nlr = 1" + "0" * 400,
            r"optimizer\.lr must be a number of at most 64 bits, got one of 1,329 bits",
        ),
        ("[data]\nsize = '" + "x" * 5000 + "'", "data\\.size must be a whole number, got 'x{99}…"),
    ],
)
def test_a_number_or_a_text_beyond_all_measure(here, text, sentence):
    (here / "my.toml").write_text(text)
    assert re.fullmatch(sentence, refused("digits", "--recipe", "my.toml"))


def test_only_a_regular_file_of_bounded_size_is_a_recipe(here):
    assert refused("digits", "--recipe", "/dev/zero") == "recipe /dev/zero cannot be read: not a regular file"
    os.mkfifo("pipe")
    assert refused("digits", "--recipe", "pipe") == "recipe pipe cannot be read: not a regular file"
    with (here / "large.toml").open("wb") as file:
        file.truncate(2 << 20)
    assert refused("digits", "--recipe", "large.toml") == "recipe large.toml cannot be read: more than 1 MiB"
