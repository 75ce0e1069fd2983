"""How a command ends when it fails: one sentence on standard error, and an exit code that says what kind of failure."""

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from likewise.printing import say

MISTAKE = 1  # exit code: the user can fix it
DEFECT = 70  # exit code: a bug in likewise (EX_SOFTWARE)
INTERRUPTED = 75  # exit code: the run was interrupted and can be resumed (EX_TEMPFAIL)

shows_traceback = False  # --debug: print the traceback before the sentence


class GuardedGroup(TyperGroup):
    """Ends a command that raised an unexpected exception with one sentence and exit code 70."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer handles its own errors, which have an exit code, and ends quietly if the reader of a pipe is gone.
            is_broken_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
            if is_broken_pipe or isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            end(f"unexpected error, probably a bug in likewise: {words}; likewise --debug shows the traceback", DEFECT)


@contextmanager
def report_errors() -> Iterator[None]:
    """End the command with one sentence on an error that the user can fix, or when the run was interrupted."""
    from likewise.training.signals import Interrupted

    try:
        yield
    except (ValueError, OSError) as error:
        words = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            words = f"{error.filename}: {error.strerror}"
        end(words, MISTAKE)
    except Interrupted as error:
        from likewise import ranks

        if ranks.is_first():  # every rank got the signal; only one reports it
            say(f"likewise: {error}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def end(words: str, code: int) -> NoReturn:
    """Print one sentence about the error that is being handled, and exit."""
    if shows_traceback:
        typer.echo(traceback.format_exc(), err=True)
    say(f"likewise: {' '.join(words.split())}", err=True)
    sys.exit(code)
