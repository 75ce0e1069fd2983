"""What the program prints about a symptom ends with a section of the documentation that exists."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from likewise import methods
from likewise.commands.train import train
from likewise.evaluation.geometry import collapse, geometry
from likewise.guide import PAGE, SECTIONS, see
from likewise.training.health import Health, Signs
from likewise.training.run import NotFiniteError, RunError
from tests.docs.outputs import masked

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TEXT = (ROOT / PAGE).read_text()
METHODS = (DOCS / "reference" / "methods.md").read_text()
HEALTH = ("filling", "chance", "collapse", "length", "range", "temperature")
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
    assert ends == {see(symptom) for symptom in HEALTH}


def test_the_page_shows_the_sentences_about_health_as_they_are_printed():
    signs = [ILL, ILL | {"queue_fill": 0.5}, ILL | {"similarity": "cosine"}]
    said = {masked(sentence) for each in signs for sentence in Health().look(Signs(**each))}
    shown = re.findall(r"^note  (.*?\(see[^)]*\))$", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert {masked(sentence) for sentence in shown} <= said
    assert len(shown) == len(HEALTH), "the others end the run, or are of a search"


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
