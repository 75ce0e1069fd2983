"""Let glibc's malloc keep the memory that tensors free.

By default glibc maps every large buffer when it is allocated and unmaps it when it is freed. Training allocates the
same large buffers at every step, so the kernel has to clear the same pages again and again: some 28,000 page faults a
step. If malloc keeps the memory, the pages are used again without clearing, for about a tenth more peak memory.

Set LIKEWISE_MALLOC=system to leave malloc alone. Glibc's own settings (MALLOC_*_, GLIBC_TUNABLES) also take
precedence, and other C libraries and operating systems are never touched.
"""

import ctypes
import os

# The numbers of mallopt's parameters in glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory, unless the environment forbids it, and return whether it was told."""
    wanted = os.environ.get("LIKEWISE_MALLOC", "")
    if wanted not in ("", "system"):
        raise ValueError(f"LIKEWISE_MALLOC must be empty or system, got {wanted!r}")
    if wanted or _is_configured():
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - only glibc has it
    except (OSError, AttributeError, TypeError):  # Windows, macOS, musl
        return False
    # Never map a buffer separately, however large it is, and never shrink the heap.
    return bool(library.mallopt(M_MMAP_MAX, 0)) and bool(library.mallopt(M_TRIM_THRESHOLD, -1))


def _is_configured() -> bool:
    """Return whether the user has configured glibc's malloc by its environment variables."""
    own = any(name.startswith("MALLOC_") and name.endswith("_") for name in os.environ)
    return own or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
