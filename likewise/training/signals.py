"""How a run is told to end, and ends well."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was told to end, and has: its checkpoint is written."""


@contextmanager
def end_on_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of ending the process where it stands."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there signals can be handled
        yield told
        return

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        signal.signal(number, before[signal.Signals(number)])  # who asks twice does not want to wait for the step

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
