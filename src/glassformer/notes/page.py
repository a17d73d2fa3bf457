"""How a row looks in the terminal: title, prose, formulas, pictures, slips and places in the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, Markdown, TableElement
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from glassformer.notes.note import Note, place
from glassformer.report.terminal import table

THEME: Final = Theme({"markdown.code": "cyan", "markdown.block_quote": "none"})  # no background, no magenta


class _Formula(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Padding(Text(self.text.plain.rstrip(), style="bold green"), (0, 0, 0, 4))


class _Slip(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = Text("A common slip", style="bold yellow")
        yield Panel(self.elements, title=title, title_align="left", border_style="yellow", box=box.HEAVY)


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None
        assert self.header.row is not None
        assert self.body is not None
        head, *rows = ([cell.content.plain for cell in row.cells] for row in (self.header.row, *self.body.rows))
        yield Padding(table(head if any(head) else (), rows), (0, 0, 0, 2))


class _Prose(Markdown):
    elements = {**Markdown.elements, "code_block": _Formula, "blockquote_open": _Slip, "table_open": _Table}  # noqa: RUF012


def cover(count: int, total: int) -> RenderableType:
    """Say what the rows are about and where their numbers come from."""
    rows = f"{total} rows" if count == total else f"{count} of {total} rows"
    return Text(
        f"{rows} that take apart the Transformer of Attention Is All You Need (Vaswani et al. 2017). Unless a row says"
        " otherwise, its numbers come from small models with random weights, run just now by the code named at the foot"
        " of the row. The arithmetic is that of a trained model."
    )


def page(note: Note) -> RenderableType:
    """Lay out one row; its numbers are computed now."""
    return Group(*_parts(note))


def _parts(note: Note) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text(f"{note.number}  {note.title}", style="bold"), align="left", style="dim")
    yield Padding(Text(note.sources, style="dim"), (0, 0, 1 if note.sources else 0, 0))
    for part in note.parts():
        yield Padding(_Prose(part) if isinstance(part, str) else part, (0, 0, 1, 0 if isinstance(part, str) else 2))
    code = Table.grid(padding=(0, 2, 0, 0))
    for number, name in enumerate(note.code):
        code.add_row(Text("" if number else "In the code", style="dim"), Text(place(name)))
    yield code
