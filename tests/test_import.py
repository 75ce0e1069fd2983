"""`import likewise` costs nothing, its losses what torch costs, and its help half a second at most."""

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running `code`."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_import_likewise_does_not_import_torch():
    loaded = modules_after("import likewise")
    assert "torch" not in loaded
    assert "numpy" not in loaded


def test_losses_import_nothing_beside_torch():
    beside = modules_after("from likewise import losses") - modules_after("import torch")
    assert {name.split(".")[0] for name in beside} <= {"likewise", "__future__"}


def test_help_does_not_import_torch():
    assert "torch" not in modules_after("import likewise.cli")


def test_an_unknown_name_is_an_attribute_error():
    code = "import likewise\ntry: likewise.lossses\nexcept AttributeError as error: print('refused:', error)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "refused: module 'likewise' has no attribute 'lossses'"
