"""One row of the notes as a value: the idea, the formula, the work, the errata and the place in the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

import glassformer

Shown = Sequence[RenderableType]  # a str is a paragraph


@dataclass(frozen=True)
class Erratum:
    """A place where a set of notes errs, or where a reader of two sets would stumble."""

    source: str  # 000 to 004
    printed: str
    right: str
    because: str


def _none() -> tuple[Erratum, ...]:
    return ()


@dataclass(frozen=True)
class Note:
    """One part of the Transformer, as the notes name it and as the code computes it."""

    number: int
    title: str
    sources: str  # "notes 000 and 004"; the paper, where no set of notes has the part
    idea: str
    formula: str
    code: tuple[Any, ...]  # classes and functions
    work: Callable[[], Shown]  # computes and draws, anew each time
    errata: Callable[[], tuple[Erratum, ...]] = _none


def place(thing: Any) -> str:
    """Say where a class or function is defined: file in the package, line and name."""
    thing = inspect.unwrap(getattr(thing, "fget", thing))  # a property is where its getter is
    file = inspect.getsourcefile(thing)
    assert file is not None, f"{thing} has no source file"
    lines, first = inspect.getsourcelines(thing)
    above = next(n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "class ")))  # decorators
    path = Path(file).relative_to(Path(glassformer.__file__).parent).as_posix()
    return f"{path}:{first + above} {thing.__qualname__}"
