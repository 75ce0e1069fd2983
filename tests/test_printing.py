"""What is printed: names and words of files never reach a terminal as instructions to it."""

import io
import json
import re

import pytest
from PIL import Image
from typer.testing import CliRunner

from likewise import printing
from likewise.cli import app
from likewise.data.work import with_progress_bar
from likewise.training.progress import Screen

# It clears the screen, sets the window's title, overwrites the line, begins another, turns the text around.
NASTY = "a\x1b[2J\x1b]0;owned\x07\r\nlikewise: done\x9b31m\u202egnp.\u2028\u2066b\udcff\x7f"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text, lines=1):
    """There are as many lines as there should be, and nothing in them that a terminal obeys."""
    assert not OBEYED.search(text), ascii(text)
    assert text.count("\n") == lines, ascii(text)
    return text


def test_what_a_terminal_obeys_is_written_out():
    shown = "a\\x1b[2J\\x1b]0;owned\\x07\\r\\nlikewise: done\\x9b31m\\u202egnp.\\u2028\\u2066b\\udcff\\x7f"
    assert printing.printable(NASTY) == shown


@pytest.mark.parametrize("text", ["", "é ü 日本 ñ [a] :cat: 50 %", "a family 👩‍👧", "مرحبا", "a\\b"])
def test_text_of_any_language_stays_as_it_is(text):
    assert printing.printable(text) == text


def test_lines_tables_and_json(capsys):
    printing.say(f"vectors in {NASTY}")
    harmless(capsys.readouterr().out)
    printing.say(f"likewise: {NASTY}", err=True)
    harmless(capsys.readouterr().err)
    printing.show([["path", NASTY], ["1", NASTY]], f"of {NASTY}")
    harmless(capsys.readouterr().out, lines=6)
    printing.show_json([{"path": NASTY, NASTY: [1, None]}])
    text = harmless(capsys.readouterr().out, lines=9)
    assert json.loads(text) == [{"path": NASTY, NASTY: [1, None]}], "and reads as the same again"


def test_the_plan_notes_and_what_is_waited_for(capsys):
    screen = Screen()
    screen.plan([f"data\t{NASTY}: 3 images", NASTY])
    harmless(capsys.readouterr().err, lines=2)
    screen.say(NASTY)
    harmless(capsys.readouterr().err)
    with screen.waiting_for(NASTY):
        harmless(capsys.readouterr().err)
    screen.say("skipped in photos:cat:/[bold]")
    assert capsys.readouterr().err == "note  skipped in photos:cat:/[bold]\n"


def test_the_bar_of_a_source_that_is_read(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert list(with_progress_bar([[1]], 1, f"reading [bold]{NASTY}", progress=True)) == [[1]]
    written = terminal.getvalue()
    assert "reading [bold]a\\x1b[2J" in written
    assert not any(part in written for part in ("\x1b[2J", "\x1b]0;", "\x9b", "\u202e"))


def test_errors_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKEWISE_CACHE", str(tmp_path / ".cache"))
    name = NASTY.replace("\udcff", "")
    for i in range(2):
        Image.new("L", (8, 8)).save(f"{i}.png")
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.png").write_text("no image")
    (tmp_path / "recipe.toml").write_text('method = "\\u001b[2J"')
    for words in (["train", f"{name}.npy"], ["train", name], ["train", ".", "--recipe", "recipe.toml"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert harmless(result.stderr).startswith("likewise: ")
