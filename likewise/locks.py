"""One writer at a time: a lock file that the system frees when its process ends, however it ends."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"  # the lock file of a folder


class InUseError(ValueError):
    """Another process writes to the place that this one was told to write to."""


@contextmanager
def only_writer(target: Path, lock: Path) -> Iterator[None]:
    """Hold the lock file of `target` while the block runs; raise InUseError if another process holds it.

    The folders that the lock file needs are made, and removed again if the block leaves them empty.
    """
    made = [folder for folder in lock.parents if not folder.exists()]  # the deepest first
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise InUseError(
            f"{target} is in use: another likewise process writes to it; wait until it ends, or choose another --out"
        ) from None
    try:
        yield
    finally:
        # It is removed while it is still held, so nobody can lock it in between. On Windows an open file stays,
        # and filelock removes it on release.
        with contextlib.suppress(OSError):
            lock.unlink()
        held.release()
        for folder in made:
            with contextlib.suppress(OSError):  # something was written there
                folder.rmdir()
