"""Exceptions for mistakes that a user can fix; each message names the thing, the place and the remedy in one line.

GlassformerError
├── ConfigError      a setting that does not exist or has an invalid value
├── DataError        a corpus that cannot be read, or a line of it that is invalid
├── ModelFileError   a model folder that is missing, damaged or of another program
├── AddressError     a tensor address that does not exist
├── RunError         a training run that cannot start or continue
├── Stopped          a training run that was stopped by a signal, with its state saved
└── UsageError       arguments that contradict each other
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GlassformerError(Exception):
    """Base class; the command line prints the message in one line and ends with `exit_code`."""

    exit_code = 2


class ConfigError(GlassformerError):
    """A setting that does not exist or has an invalid value."""


class DataError(GlassformerError):
    """A corpus that cannot be read, or a line of it that is invalid."""


class ModelFileError(GlassformerError):
    """A model folder that is missing, damaged or of another program."""


class AddressError(GlassformerError, KeyError):
    """A tensor address that does not exist; also a KeyError, so that `in` and `get` work on a trace."""

    __str__ = Exception.__str__  # KeyError puts quotes around the message


class RunError(GlassformerError):
    """A training run that cannot start or continue."""


class Stopped(GlassformerError):  # noqa: N818 - an ending rather than an error
    """A training run that was stopped by a signal, with its state saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal  # the shell's convention for a process ended by a signal


class UsageError(GlassformerError):
    """Arguments that contradict each other."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word closest to a mistyped one, as the end of an error message."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(choices)}"
