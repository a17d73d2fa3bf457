"""What a user can do wrong, as exceptions: one sentence that names the thing, the place and the remedy.

GlassformerError
├── ConfigError      a setting that does not exist or cannot have that value
├── DataError        a corpus that cannot be read, or a line of it that is wrong
├── ModelFileError   a model folder that is missing, damaged or not ours
├── AddressError     a tensor address that names nothing
├── RunError         a training run that cannot go on, or not from here
├── Stopped          a run that was asked to stop, and did, with everything saved
└── UsageError       words on the command line that make no sense together
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GlassformerError(Exception):
    """A mistake that the user can mend; the command line prints it in one line and ends with its exit code."""

    exit_code = 2


class ConfigError(GlassformerError):
    """A setting that does not exist or cannot have that value."""


class DataError(GlassformerError):
    """A corpus that cannot be read, or a line of it that is wrong."""


class ModelFileError(GlassformerError):
    """A model folder that is missing, damaged or not ours."""


class AddressError(GlassformerError, KeyError):
    """A tensor address that names nothing; a KeyError too, so that `in` and `get` work on a trace."""

    __str__ = Exception.__str__  # KeyError's own puts quotes around the sentence


class RunError(GlassformerError):
    """A training run that cannot go on, or not from here."""


class Stopped(GlassformerError):  # noqa: N818 - no error, but an end
    """A run that was asked to stop, and did, with everything saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal  # what a shell expects of a process that a signal ended


class UsageError(GlassformerError):
    """Words on the command line that make no sense together."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word is closest to a mistyped one, as the end of an error message."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(choices)}"
