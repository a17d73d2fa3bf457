"""One row of the notes: Markdown with slots, the function that fills them, and places in the code."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from rich.console import RenderableType

import glassformer
from glassformer.report.terminal import tiny

Slots = dict[str, Any]  # name in the Markdown -> number, text, or something that rich draws

ROWS: Final = Path(__file__).parent / "rows"
# A slot that nobody fills is an error. Rows are Markdown, so nothing is escaped.
MARKDOWN: Final = Environment(
    loader=FileSystemLoader(ROWS), undefined=StrictUndefined, autoescape=select_autoescape(default_for_string=False)
)
MARKDOWN.filters |= {
    "comma": lambda value: f"{value:,}",
    "digits": lambda value, digits: f"{value:.{digits}f}",
    "percent": lambda value: f"{value:.0%}",
    "tiny": tiny,
}


@dataclass(frozen=True)
class Note:
    """One part of the Transformer: what it is for, and how the code computes it."""

    number: int
    title: str
    sources: str  # where to read more; may be empty
    code: tuple[str, ...]  # "model.layers:Embedding"
    body: str  # Markdown with slots
    work: Callable[[], Slots]

    def parts(self) -> Iterator[RenderableType]:
        """Compute the numbers anew and yield the row in reading order: Markdown as str, pictures and tables."""
        slots = self.work()
        drawn = {name: f"\0{name}\0" for name, value in slots.items() if hasattr(value, "__rich_console__")}
        text = MARKDOWN.from_string(self.body).render({**slots, **drawn})
        for number, piece in enumerate(text.split("\0")):  # every second piece is the name of a picture
            if number % 2:
                yield slots[piece]
            elif piece.strip():
                yield piece.strip()


def read_note(number: int, work: Callable[[], Slots]) -> Note:
    """Read a row; its file is named after its number and the function that computes its numbers."""
    text = (ROWS / f"{number:02}-{work.__name__.replace('_', '-')}.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    front = dict(line.split(": ", 1) for line in head.splitlines())
    return Note(number, front["title"], front.get("sources", ""), tuple(front["code"].split(", ")), body, work)


def place(name: str) -> str:
    """Return where "model.layers:Embedding" is defined: file in the package, line and name."""
    thing = pkgutil.resolve_name(f"glassformer.{name}")
    thing = inspect.unwrap(getattr(thing, "fget", thing))  # a property is where its getter is
    file = inspect.getsourcefile(thing)
    assert file is not None, f"{thing} has no source file"
    lines, first = inspect.getsourcelines(thing)
    above = next(n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "class ")))  # decorators
    path = Path(file).relative_to(Path(glassformer.__file__).parent).as_posix()
    return f"{path}:{first + above} {thing.__qualname__}"
