"""What the pages and the README show is so: every command and every example is run.

The commands of a page run one after the other in an empty folder, in which the files that the page shows are written
first; then its examples run. Commands that train are cut short: what they learn is not looked at, but
the words that they print have to be those that the page shows (`tests/docs/outputs.py`).
"""

import doctest
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from likewise import clock
from likewise.cli import app
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.losses.catalog import LOSSES
from likewise.methods import METHODS
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import PAIRS
from likewise.training.learner import Learner
from tests.docs.markdown import ROOT, Command, blocks, commands, examples, files, make_targets, name_of, pages
from tests.docs.outputs import difference, masked

PATIENCE = 600  # seconds; it only bounds a hang
# What a training set of this name costs at its own batch size is not needed to see that the command works.
BATCH_SIZES = {"sounds": "16", "shapes": "64"}
STOPPED = "^C"  # what a terminal shows where somebody pressed Ctrl-C
SAME = [(page, page.with_name(page.name.replace(".zh.md", ".md"))) for page in pages() if page.name.endswith(".zh.md")]
TRANSLATIONS = [page for page, _ in SAME]
SHOWING = [page for page in pages() if page not in TRANSLATIONS]


def shows_something(page: Path) -> bool:
    text = page.read_text()
    return bool(commands(text)) or bool(examples(text).strip())


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # an example may leave it to Python to close a file
@pytest.mark.parametrize("page", [page for page in SHOWING if shows_something(page)], ids=name_of)
def test_every_command_and_every_example_of_a_page_works(page, tmp_path, monkeypatch):
    text = page.read_text()
    for name, code in files(text).items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    if page.name == "README.md":
        make_photos(tmp_path / "photos")
    with a_user_in(tmp_path / "programs", tmp_path, monkeypatch):
        stale = []
        for command in commands(text):
            if not command.text.startswith("make "):
                where = f"{name_of(page)}:{command.line}: $ {command.text}"
                stale += [f"{where}\n{said}" for said in run(command, tmp_path, where)]
        check_examples(text, page)
    assert not stale, "\n\n".join(stale)


def make_photos(folder: Path) -> None:
    """Write a few pictures in class folders, which the README takes for granted: its readers have their own."""
    rng = np.random.default_rng(0)
    for name in ("airplane", "ship", "truck"):
        (folder / name).mkdir(parents=True)
        for number in range(100):  # enough for a batch of the default size
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:04}.png")


@contextmanager
def a_user_in(programs: Path, folder: Path, monkeypatch):
    """Work in a folder, with this environment's `likewise` and `python`; what is imported there is forgotten again."""
    programs.mkdir()
    shorter = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from tests.docs import test_pages; test_pages.main()"
    for name, arguments in {"likewise": ["-c", shorter], "python": [], "python3": []}.items():
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *arguments])} "$@"\n')
        script.chmod(0o755)
    paths = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("LIKEWISE_CACHE", str(folder / "cache"))  # which `likewise cache` removes entries from
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("likewise.commands.evaluate.TRAIN_FRAMES", 1000)  # of 20,000
    monkeypatch.setattr("likewise.commands.evaluate.TEST_FRAMES", 300)  # of 5,000
    # Curves and report embed as many items as they look at: by a transformer that takes most of a minute.
    monkeypatch.setattr("likewise.training.trainer.KNN_TRAIN", 200)  # of 5,000
    monkeypatch.setattr("likewise.training.trainer.KNN_TEST", 100)  # of 1,000
    monkeypatch.setattr("likewise.report.contents.SEARCHED", 200)  # of 5,000
    monkeypatch.setattr("likewise.report.contents.MAPPED", 100)  # of 1,000
    before = list(sys.path)
    parts = [(table, dict(table)) for table in (PAIRS, DICTIONARIES, LOSSES, MODALITIES, METHODS)]
    try:
        yield
    finally:
        sys.path[:] = before
        for table, rows in parts:  # a page may have added a part of its own
            table.clear()
            table.update(rows)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def run(command: Command, folder: Path, where: str) -> list[str]:
    """Run a command of a page, and say what the page shows of it that is not so. It may only fail as the page shows."""
    words = plain_words(command.text)
    is_stopped = STOPPED in command.shown
    if words[:2] == ["likewise", "explore"]:
        code, printed, errors = 0, explore(words[1:], folder), ""
    elif words[:1] == ["likewise"] and "--devices" not in words:  # several devices start the program anew
        with stopped_after_its_first_step() if is_stopped else a_quick_clock():
            code, printed, errors = in_this_process(shortened(words[1:]))
    else:
        ran = subprocess.run(
            ["bash", "-c", command.text], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        code, printed, errors = ran.returncode, ran.stderr + ran.stdout, ran.stderr
    if code != 0 and not is_stopped:
        assert command.output, f"{where}\nfailed, and the page shows nothing of it:\n{printed}"
        assert errors.strip() == command.output, f"{where}\nfailed, and not as the page shows"
    if (code != 0 and not is_stopped) or not command.output:
        return []
    shown = "\n".join(line for line in command.shown if line != STOPPED)
    said = [difference(shown, printed)]
    looked_at = ("┃", "│") if words[1:2] in (["demo"], ["evaluate"], ["finetune"]) else "┃"
    if others := rows(shown, looked_at) - rows(printed, looked_at):
        said.append("\n  ".join(["the page shows rows of tables that were not printed:", *others]))
    return list(filter(None, said))


@contextmanager
def stopped_after_its_first_step():
    """Let somebody press Ctrl-C when the first step of a run is done."""
    step = Learner.step

    def last_step(*arguments):
        taken = step(*arguments)
        signal.raise_signal(signal.SIGINT)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", last_step)
        yield


@contextmanager
def a_quick_clock():
    """Let a second pass at every look at the clock, so that a training of some minutes has few steps."""
    seconds = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: float(next(seconds)))
        yield


