"""The device that a model computes on, by name, and the name of this machine's CPU."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import torch

from glassformer.errors import ConfigError


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
