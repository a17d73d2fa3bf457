"""A sentence pair and its origin."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple


class Pair(NamedTuple):
    """A source sentence, its translation, and their place in the corpus."""

    src: str
    tgt: str
    file: str
    line: int  # counted from 1


def excerpt(text: str, length: int = 80) -> str:
    """Return the beginning of a text, with control and invisible characters escaped."""
    beginning = text[:length]
    if not beginning.isprintable():
        beginning = "".join(map(_legible, beginning))
    return beginning + "…" if len(text) > length else beginning


def _legible(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":  # French is full of non-breaking spaces
        return character
    return character.encode("unicode_escape").decode()