def plain_words(command: str) -> list[str]:
    """The words of a command, or none if it takes a shell to run it."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    words = list(lexer)
    needs_shell = any(set(word) <= set("();<>|&") for word in words if word) or re.search(r"[$*`~]", command)
    return [] if needs_shell else shlex.split(command.replace("\\\n", " "), comments=True)


def shortened(arguments: list[str]) -> list[str]:
    """Arguments of a command that takes less time: the last of two equal options counts."""
    match arguments:
        case ["train" | "demo", *rest]:
            given = {word.partition("=")[0] for word in rest}
            if len({"--epochs", "--steps", "--minutes"} & given) > 1:  # which is refused
                return arguments
            if "--minutes" in given:  # by a clock of which minutes pass quickly
                return arguments
            if "--epochs" in rest:
                place = arguments.index("--epochs")
                arguments = arguments[:place] + arguments[place + 2 :]
            added = ["--steps", "2"]
            size = next((BATCH_SIZES[word] for word in rest if word in BATCH_SIZES), None)
            if size and not given & {"--batch-size", "--resume", "--recipe"} and "batch_size" not in " ".join(rest):
                added += ["--batch-size", size]
            return [*(word for word in arguments if not word.startswith("--epochs=")), *added]
        case ["finetune", *_]:
            return [*arguments, "--epochs", "1"]
        case ["search", *rest] if "--duplicates" in rest:
            return [*arguments, "--duplicates", "0.99"]  # copies are less alike after two steps
    return arguments


def main() -> None:
    """`likewise` for a shell, with shorter commands."""
    app(shortened(sys.argv[1:]))


def in_this_process(arguments: list[str]) -> tuple[int, str, str]:
    """Run `likewise` where torch is imported already; its exit code, output and errors."""
    ran = CliRunner().invoke(app, arguments, prog_name="likewise")
    errors = ran.stderr
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        errors += "".join(traceback.format_exception(ran.exception))
    return ran.exit_code, ran.output, errors


def explore(arguments: list[str], folder: Path) -> str:
    """Start `likewise explore`, look at its page, end it with Ctrl-C; return its first line."""
    program = [sys.executable, "-m", "likewise", *arguments]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, text=True) as started:
        try:
            line = started.stdout.readline()
            address = re.search(r"http://\S+?(?=[\s,)]|$)", line)
            assert address, "no address was printed"
            url = urllib.parse.urlsplit(address[0])
            end = time.monotonic() + PATIENCE
            status = url._replace(path="/status").geturl()
            while not json.load(urllib.request.urlopen(status))["ready"]:
                assert time.monotonic() < end
                time.sleep(0.2)
            assert "<h1" in urllib.request.urlopen(address[0]).read().decode()
        finally:
            started.send_signal(signal.SIGINT)
        assert started.wait(timeout=PATIENCE) == 0
    return line


def rows(text: str, beginning: str | tuple[str, ...]) -> set[str]:
    """The rows of all tables that begin so, without their figures, which two steps cannot reach."""
    return {masked(line) for line in text.splitlines() if line.startswith(beginning)}


def check_examples(text: str, page: Path) -> None:
    """Run all examples of a page in one namespace."""
    test = doctest.DocTestParser().get_doctest(examples(text), {"__name__": "__main__"}, name_of(page), str(page), 0)
    said = io.StringIO()
    failed = doctest.DocTestRunner(verbose=False).run(test, out=said.write).failed
    assert not failed, said.getvalue()


def test_the_readme_shows_its_two_commands_first():
    assert make_targets((ROOT / "README.md").read_text())[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("target", sorted({target for page in SHOWING for target in make_targets(page.read_text())}))
def test_every_target_that_a_page_names_exists(target):
    """They install, test, or take long: that they would start is all that is checked."""
    started = subprocess.run([*target.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr


@pytest.mark.parametrize(("page", "english"), SAME, ids=[name_of(page) for page in TRANSLATIONS])
def test_a_translation_shows_the_same_code_and_figures(page, english):
    """So what the English page shows need not be run twice."""
    here, there = page.read_text(), english.read_text()
    assert [block.code for block in blocks(here)] == [block.code for block in blocks(there)]
    marked = re.compile(r"<!-- (\w+) -->(.*?)<!-- /\1 -->", flags=re.DOTALL)
    assert marked.findall(here) == marked.findall(there)
    row = re.compile(r"^\| `\w+` \|.*$", flags=re.MULTILINE)
    assert len(row.findall(here)) == len(row.findall(there))
