"""Allow one writer at a time, by a lock file that the system releases when the process ends, even if it is killed."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"  # the lock file of a folder


class InUseError(ValueError):
    """Another process is writing to the same folder or file."""


@contextmanager
def only_writer(target: Path, lock: Path) -> Iterator[None]:
    """Hold the lock file of `target` while the block runs; raise InUseError if another process holds it.

    The parent folders of the lock file are created, and removed again if the block leaves them empty.
    """
    created = [folder for folder in lock.parents if not folder.exists()]  # the deepest first
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
        # Remove the file while the lock is held, so that no other process can lock it in between. Windows cannot
        # delete an open file; there filelock removes it on release.
        with contextlib.suppress(OSError):
            lock.unlink()
        held.release()
        for folder in created:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()
