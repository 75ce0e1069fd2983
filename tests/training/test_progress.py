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


def test_an_accuracy_is_said_with_the_number_of_items_it_is_of(capsys):
    """The report may look at more of them, and then has another figure."""
    screen = Screen()
    screen.start(0, 10)
    screen.row({"step": 10, "loss": 1.0, "knn": 0.5889, "knn_items": 1250, "items_per_second": 3.0, "seconds_left": 0})
    assert capsys.readouterr().err == "10/10  loss 1.000  k-NN of 1,250 items 0.589  3 items/s  done\n"
