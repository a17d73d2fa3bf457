"""How a row looks in the terminal: title, idea, formula, work, errata, place in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from glassformer.notes.note import Erratum, Note, place

_CREDITS: Final = (
    ("000", "handwriting after chapter 12 of Understanding Deep Learning"),
    ("001", "slides by DeepLearning.AI"),
    ("002", "handwriting after StatQuest"),
    ("003", "slides of HHU Düsseldorf (hhu.de)"),
    ("004", "slides in French, with pictures by Jay Alammar"),
    ("paper", "Vaswani et al. 2017, Attention Is All You Need"),
)


def cover(count: int, total: int) -> RenderableType:
    """Say what is about to be walked through and where it comes from."""
    rows = f"{total} rows" if count == total else f"{count} of {total} rows"
    text = (
        f"{rows} on one system: the encoder-decoder Transformer, part by part, as five sets of lecture notes and one"
        " paper describe it. Where nothing else is said, numbers come from small models with random weights, run just"
        " now by the code named at the foot of each row: their arithmetic is that of a trained model."
    )
    sources = Table.grid(padding=(0, 2, 0, 0))
    for name, credit in _CREDITS:
        sources.add_row(Text(name, style="bold"), Text(credit, style="dim"))
    return Group(Text(text), Padding(sources, (1, 0, 0, 2)))


def page(note: Note) -> RenderableType:
    """Lay out one row; its numbers are computed now."""
    return Group(*_parts(note))


def _parts(note: Note) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text.assemble((f"{note.number}  {note.title}", "bold")), align="left", style="dim")
    yield Text(f"From {note.sources}.", style="dim")
    yield Padding(Text(note.idea), (1, 0, 1, 0))
    yield Padding(Text(note.formula, style="bold green"), (0, 0, 1, 4))
    yield from (Padding(part, (0, 0, 1, 2)) for part in _paragraphs(note.work()))
    yield from (_correction(erratum) for erratum in note.errata())
    code = Table.grid(padding=(0, 2, 0, 0))
    for number, thing in enumerate(note.code):
        code.add_row(Text("" if number else "In the code", style="dim"), Text(place(thing)))
    yield code


def _paragraphs(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    return (Text(part) if isinstance(part, str) else part for part in parts)


def _correction(erratum: Erratum) -> RenderableType:
    lines = Table.grid(padding=(0, 1, 0, 0))
    lines.add_column(style="bold", no_wrap=True)
    for label, text in (
        ("The notes print", erratum.printed),
        ("Right is", erratum.right),
        ("Because", erratum.because),
    ):
        lines.add_row(label, Text(text))
    title = Text(f"Erratum in notes {erratum.source}", style="bold yellow")
    return Padding(Panel(lines, title=title, title_align="left", border_style="yellow", box=box.HEAVY), (0, 0, 1, 0))
