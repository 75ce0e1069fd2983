"""Arrays in files that are mapped into memory: whoever writes to such a file changes the array while it is used.

    map_array(path)      the array of an .npy file
    change_of(array)     what has happened to its file since then, in words

A mapped file that has become shorter ends the process with SIGBUS when the missing bytes are read. Where nobody else
handles that signal, it ends with a sentence.
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
        """What has happened to the file since then, in words; empty where nothing has."""
        now = os.fstat(self.file.fileno())  # of this very file, even if another has taken its name
        if now.st_size != self.size:
            return f"{self.path} had {self.size:,} bytes when it was opened, and has {now.st_size:,} now"
        return f"{self.path} was written to after it was opened" if now.st_mtime_ns != self.time else ""


_opened: weakref.WeakKeyDictionary[mmap.mmap, _Opened] = weakref.WeakKeyDictionary()


def map_array(path: Path) -> NDArray[Any]:
    """Map the array of an .npy file, read-only.

    As long as it is mapped, a shared lock on the file tells others that it is in use.
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
    if mapping is None:  # an array of no axes
        file.close()
        return array
    _opened[mapping] = _Opened(file, path, status.st_size, status.st_mtime_ns)
    weakref.finalize(mapping, file.close)
    _explain_bus_errors()
    return array


def change_of(array: NDArray[Any]) -> str:
    """What has happened to the file behind a mapped array, or a view of one, in words; empty where nothing has."""
    mapping = _mapping(array)
    opened = None if mapping is None else _opened.get(mapping)
    return "" if opened is None else opened.change()


def is_in_use(path: Path) -> bool:
    """Whether any process has mapped this file; where the system cannot tell, nobody has."""
    if fcntl is None:
        return False
    with path.open("rb+") as file:
        return not _lock(file, fcntl.LOCK_EX)


def _lock(file: BinaryIO, kind: int) -> bool:
    """Lock a file in this way until it is closed; False where another has locked it in a way that forbids it."""
    try:
        fcntl.flock(file.fileno(), kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return True
    return True


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapping that an array is a view of."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


@functools.cache
def _explain_bus_errors() -> Any:
    """Let SIGBUS end the process with a sentence instead of in silence, unless somebody handles it already.

    Python runs its own handlers between two of its instructions, and none comes after one that faults. So the C
    library is given a function of ctypes, which it calls at once. It is returned, so that it is not collected.
    """
    if not hasattr(signal, "SIGBUS"):
        return None
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p

    def explain(number: int) -> None:
        changes = [change for opened in list(_opened.values()) if (change := opened.change())]
        why = "; ".join(changes) or "a file that is mapped into memory could not be read: look after the disk"
        os.write(2, f"likewise: the data cannot be read any more: {why}\n".encode(errors="backslashreplace"))
        os._exit(1)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(explain)
    before = library.signal(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    if before:  # of faulthandler, say
        library.signal(signal.SIGBUS, before)
    return handler
