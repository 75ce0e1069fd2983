"""What CONTRIBUTING, CITATION and the README say about the repository is so."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import likewise

ROOT = Path(__file__).parents[1]
CODE = [path for folder in ("likewise", "benchmarks", "studies") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_contributing_names_every_folder():
    named = set(re.findall(r"^\| `([\w./]+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE))
    folders = {path.parent.relative_to(ROOT).as_posix() for path in CODE}
    assert folders | {"recipes", "tests", "docs"} == named


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_opens_with_a_sentence_that_says_what_it_is(path):
    first, *rest = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines() or [""]
    assert re.fullmatch(r"\S.{10,118}[.?]", first), first
    assert not rest or not rest[0], "the sentence stands on a line of its own"


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {likewise.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


@pytest.mark.parametrize(("document", "most"), [("README.md", 180), ("README.zh.md", 180), ("CONTRIBUTING.md", 120)])
def test_what_newcomers_read_first_stays_short(document, most):
    assert len((ROOT / document).read_text().splitlines()) <= most
