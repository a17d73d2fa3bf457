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
from glassformer.notes.note import Erratum, Note, place
from glassformer.report.terminal import show

__all__ = ["notes", "on_page_markdown", "settings"]

_WIDTH: Final = 84  # columns of a worked example
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
    """Walk through the rows of the notes: a table of all, then each with its idea, formula, code, errata and work."""
    listed = [
        (str(n), f"[{_plain(note.title)}](#row-{n})", _plain(note.sources), _codes(note), _erring(note))
        for n, note in NOTES.items()
    ]
    table = _table(("row", "part", "from", "in the code", "erratum in"), listed)
    return "\n\n".join([table, *("\n\n".join(_parts(note)) for note in NOTES.values())])


def _parts(note: Note) -> Iterator[str]:
    yield f"## {note.number}. {_plain(note.title)} {{#row-{note.number}}}"
    yield _plain(note.idea)
    yield f"```text\n{note.formula}\n```"
    places = ", ".join(_place(thing) for thing in note.code)
    yield f"From {_plain(note.sources)}. In the code: {places}."
    for erratum in note.errata():
        yield _box(f'!!! warning "Erratum in notes {erratum.source}"', _correction(erratum))
    work = "\n".join(_drawn(part) for part in note.work())
    yield _box(f'??? example "The numbers: glassformer notes {note.number}"', f"```text\n{work.rstrip()}\n```")


def _correction(erratum: Erratum) -> str:
    told = (("The notes print", erratum.printed), ("Right is", erratum.right), ("Because", erratum.because))
    return "\n\n".join(f"**{label}** {_plain(text)}" for label, text in told)


def _drawn(part: RenderableType) -> str:
    """Draw a part of the work as the terminal would."""
    console = Console(file=StringIO(), width=_WIDTH, highlight=False, markup=False, color_system=None)
    show(console, part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _codes(note: Note) -> str:
    return ", ".join(f"`{thing}`" for thing in dict.fromkeys(place(thing).split()[1] for thing in note.code))


def _erring(note: Note) -> str:
    return ", ".join(dict.fromkeys(erratum.source for erratum in note.errata()))


def _place(thing: Any) -> str:
    """Say where a thing is, and lead to the reference where that has it."""
    where, name = place(thing).split()
    module = "glassformer." + where.partition(".py")[0].replace("/", ".")
    public = getattr(glassformer, name.partition(".")[0], None)
    known = public is not None and public.__module__ == module  # and not another of the same name
    return f"`{where}` " + (f"[`{name}`](reference.md#glassformer.{name})" if known else f"`{name}`")


def _box(head: str, body: str) -> str:
    return head + "\n\n" + "\n".join(f"    {line}".rstrip() for line in body.splitlines())


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
