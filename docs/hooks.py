"""What the site takes from the code while it is built, and so cannot go stale: the rows of the notes, the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from typing import Any, Final

from rich.console import Console, RenderableType

import glassformer
import glassformer.config
from glassformer.config import Settings
from glassformer.notes import NOTES
from glassformer.notes.note import Note, place
from glassformer.report.terminal import show

__all__ = ["notes", "on_page_markdown", "settings"]

_WIDTH: Final = 84  # columns of a worked example
_SLIP: Final = re.compile(r"^>.*(?:\n>.*)*", re.MULTILINE)
_SPECIAL: Final = re.compile(r"([\\*_\[\]|])")
_SETTINGS: Final = re.compile(r"^<!-- settings: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what a page asks for in the place of its comments; mkdocs calls this for every page."""
    if "<!-- notes -->" in markdown:
        markdown = markdown.replace("<!-- notes -->", notes())
    return _SETTINGS.sub(lambda asked: settings(getattr(glassformer.config, asked[1])), markdown)


def settings(cls: type[Settings]) -> str:
    """List the settings of a class as a table: name, type, default, meaning."""
    rows = [
        (f"`{name}`", _code(cls.__annotations__[name]), f"`{field.default!r}`", _plain(field.description or ""))
        for name, field in cls.model_fields.items()
    ]
    return _table(("setting", "type", "default", "what it is"), rows)


def notes() -> str:
    """Write out the rows of the notes, with their numbers computed now."""
    return "\n\n".join(part for note in NOTES.values() for part in _parts(note))


def _parts(note: Note) -> Iterator[str]:
    yield f"## {note.number}. {_plain(note.title)} {{#row-{note.number}}}"
    for part in note.parts():
        yield _SLIP.sub(_slip, part) if isinstance(part, str) else f"```text\n{_drawn(part)}\n```"
    yield ". ".join(filter(None, (_plain(note.sources), "In the code: " + ", ".join(map(_place, note.code)) + ".")))


def _slip(quote: re.Match[str]) -> str:
    """Turn a block quote into a box."""
    return '!!! warning "A common slip"\n\n' + re.sub(r"^>", "   ", quote[0], flags=re.MULTILINE)


def _drawn(part: RenderableType) -> str:
    """Draw a picture or table as the terminal would."""
    console = Console(file=StringIO(), width=_WIDTH, highlight=False, markup=False, color_system=None)
    show(console, part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip()


def _place(code: str) -> str:
    """Say where a class or function is, with a link if the reference has it."""
    where, name = place(code).split()
    module = "glassformer." + where.partition(".py")[0].replace("/", ".")
    public = getattr(glassformer, name.partition(".")[0], None)
    known = public is not None and public.__module__ == module  # and not another of the same name
    return f"`{where}` " + (f"[`{name}`](reference.md#glassformer.{name})" if known else f"`{name}`")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _code(annotation: str) -> str:
    """Write a type; `Literal['a', 'b']` as its words."""
    words = re.fullmatch(r"Literal\[(.+)\]", annotation)
    return ", ".join(f"`{word}`" for word in words[1].split(", ")) if words else f"`{annotation}`"


def _plain(text: str) -> str:
    """Escape what Markdown and HTML would take for theirs, but for `code`."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part[:1] == "`" else _SPECIAL.sub(r"\\\1", escape(part, False)) for part in parts)
