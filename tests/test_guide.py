"""What the program prints about a symptom ends with a section of the documentation that exists."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from likewise import methods
from likewise.commands.train import train
from likewise.evaluation.geometry import collapse, geometry
from likewise.guide import PAGE, SECTIONS, see
from likewise.recipe import parse_settings
from likewise.training.health import Health, Signs
from likewise.training.plan import make_plan
from likewise.training.run import NotFiniteError, RunError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TEXT = (ROOT / PAGE).read_text()
METHODS = (DOCS / "reference" / "methods.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", METHODS, flags=re.DOTALL) for line in block.strip().splitlines()
]
CHART = (
    (DOCS / "start" / "which-method.md").read_text().partition("## From your data to a command")[2].split("\n## ")[0]
)
RNG = np.random.default_rng(0)
DATA = {  # what stands for the files that the chart names
    "photos/": {"x": RNG.integers(0, 256, (4100, 8, 8, 3), dtype=np.uint8), "y": np.arange(4100) % 5},
    "photos.npz": {"x": RNG.integers(0, 256, (600, 8, 8, 3), dtype=np.uint8), "group": np.arange(600) // 3},
    "captioned/": "shapes",
    "recordings/": "sounds",
    "clips.npz": {"x": RNG.normal(size=(600, 64, 2)), "speaker": np.arange(600) // 3},
    "log.csv": RNG.normal(size=(600, 64, 2)),
    "vectors.npy": RNG.normal(size=(600, 20)),
    "vectors.npz": {"x": RNG.normal(size=(600, 20)), "y": np.arange(600) % 5},
}
ILL = {
    "step": 500,
    "total": 1000,
    "loss": 9.0,
    "similarity": "dot",
    "temperature": 0.01,
    "learnable": True,
    "candidates": 4097.0,
    "dim": 128,
    "length": 7.0,
    "largest": 300.0,
    "alike": 0.99,
    "queue_fill": None,
}


def sections(text: str, below: str) -> list[str]:
    """Return the anchors of the headings of the third level below one of the second."""
    part = re.split(r"^## ", text, flags=re.MULTILINE)
    (part,) = [each for each in part if each.startswith(f"{below}\n")]
    headings = re.findall(r"^### (.+)$", part, flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_section_about_a_symptom_is_printed_and_every_printed_one_exists():
    assert sorted(sections(TEXT, "Troubleshooting by symptom")) == sorted(SECTIONS.values())


def test_every_sentence_about_health_names_its_section():
    assert set(ILL) == {field.name for field in fields(Signs)}
    said = Health().look(Signs(**ILL)) + Health().look(Signs(**ILL | {"queue_fill": 0.5}))
    ends = {sentence[sentence.rindex("(see ") :] for sentence in said}
    assert ends == {see(symptom) for symptom in ("filling", "chance", "collapse", "length", "range", "temperature")}


def test_other_sentences_about_symptoms_do_too():
    assert collapse(geometry(torch.ones(9, 4))).endswith("(see docs/guide/reading-a-run.md#collapsed)")
    assert str(NotFiniteError("the loss was not finite")).endswith("(see docs/guide/reading-a-run.md#not-finite)")


def test_a_step_that_does_not_fit_says_what_to_change(tmp_path, monkeypatch):
    def step(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("likewise.training.learner.Learner.step", step)
    with pytest.raises(RunError) as error:
        train("digits", method="simclr", steps=1, batch_size=64, out=tmp_path / "run", progress=False)
    assert str(error.value) == (
        "the device ran out of memory; lower training.batch_size, which is 64, or embed the batch in parts "
        f"(training.chunk) {see('memory')}"
    )


def test_every_symptom_is_named_somewhere_in_the_package():
    code = "".join(path.read_text() for path in (ROOT / "likewise").rglob("*.py"))
    for symptom in SECTIONS:
        assert f"see('{symptom}')" in code or f'found["{symptom}"]' in code, symptom


def test_the_page_of_methods_has_them_as_they_are():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", METHODS, flags=re.MULTILINE)
    found = [[name, *(cell.strip() for cell in cells.split("|"))] for name, cells in rows]
    assert found == methods.table()[1:]
    headings = re.findall(r"^## (\w+)$", METHODS, flags=re.MULTILINE)
    assert headings == list(methods.METHODS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_of_methods_is_a_recipe_that_can_work(command):
    """They are not run: each is a training of its own."""
    program, verb, _, *options = shlex.split(command)
    assert (program, verb) == ("likewise", "train")
    given = list(zip(options[::2], options[1::2], strict=True))
    keys = {"--pairs": "pairs.kind", "--keys": "keys.by", "--dictionary": "dictionary.kind", "--loss": "loss.kind"}
    values = {keys[name]: value for name, value in given if name in keys}
    values |= parse_settings(value for name, value in given if name == "--set")
    if values.get("pairs.kind") == "future":
        values["encoder.head"] = "steps"  # which is chosen for them
    methods.check(methods.defaults(dict(given)["--method"]).with_values(values))


@pytest.mark.parametrize("row", re.findall(r"^\|.*`likewise train .*$", CHART, flags=re.MULTILINE))
def test_every_command_of_the_chart_of_methods_can_work_with_such_data(row):
    _, _, source, *options = shlex.split(re.search(r"`(likewise train [^`]*)`", row)[1])
    given = list(zip(options[::2], options[1::2], strict=True))
    names = {"--pairs": "pairs.kind", "--encoder": "encoder.name", "--batch-size": "training.batch_size"}
    values: dict[str, object] = {names[name]: value for name, value in given if name in names}
    if "training.batch_size" in values:
        values["training.batch_size"] = int(str(values["training.batch_size"]))
    values |= parse_settings(value for name, value in given if name == "--set")
    columns = ",".join(value for name, value in given if name == "--column")
    if columns and columns != "sequence=machine":  # only tables have sequences to be named
        values["data.columns"] = columns
    plan = make_plan(DATA[source], dict(given).get("--method"), values, progress=False)
    if chosen := re.search(r"which is \[`(\w+)`\]", row):
        assert plan.recipe.method == chosen[1]
