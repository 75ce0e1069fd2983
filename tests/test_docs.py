"""What the README and CONTRIBUTING say is so: every command and every example is run."""

import doctest
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.removeprefix("$ ").split("#")[0].strip()
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("$ ", "make ", "likewise "))
]
# These run the tests, or take long: that they exist and would start is all that is checked.
DRY = {"make demo", "make test", "make bench", "likewise demo"}


def test_the_readme_shows_its_two_commands_first():
    assert COMMANDS[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_of_the_readme_runs(command):
    program, *arguments = command.split()
    if command in DRY:
        arguments.append("--dry-run")
    path = shutil.which(program, path=f"{ROOT / '.venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    assert path, f"{program} is not installed"
    run = subprocess.run([path, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_example_of_the_readme_gives_what_it_shows():
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 10
    assert failed == 0


def test_the_demo_shown_is_the_demo():
    shown = re.search(r"\$ likewise demo\n(.*?)```", README, flags=re.DOTALL)[1].strip()
    run = subprocess.run(
        [sys.executable, "-m", "likewise", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert words(shown) == words(run.stdout)


def words(text: str) -> list[str]:
    """Names and numbers of a table, to two decimals: the last digit may differ between machines."""
    found = re.findall(r"[A-Za-z_≥,]+|-?\d+\.\d+", text)
    return [f"{float(word):.2f}" if re.fullmatch(r"-?\d+\.\d+", word) else word for word in found]


def test_the_figures_in_the_readme_are_the_measured_ones():
    quoted = re.search(r"<!-- losses -->\n(.*?)<!-- /losses -->", README, flags=re.DOTALL)[1].strip()
    assert quoted
    assert quoted in (ROOT / "benchmarks" / "RESULTS.md").read_text()


def test_contributing_has_a_line_for_every_file():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    files = [path for folder in ("likewise", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    missing = [path.name for path in files if not re.search(rf"\b{re.escape(path.name)}\b", contributing)]
    assert not missing


def test_every_file_that_the_readme_points_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
