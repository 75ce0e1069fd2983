"""What the program prints about a symptom ends with a section of the documentation that exists."""

import re
from dataclasses import fields
from pathlib import Path

import torch

from likewise.evaluation.geometry import collapse, geometry
from likewise.guide import PAGE, SECTIONS, see
from likewise.training.health import Health, Signs
from likewise.training.run import NotFiniteError

TEXT = (Path(__file__).parents[1] / "docs" / "guide" / PAGE).read_text()
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
    assert ends == {see(symptom) for symptom in SECTIONS if symptom != "not finite"}


def test_other_sentences_about_symptoms_do_too():
    assert collapse(geometry(torch.ones(9, 4))).endswith("(see reading-a-run.md#collapsed)")
    assert str(NotFiniteError("the loss was not finite")) == "the loss was not finite (see reading-a-run.md#not-finite)"
