"""The Transformer in 24 rows: Markdown in `rows/`, and functions that compute its numbers with the real modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.constrain import Constrain

from glassformer.errors import UsageError
from glassformer.notes import attention, decoding, layers, whole, words
from glassformer.notes.note import Note, read_note
from glassformer.notes.page import THEME, cover, page
from glassformer.report import terminal

# In the order of the rows. A function returns the slots of the file in `rows/` that has its name.
_WORK: Final = (
    *(words.embedding, words.positions, words.word_order),
    *(attention.query_key_value, attention.attention, attention.scaling, attention.worked_example),
    *(attention.all_words, attention.soft_look_up, attention.heads),
    *(layers.residual, layers.norms, layers.norm_in_numbers, layers.feed_forward, layers.stack),
    *(decoding.decoder, decoding.cross_attention, decoding.output, decoding.start, decoding.greedy_and_beam),
    *(whole.parallel, whole.pocket, whole.sizes, whole.jane),
)
NOTES: Final[dict[int, Note]] = {number: read_note(number, work) for number, work in enumerate(_WORK, 1)}
TOUR: Final = (3, 7, 10, 13, 21)  # order, weights, heads, a slip to learn from, and why all this is fast

_WIDEST: Final = 88  # columns; longer lines are hard to read


def show(rows: Sequence[int], console: Console) -> None:
    """Print rows of the notes, with a cover if there are several."""
    if missing := sorted(set(rows) - set(NOTES)):
        raise UsageError(f"the notes have no row {missing[0]}: choose from 1 to {len(NOTES)}")
    with console.use_theme(THEME):
        if len(rows) > 1:
            terminal.show(console, Constrain(cover(len(rows), len(NOTES)), _WIDEST))
        for row in rows:
            terminal.show(console, Constrain(page(NOTES[row]), _WIDEST))
