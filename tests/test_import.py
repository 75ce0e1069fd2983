"""`import likewise` costs nothing, its losses what torch costs, and its help half a second at most."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, sys
for step in sys.argv[1:]:
    before = set(sys.modules)
    exec(step)
    print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_after(*steps: str) -> list[list[str]]:
    """The modules that a fresh interpreter holds after each of these steps and did not hold before it."""
    run = subprocess.run([sys.executable, "-c", CODE, *steps], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def beside_torch():
    """What losses and search import that torch has not imported; in one interpreter, as torch takes seconds."""
    _, losses, search = modules_after("import torch", "from likewise import losses", "import likewise.search")
    return losses, search


def test_import_likewise_does_not_import_torch():
    (loaded,) = modules_after("import likewise")
    assert "likewise" in loaded
    assert "torch" not in loaded
    assert "numpy" not in loaded


def test_losses_import_nothing_beside_torch(beside_torch):
    losses, _ = beside_torch
    assert "likewise.losses" in losses
    assert {name.split(".")[0] for name in losses} <= {"likewise", "__future__"}


def test_help_does_not_import_torch():
    (loaded,) = modules_after("import likewise.cli")
    assert "likewise.cli" in loaded
    assert "torch" not in loaded


def test_search_does_not_import_faiss(beside_torch):
    losses, search = beside_torch
    assert "likewise.search" in search
    assert "faiss" not in {*losses, *search}


def test_an_unknown_name_is_an_attribute_error():
    code = "import likewise\ntry: likewise.lossses\nexcept AttributeError as error: print('refused:', error)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "refused: module 'likewise' has no attribute 'lossses'"
