"""Read files from untrusted sources: only regular files, and only up to a maximum size.

Reading a device such as /dev/zero would never end, and opening a named pipe would wait for somebody to write to it.
"""

import errno
import os
import stat
from pathlib import Path


def read_bounded(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; raise an OSError for anything else."""
    path = Path(path)
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"more than {most / 2**20:,.3g} MiB", str(path))
    return content
