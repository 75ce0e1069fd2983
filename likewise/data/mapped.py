"""Map arrays in files into memory, and detect when another program changes such a file while it is in use.

    map_array(path)      the array of an .npy file
    change_of(array)     what has happened to its file since then, in words

If a mapped file becomes shorter, reading the missing bytes kills the process with SIGBUS. Unless something else handles
that signal, the process prints a sentence before it exits.
"""

import ctypes
import functools
import mmap
import os
import signal
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # Windows, where a mapped file can be neither shortened nor removed
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class _Opened:
    """A file, and what it was like when its array was mapped."""

    file: BinaryIO
    path: Path
    size: int
    time: int

    def change(self) -> str:
        """Return what has happened to the file since then, in words; empty if nothing has."""
        now = os.fstat(self.file.fileno())  # of the opened file, even if its name now belongs to another
        if now.st_size != self.size:
            return f"{self.path} had {self.size:,} bytes when it was opened, and has {now.st_size:,} now"
        return f"{self.path} was written to after it was opened" if now.st_mtime_ns != self.time else ""


_opened: weakref.WeakKeyDictionary[mmap.mmap, _Opened] = weakref.WeakKeyDictionary()


def map_array(path: Path) -> NDArray[Any]:
    """Map the array of an .npy file, read-only.

    While it is mapped, a shared lock on the file tells other processes that it is in use.
    """
    file = path.open("rb")
    try:
        if fcntl is not None:
            _lock(file, fcntl.LOCK_SH)
        status = os.fstat(file.fileno())
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        mapping = _mapping(array)
    except BaseException:
        file.close()
        raise
    if mapping is None:  # an array without axes is not mapped
        file.close()
        return array
    _opened[mapping] = _Opened(file, path, status.st_size, status.st_mtime_ns)
    weakref.finalize(mapping, file.close)
    _explain_bus_errors()
    return array


def change_of(array: NDArray[Any]) -> str:
    """Return what has happened to the file of a mapped array, or of a view of one, in words; empty if nothing has."""
    mapping = _mapping(array)
    opened = None if mapping is None else _opened.get(mapping)
    return "" if opened is None else opened.change()


def is_in_use(path: Path) -> bool:
    """Return whether any process has mapped this file; False if the system cannot tell."""
    if fcntl is None:
        return False
    with path.open("rb+") as file:
        return not _lock(file, fcntl.LOCK_EX)


def _lock(file: BinaryIO, kind: int) -> bool:
    """Lock a file until it is closed, and return False if another process holds a conflicting lock."""
    try:
        fcntl.flock(file.fileno(), kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems do not support locks
        return True
    return True


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the memory mapping that an array is a view of, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


@functools.cache
def _explain_bus_errors() -> Any:
    """Print a sentence when SIGBUS ends the process, unless another handler is installed already.

    Python runs its signal handlers only after the current instruction, which never finishes if it faults. So this
    registers a ctypes function with the C library, which calls it at once. The function is returned so that the cache
    keeps it alive.
    """
    if not hasattr(signal, "SIGBUS"):
        return None
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p

    def explain(number: int) -> None:
        changes = [change for opened in list(_opened.values()) if (change := opened.change())]
        why = "; ".join(changes) or "a file that is mapped into memory could not be read: check the disk"
        os.write(2, f"likewise: the data cannot be read any more: {why}\n".encode(errors="backslashreplace"))
        os._exit(1)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(explain)
    previous = library.signal(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    if previous:  # for example faulthandler's
        library.signal(signal.SIGBUS, previous)
    return handler
