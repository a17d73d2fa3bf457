"""The C library's allocator: glibc returns large blocks to the kernel and pays for each page when it asks again."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

# mallopt's settings (malloc.h): return no free memory to the kernel; take no block straight from it.
_NEVER_TRIM: Final = (-1, -1)
_NEVER_MMAP: Final = (-4, 0)


def keep_large_blocks() -> bool:
    """Make glibc reuse large blocks for the rest of this process; return whether it accepted.

    A training step asks for the same blocks again and again; without this, page faults take
    about a sixth of its time on a CPU. C libraries other than glibc are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*setting) for setting in (_NEVER_TRIM, _NEVER_MMAP))
