"""What the README and CONTRIBUTING say is so: every command and every example is run."""

import doctest
import json
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from likewise import methods
from likewise.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh.md").read_text()
CODE = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
SHOWN = [
    line.removeprefix("$ ").split("#")[0].strip()
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("$ ", "make ", "likewise "))
]
COMMANDS = list(dict.fromkeys(SHOWN))
REFUSED = [line for line in COMMANDS if line.endswith("runs/refused")]
# Added to commands that would take long: what they learn is not looked at here. The last of two options counts.
SHORTER = {
    "likewise demo": ["--steps", "3"],
    "likewise train digits --method moco --steps 60": ["--steps", "3"],
    "likewise train sounds": ["--steps", "3", "--batch-size", "16"],
    "likewise train shapes": ["--steps", "3", "--batch-size", "64"],
    "likewise train shapes --encoder vit_tiny": ["--steps", "1"],
    "likewise finetune": ["--epochs", "2"],
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
def test_every_command_of_the_readme_runs(command, folder, monkeypatch):
    if not command.startswith("likewise "):
        subprocess.run(command, shell=True, cwd=folder, check=True)
        return
    added = [options for start, options in SHORTER.items() if command.startswith(start)]
    arguments = shlex.split(command)[1:] + [word for options in added for word in options]
    if command.startswith("likewise explore "):
        explored(arguments, folder)
        return
    monkeypatch.setenv("LIKEWISE_CACHE", str(folder / "cache"))  # which `likewise cache` removes entries from
    monkeypatch.chdir(folder)
    monkeypatch.setattr("likewise.commands.evaluate.TRAIN_FRAMES", 1000)  # of 20,000
    monkeypatch.setattr("likewise.commands.evaluate.TEST_FRAMES", 300)  # of 5,000
    # Curves and report embed as many items as they look at: by a transformer that takes most of a minute.
    monkeypatch.setattr("likewise.training.trainer.KNN_TRAIN", 200)  # of 5,000
    monkeypatch.setattr("likewise.training.trainer.KNN_TEST", 100)  # of 1,000
    monkeypatch.setattr("likewise.report.contents.SEARCHED", 200)  # of 5,000
    monkeypatch.setattr("likewise.report.contents.MAPPED", 100)  # of 1,000
    run = CliRunner().invoke(app, arguments)  # in this process, which has torch already
    if command in REFUSED:
        shown = re.search(rf"\$ {re.escape(command)}\n(.*?)\n```", README, flags=re.DOTALL)[1]
        assert (run.exit_code, run.stderr.strip()) == (1, shown)
    else:
        assert run.exit_code == 0, run.output
    if command == "likewise demo":
        shown = re.search(r"\$ likewise demo\n(.*?)```", README, flags=re.DOTALL)[1]
        assert names(run.stdout) == names(shown)


def explored(arguments, folder):
    """Started, looked at, ended with Ctrl-C."""
    program = [sys.executable, "-m", "likewise", *arguments]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, text=True) as started:
        said = started.stdout.readline()
        assert said.startswith("runs/digits at http://127.0.0.1:")
        assert said.endswith(" (Ctrl-C ends it)\n")
        url = re.search(r"http://\S+", said)[0]
        end = time.monotonic() + 600
        try:
            while not json.load(urllib.request.urlopen(f"{url}status"))["ready"]:
                assert time.monotonic() < end
                time.sleep(0.2)
            assert "<h1" in urllib.request.urlopen(url).read().decode()
            assert json.load(urllib.request.urlopen(f"{url}about"))["items"] == 1797
        finally:
            started.send_signal(signal.SIGINT)
        assert started.wait(timeout=600) == 0


def names(table: str) -> list[str]:
    """The words of all tables without their figures, which three steps cannot reach."""
    return re.findall(r"[A-Za-z-]+", "".join(line for line in table.splitlines() if line.startswith(("┃", "│"))))


@pytest.mark.parametrize("document", ["README.md", "docs/reference/losses.md"])
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
        "explorer",
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


def test_the_chinese_readme_shows_the_same_code():
    """So what the English one shows need not be run twice."""
    assert CODE.findall(CHINESE) == CODE.findall(README)


def test_the_chinese_readme_has_the_same_figures():
    marked = re.compile(r"<!-- (\w+) -->(.*?)<!-- /\1 -->", flags=re.DOTALL)
    assert marked.findall(CHINESE) == marked.findall(README)


def test_the_chinese_readme_has_the_same_rows_of_methods():
    row = re.compile(r"^\| `\w+` \|.*$", flags=re.MULTILINE)
    assert row.findall(CHINESE) == row.findall(README)


@pytest.mark.parametrize("document", ["README.md", "README.zh.md"])
def test_every_file_and_heading_that_the_readme_points_to_is_there(document):
    targets = re.findall(r"\]\(([^)#]*)#?([^)]*)\)", CODE.sub("", (ROOT / document).read_text()))
    assert targets
    for file, anchor in targets:
        page = ROOT / (file or document)
        assert page.exists(), file
        assert not anchor or anchor in anchors(page), f"{file}#{anchor}"


def anchors(page: Path) -> list[str]:
    """What GitHub calls the headings of a page: letters of any language stay, spaces become hyphens."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
