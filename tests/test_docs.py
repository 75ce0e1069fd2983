"""What the README and CONTRIBUTING say is so: every command and every example is run."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from likewise import methods

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHOWN = [
    line.removeprefix("$ ").split("#")[0].strip()
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("$ ", "make ", "likewise "))
]
COMMANDS = list(dict.fromkeys(SHOWN))
REFUSED = [line for line in COMMANDS if line.endswith("runs/refused")]
# The demo takes minutes, so it is cut short, and so is the longest run besides.
SHORT = {
    command: ["--steps", "3"]
    for command in COMMANDS
    if command.startswith(("likewise demo", "likewise train sounds --steps 60", "likewise train shapes --steps 300"))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The README's commands work in one folder, one after the other."""
    return tmp_path_factory.mktemp("readme")


def test_the_readme_shows_its_two_commands_first():
    assert COMMANDS[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("make ")])
def test_every_target_of_the_readme_exists(command):
    """They install, test, or take long: that they would start is all that is checked."""
    run = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("command", [line for line in COMMANDS if not line.startswith("make ")])
def test_every_command_of_the_readme_runs(command, folder):
    if not command.startswith("likewise "):
        subprocess.run(command, shell=True, cwd=folder, check=True)
        return
    arguments = shlex.split(command)[1:] + SHORT.get(command, [])
    run = subprocess.run(
        [sys.executable, "-m", "likewise", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if command in REFUSED:
        shown = re.search(rf"\$ {re.escape(command)}\n(.*?)\n```", README, flags=re.DOTALL)[1]
        assert (run.returncode, run.stderr.strip()) == (1, shown)
    else:
        assert run.returncode == 0, run.stderr
    if command == "likewise demo":
        shown = re.search(r"\$ likewise demo\n(.*?)```", README, flags=re.DOTALL)[1]
        assert names(run.stdout) == names(shown)


def names(table: str) -> list[str]:
    """The words of all tables without their figures, which three steps cannot reach."""
    return re.findall(r"[A-Za-z-]+", "".join(line for line in table.splitlines() if line.startswith(("┃", "│"))))


@pytest.mark.parametrize("document", ["README.md", "docs/losses.md"])
def test_every_example_gives_what_it_shows(document, folder, monkeypatch):
    monkeypatch.chdir(folder)
    failed, tried = doctest.testfile(str(ROOT / document), module_relative=False)
    assert tried >= 8
    assert failed == 0


def test_the_readme_has_the_methods_as_they_are():
    for name, *words in methods.table()[1:]:
        row = re.search(rf"^\| `{name}` \|(.*)\|$", README, flags=re.MULTILINE)
        assert row, name
        assert [cell.strip() for cell in row[1].split("|")] == words


@pytest.mark.parametrize(
    "name",
    [
        "accuracy",
        "training",
        "evaluation",
        "augmentation",
        "losses",
        "sequences",
        "captions",
        "embed",
        "search",
        "duplicates",
    ],
)
def test_the_figures_in_the_readme_are_the_measured_ones(name):
    quoted = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README, flags=re.DOTALL)[1].strip()
    assert quoted
    assert quoted in (ROOT / "benchmarks" / "RESULTS.md").read_text()


def test_contributing_has_a_line_for_every_file():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    files = [path for folder in ("likewise", "benchmarks", "studies") for path in (ROOT / folder).rglob("*.py")]
    missing = [path.name for path in files if not re.search(rf"\b{re.escape(path.name)}\b", contributing)]
    assert not missing


def test_every_file_that_the_readme_points_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
