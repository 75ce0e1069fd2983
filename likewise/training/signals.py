"""How a run is told to end, and ends well."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

NOT_BEGUN = "stopped before the first step; the same command starts again"


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was told to end, and has: what it had finished is kept."""


@contextmanager
def end_on_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of ending the process where it stands."""
    told = threading.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        signal.signal(number, before[signal.Signals(number)])  # who asks twice does not want to wait for the step

    with _handled_by(tell) as before:
        yield told


@contextmanager
def end_at_once_on_signal(sentence: Callable[[], str]) -> Iterator[None]:
    """End the block where it stands on SIGINT or SIGTERM, and raise Interrupted with this sentence.

    Inside, the signal is a KeyboardInterrupt, which nothing takes for the error of a damaged file.
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
    """End the process with this exit code on SIGINT or SIGTERM, for as long as there is nothing to be kept.

    Importing torch takes seconds, and an exception in the midst of it can end in a segmentation fault.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        print(f"likewise: {NOT_BEGUN}", file=sys.stderr, flush=True)
        os._exit(code)

    with _handled_by(leave):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[dict[signal.Signals, Any]]:
    """Let `handler` handle SIGINT and SIGTERM while the block runs; yields the handlers of before."""
    if threading.current_thread() is not threading.main_thread():  # signals can be handled nowhere else
        yield {}
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield before
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
