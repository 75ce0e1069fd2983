"""What people read while they wait, on standard error."""

import io

from rich.console import Console

from likewise.training.progress import Observer, Screen


def test_where_no_terminal_is_it_is_one_line(capsys):
    with Screen().waiting_for("writing [the] report"):
        assert capsys.readouterr().err == "writing [the] report …\n"
    assert capsys.readouterr().err == ""


def test_in_a_terminal_the_line_goes_away_again():
    screen = Screen()
    screen.console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with screen.waiting_for("writing the report"):
        pass
    written = screen.console.file.getvalue()
    assert "writing the report …" in written
    assert written.endswith("\r\x1b[1A\x1b[2K"), "the last thing that is done is to clear it"


def test_nobody_is_told_where_nobody_looks(capsys):
    with Observer().waiting_for("writing the report"):
        pass
    assert capsys.readouterr().err == ""
