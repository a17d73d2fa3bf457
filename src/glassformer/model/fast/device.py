"""Where a model computes, by name."""

from __future__ import annotations

import torch

from glassformer.errors import ConfigError


def find_device(name: str) -> torch.device:
    """Give the device of a name, `auto` being the best there is; one that is not there is an error."""
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
        raise ConfigError(
            f"device={name}: this machine or this build of torch has none; device=auto takes what there is"
        )
    return device
