"""Handle SIGINT (Ctrl-C) and SIGTERM, so that a run ends cleanly."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

NOT_BEGUN = "stopped before the first step; run the same command to start again"


class Interrupted(Exception):  # noqa: N818 - not an error
    """The run was interrupted and has ended; what it had finished is kept."""


@contextmanager
def end_on_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, instead of ending the process at once."""
    told = threading.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        signal.signal(number, before[signal.Signals(number)])  # a second signal ends the process at once

    with _handled_by(tell) as before:
        yield told


@contextmanager
def end_at_once_on_signal(sentence: Callable[[], str]) -> Iterator[None]:
    """On SIGINT or SIGTERM, end the block at once and raise Interrupted with this sentence.

    Inside the block the signal raises KeyboardInterrupt, which no `except Exception` catches.
    """

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    try:
        with _handled_by(interrupt):
            yield
    except KeyboardInterrupt:
        raise Interrupted(sentence()) from None


@contextmanager
def exit_on_signal(code: int) -> Iterator[None]:
    """On SIGINT or SIGTERM, exit at once with this code, while there is nothing to save yet.

    Importing torch takes seconds, and an exception during the import can cause a segmentation fault.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        print(f"likewise: {NOT_BEGUN}", file=sys.stderr, flush=True)
        os._exit(code)

    with _handled_by(leave):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[dict[signal.Signals, Any]]:
    """Let `handler` handle SIGINT and SIGTERM while the block runs; yield the previous handlers."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set signal handlers
        yield {}
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield before
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
