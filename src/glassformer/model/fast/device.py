"""This machine: the device that a model computes on, by name, the name of its CPU, and its C library's allocator."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from pathlib import Path
from typing import Final

import torch

from glassformer.errors import ConfigError

# mallopt's settings (malloc.h): return no free memory to the kernel; take no block straight from it.
_NEVER_TRIM: Final = (-1, -1)
_NEVER_MMAP: Final = (-4, 0)


def find_device(name: str) -> torch.device:
    """Return the device called `name`, or for `auto` the best available; raise if it is not available."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name}: no such device; known: auto, cpu, cuda, mps") from None
    missing = {"cuda": not torch.cuda.is_available(), "mps": not torch.backends.mps.is_available()}
    if missing.get(device.type, False):
        raise ConfigError(f"device={name} is not available here; device=auto selects the best that is")
    return device


def cpu_name() -> str:
    """Return the CPU's model name, or its architecture where the system does not report one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def keep_large_blocks() -> bool:
    """Make glibc reuse large blocks for the rest of this process; return whether it accepted.

    A training step asks for the same blocks again and again; glibc returns them to the kernel, and page faults then
    take about a sixth of the time on a CPU. C libraries other than glibc are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(*setting) for setting in (_NEVER_TRIM, _NEVER_MMAP))
