"""The lecture notes, row by row, in the terminal: ideas and formulas with numbers that the real modules compute."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from glassformer.errors import UsageError
from glassformer.notes import decoding, layers, reading, scores, whole, words
from glassformer.notes.note import Note
from glassformer.notes.page import cover, page
from glassformer.report.terminal import show

NOTES: Final[dict[int, Note]] = {
    note.number: note for rows in (words, scores, reading, layers, decoding, whole) for note in rows.NOTES
}
TOUR: Final = (3, 7, 10, 13, 21)  # order, weights, heads, a slip to learn from, and why all this is fast

_WIDEST: Final = 88  # columns; longer lines are hard to read


def show_notes(row: int | None, tour: bool) -> None:
    """Print one row, the five of the tour, or all 24."""
    if row is not None and tour:
        raise UsageError(f"row {row} and --tour: ask for one of them")
    if row is not None and row not in NOTES:
        raise UsageError(f"there is no row {row}; rows go from 1 to {len(NOTES)}")
    console = Console(highlight=False)
    console.width = min(console.width, _WIDEST)
    chosen = TOUR if tour else tuple(NOTES) if row is None else (row,)
    if row is None:
        show(console, cover(len(chosen), len(NOTES)))
    for number in chosen:
        show(console, page(NOTES[number]))
    if tour:
        show(console, Text("\nglassformer notes 7 shows one row, glassformer notes all of them.", style="dim"))
