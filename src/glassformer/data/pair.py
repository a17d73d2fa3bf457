"""A sentence pair, and where it came from."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple


class Pair(NamedTuple):
    """A source sentence, its translation, and the place where they stand."""

    src: str
    tgt: str
    file: str
    line: int  # counted from 1


def excerpt(text: str, length: int = 80) -> str:
    """Show the beginning of a text; what a terminal might obey, or not show at all, is escaped."""
    beginning = text[:length]
    if not beginning.isprintable():
        beginning = "".join(map(_legible, beginning))
    return beginning + "…" if len(text) > length else beginning


def _legible(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":  # French is full of non-breaking spaces
        return character
    return character.encode("unicode_escape").decode()
