"""How a command ends that cannot go on: in one sentence, with an exit code that says whose turn it is."""

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from likewise.printing import say

MISTAKE = 1  # exit code of what the user can mend
DEFECT = 70  # exit code of what likewise should have foreseen (EX_SOFTWARE)
INTERRUPTED = 75  # exit code of a run that was told to end and can be resumed (EX_TEMPFAIL)

shows_traceback = False  # on standard error, before the sentence: --debug


class Guarded(TyperGroup):
    """Ends a command that fails in a way nobody foresaw in one sentence too, with an exit code of its own."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer ends its own errors, which have an exit code, and quietly one whose reader has gone.
            gone = isinstance(error, OSError) and error.errno == errno.EPIPE
            if gone or isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            end(f"an error that likewise should have foreseen, {words}; likewise --debug shows where", DEFECT)


@contextmanager
def said_in_one_sentence() -> Iterator[None]:
    """Mistakes of people end in one sentence; --debug shows where it was said."""
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

        if ranks.is_first():  # all ranks were told
            say(f"likewise: {error}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def end(words: str, code: int) -> NoReturn:
    """End with one sentence for the error that is being handled."""
    if shows_traceback:
        typer.echo(traceback.format_exc(), err=True)
    say(f"likewise: {' '.join(words.split())}", err=True)
    sys.exit(code)
