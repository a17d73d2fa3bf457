"""What a user can do wrong, as exceptions: one sentence that names the thing, the place and the remedy.

GlassformerError
├── ConfigError      a setting that does not exist or cannot have that value
├── ModelFileError   a model folder that is missing, damaged or not ours
├── AddressError     a tensor address that names nothing
└── UsageError       words on the command line that make no sense together
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["AddressError", "ConfigError", "GlassformerError", "ModelFileError", "UsageError", "nearest"]


class GlassformerError(Exception):
    """A mistake that the user can mend; the command line prints it in one line and ends with code 2."""


class ConfigError(GlassformerError):
    """A setting that does not exist or cannot have that value."""


class ModelFileError(GlassformerError):
    """A model folder that is missing, damaged or not ours."""


class AddressError(GlassformerError):
    """A tensor address that names nothing."""


class UsageError(GlassformerError):
    """Words on the command line that make no sense together."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word is closest to a mistyped one, as the end of an error message."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(choices)}"
