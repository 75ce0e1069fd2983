"""Commands that a page names without showing what they print: in a sentence, in a table, among examples.

A training would take minutes, so only its plan is made, on small data of the same layout. Other commands are run on
small runs; those that start a server are parsed.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import safetensors.torch
import soundfile
import typer
from PIL import Image
from pyarrow import parquet

import likewise
from likewise.cli import app
from likewise.data.tokens import Tokenizer
from likewise.encoders import build_text
from likewise.training import plan
from tests.docs.markdown import DOCS, ROOT, examples_of_commands, pages
from tests.docs.test_pages import in_this_process
from tests.waves import clips

COMMANDS = sorted({command for page in pages() for command in examples_of_commands(page.read_text())})
TRAININGS = [command for command in COMMANDS if command.startswith("likewise train ")]
SERVED = [command for command in COMMANDS if command.startswith(("likewise explore ", "likewise demo "))]
OTHERS = [command for command in COMMANDS if command not in TRAININGS and command not in SERVED]
CHOSEN = re.compile(r"^\| .* \| `(likewise train [^`]+)` \| `(\w+)` \|$", flags=re.MULTILINE)
IN_CHART = re.compile(r"`(likewise train [^`]+)`, which is \[`(\w+)`\]")
CLASSES = ("bird", "cat", "dog")
EACH = 12  # images of a class


class Planned(BaseException):  # not an Exception: the command line would report that
    """A training that was about to begin, with its plan."""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Be in a folder with small data of every layout that a page names, under the names that the pages use."""
    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LIKEWISE_CACHE", str(folder / "cache"))
        photos = ["photos", "captioned", "new-photos", "more-photos", "other-photos"]
        for name in [*photos, "DATA", "SOURCE", "FILE_OR_FOLDER"]:
            write_photos(Path(name))
        lines = [f"{name}/{number}.png,a red {name}" for name in CLASSES for number in range(EACH)]
        Path("captioned/captions.csv").write_text("\n".join(["image,caption", *lines]))
        Path("names.txt").write_text("\n".join(CLASSES))
        Image.open("photos/cat/0.png").save("cat.jpg")
        tones = clips(32)
        np.savez("clips.npz", **{"speaker" if key == "player" else key: value for key, value in tones.items()})
        write_recordings(Path("recordings"), tones)
        write_log(Path("log.csv"))
        write_log(Path("sensors.csv"))
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        np.savez("photos.npz", x=pictures, group=np.arange(40) // 3)
        for name in ("features.npy", "vectors.npy"):
            np.save(name, rng.normal(size=(40, 6)).astype(np.float32))
        np.savez("vectors.npz", x=rng.normal(size=(40, 6)).astype(np.float32), y=np.arange(40) % 3)
        texts = [f"note {number} on {CLASSES[number % 3]}s and others" for number in range(40)]
        Path("notes.txt").write_text("\n".join(texts))
        for name in ("notes.csv", "tickets.csv"):
            lines = [f"{text},{CLASSES[number % 3]}" for number, text in enumerate(texts)]
            Path(name).write_text("\n".join(["text,team", *lines]))
        packages = {"title": texts, "text": texts, "section": [CLASSES[number % 3] for number in range(40)]}
        parquet.write_table(pyarrow.table(packages), "packages.parquet")
        tokenizer = Tokenizer.learned(texts, 300)
        Path("tokenizer.json").write_text(tokenizer.text)
        safetensors.torch.save_file(build_text("minilm", tokenizer.vocabulary).state_dict(), "model.safetensors")
        Path("FILE").write_text('method = "simclr"\n')
        yield folder


@pytest.fixture(scope="module")
def runs(here):
    """Train an encoder of each kind that a page names, for one step."""
    short = {"steps": 1, "batch_size": 8, "progress": False, "settings": {"data.workers": 0}}
    for name in ("runs/photos", "runs/digits", "RUN"):
        likewise.train("photos", out=name, method="simclr", **short)
    for name in ("runs/shapes", "runs/captioned"):
        likewise.train("captioned", out=name, **short)
    likewise.train("recordings", out="runs/sounds", **short)
    likewise.train("log.csv", out="runs/machines", columns={"sequence": "machine", "y": "state"}, **short)
    return here


def write_photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(EACH):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / name / f"{number}.png")


def write_recordings(folder: Path, tones: dict[str, np.ndarray]) -> None:
    for number, label in enumerate(tones["y"]):
        (folder / f"pitch{label}").mkdir(parents=True, exist_ok=True)
        tone = tones["audio"][tones["offsets"][number] : tones["offsets"][number + 1]]
        soundfile.write(folder / f"pitch{label}" / f"{number}.wav", tone, int(tones["rate"]))


def write_log(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"m{machine},{moment},{rng.normal():.3f},{rng.normal():.3f},{'ok' if machine % 2 else 'worn'}"
        for machine in range(20)
        for moment in range(60)
    ]
    path.write_text("\n".join(["machine,time,vibration,current,state", *rows]))


def planned(command: str) -> plan.Plan:
    """Return the plan of a training: all that happens before its first step."""
    make_plan = plan.make_plan

    def only_plan(*arguments, **options):
        raise Planned(make_plan(*arguments, **options))

    words = [*shlex.split(command)[1:], "--out", "planned"]
    if "--batch-size" in words:
        words += ["--batch-size", "8"]  # the data is small
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "make_plan", only_plan)
        try:
            _, printed, errors = in_this_process(words)
        except Planned as training:
            return training.args[0]
    raise AssertionError(printed + errors)


@pytest.mark.parametrize("command", TRAININGS)
def test_every_training_that_a_page_names_can_begin(command, here):
    assert isinstance(planned(command), plan.Plan)


@pytest.mark.parametrize(("command", "method"), CHOSEN.findall((ROOT / "README.md").read_text()))
def test_the_readme_names_the_method_that_is_chosen(command, method, here):
    assert planned(command).recipe.method == method


def test_the_readme_names_chosen_methods():
    assert CHOSEN.findall((ROOT / "README.md").read_text())


@pytest.mark.parametrize(("command", "method"), IN_CHART.findall((DOCS / "start" / "which-method.md").read_text()))
def test_the_chart_names_the_method_that_is_chosen(command, method, here):
    assert planned(command).recipe.method == method


@pytest.mark.parametrize("command", OTHERS)
def test_every_other_command_that_a_page_names_works(command, runs):
    verb, *words = shlex.split(command)[1:]
    words += ["--epochs", "1"] if verb == "finetune" else []
    before = set(runs.iterdir())
    code, printed, errors = in_this_process([verb, *words])
    if "Missing argument" in errors:  # which is left to the reader
        code, printed, errors = in_this_process([verb, "runs/photos", *words])
    assert code == 0, printed + errors
    for written in set(runs.iterdir()) - before:  # another command may want the same name
        written.unlink()


@pytest.mark.parametrize("command", SERVED)
def test_every_command_that_serves_a_page_can_be_read(command):
    verb, *words = shlex.split(command)[1:]
    typer.main.get_command(app).commands[verb].make_context(verb, words)
