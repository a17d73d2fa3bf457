"""Data augmentation: typing noise, invented names, placeholders, joined neighbours.

All are pure functions of texts and random numbers. Noise is applied to the source only: a carelessly typed
sentence still has a careful translation. Each choice is made once per sentence, because people who omit one accent
omit them all.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glassformer.config import NoiseConfig
from glassformer.text.vocab import PLACEHOLDERS

N_DRAWS: Final = 5  # numbers in [0, 1) that `add_noise` takes: stop, case, apostrophes, spaces, accents

_APOSTROPHES: Final = str.maketrans("'’", "’'")
_SPACES: Final = ("", " ", "\u00a0", "\u202f")  # before ? ! : ; people type none, a plain, a hard or a narrow one
# Only after a word or a closing mark and before a gap, so that 10:30 and http://x stay whole.
_PUNCTUATION: Final = re.compile(r"""(?<=[\w)\]»"'’%])([ \u00a0\u202f]?)([?!:;]+)(?=\s|$)""")
_STOP: Final = re.compile(r"(?<![.。．])\s*[.。．।]\s*$")


_WORD: Final = re.compile(r"\w+")
# What goes through a translation as it is: URLs, e-mail addresses, tags, format strings, numbers, names.
_KEPT: Final = re.compile(
    r"(?:https?://|www\.)\S*\w|[\w.+-]+@[\w-]+\.\w+|</?[a-zA-Z][^<>]*>|%\d*\$?[sd]|\{\w*\}|\d+|[^\W\d_]\w*"
)
_WRAPPED: Final = 0.3  # share of masked words that keep their text between two symbols
_ALONE: Final = 0.1  # share of masked pairs with a symbol before or after all text
# Syllables of invented names: they sound like many languages, and there are enough of them that most names are new.
_BEGINS: Final[list[str]] = [
    *[""] * 3, *"bcdfghjklmnprstvwyz", *"lmnrst", "br", "ch", "dr", "gr", "kl", "ph", "qu", "sh", "st", "tr",
]  # fmt: skip
_MIDDLES: Final[list[str]] = [*"aeiou" * 4, *"yéèëïôöüâîåä", "é", "ai", "ia", "ie", "ea", "ou", "au", "ei", "io", "oé"]
_ENDS: Final[list[str]] = [
    *[""] * 6, *"lnrsxmdz", "ck", "nd", "th", "ne", "lle", "tte", "rd", "ng", "nie", "line", "rie", "die", "phine",
    "son", "nez", "los", "rius", "ric", "tin", "lan", "mon", "bel", "na", "to", "ska", "berg",
]  # fmt: skip


def _plain_letters() -> dict[int, str]:
    """Return the Latin letters with accents and their base letters, and the ligatures œ and æ."""
    table = {ord(joined): plain for joined, plain in zip("œŒæÆ", ("oe", "OE", "ae", "AE"), strict=True)}
    for code in (*range(0x00C0, 0x0250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFD", chr(code))[0]
        if base != chr(code):
            table[code] = base
    return table


_PLAIN: Final = _plain_letters()


def add_noise(text: str, draws: Sequence[float] | NDArray[np.float64], noise: NoiseConfig) -> str:
    """Return `text` with typing noise chosen by `N_DRAWS` numbers in [0, 1); it is never empty."""
    stop, case, apostrophes, spaces, accents = draws
    if spaces < noise.spaces:
        text = respace(text, _SPACES[int(spaces / noise.spaces * len(_SPACES))])
    if apostrophes < noise.apostrophes:
        text = swap_apostrophes(text)
    if stop < noise.no_stop:
        text = drop_stop(text)
    if accents < noise.no_accents:
        text = drop_accents(text)
    if case < noise.lower:
        return text.lower()
    if case < noise.lower + noise.upper:
        return text.upper()
    return text


def rename(src: str, tgt: str, draw: float, names: Sequence[str] = ()) -> tuple[str, str]:
    """Replace each name and number that both texts share, so that it can only be copied.

    Numbers are invented, and so are names unless `names` are given.
    """
    shared = {word for word in _WORD.findall(src) if _is_name(word) or word.isdecimal()} & {*_WORD.findall(tgt)}
    if not shared:
        return src, tgt
    draws = random.Random(draw)  # noqa: S311 - no secret
    new = {word: _number(word, draws) if word.isdecimal() else _name(draws, names) for word in sorted(shared)}
    src, tgt = (_WORD.sub(lambda found: new.get(found[0], found[0]), text) for text in (src, tgt))
    return src, tgt


def mask(src: str, tgt: str, draw: float) -> tuple[str, str]:
    """Replace some of what both texts share by placeholder symbols, or put symbols around it as tags are.

    Names, numbers, URLs, e-mail addresses, format strings and tags count that stand once in each text. A symbol may
    also be put before or after both texts, like a tag that belongs to no word.
    """
    draws = random.Random(draw)  # noqa: S311 - no secret
    ours, theirs = (Counter(_KEPT.findall(text)) for text in (src, tgt))
    once = [word for word, count in ours.items() if count == theirs[word] == 1 and not _is_plain(word)]
    symbols = draws.sample(PLACEHOLDERS, len(PLACEHOLDERS))
    new = {}
    for word in draws.sample(once, min(len(once), draws.choice((1, 1, 2, 3)))):
        new[word] = symbols.pop() + word + symbols.pop() if draws.random() < _WRAPPED else symbols.pop()
    src, tgt = (_KEPT.sub(lambda found: new.get(found[0], found[0]), text) for text in (src, tgt))
    if draws.random() < _ALONE or not new:
        symbol, is_first = symbols.pop(), draws.choice((True, False))
        src, tgt = (f"{symbol} {text}" if is_first else f"{text} {symbol}" for text in (src, tgt))
    return src, tgt


def _is_plain(word: str) -> bool:
    return word.isalpha() and not _is_name(word)


def _is_name(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and word[1:].islower()


def _name(draws: random.Random, names: Sequence[str]) -> str:
    if names:
        return draws.choice(names)
    parts = [draws.choice(_BEGINS) + draws.choice(_MIDDLES) for _ in range(draws.choice((1, 1, 2, 2, 3)))]
    return ("".join(parts) + draws.choice(_ENDS)).capitalize().ljust(2, "a")


def _number(word: str, draws: random.Random) -> str:
    return "".join(draws.choice("123456789" if not place else "0123456789") for place in range(len(word)))


def drop_stop(text: str) -> str:
    """Remove the final full stop; ellipses, question and exclamation marks stay."""
    return _STOP.sub("", text) or text


def swap_apostrophes(text: str) -> str:
    """Write ' as ’ and ’ as '."""
    return text.translate(_APOSTROPHES)


def respace(text: str, space: str) -> str:
    """Put `space` before each ? ! : ; that ends a word."""
    return _PUNCTUATION.sub(lambda found: space + found[2], text)


def drop_accents(text: str) -> str:
    """Remove the accents of Latin letters; the marks of other scripts stay."""
    return unicodedata.normalize("NFC", text).translate(_PLAIN)


def join_texts(texts: Sequence[str]) -> str:
    """Concatenate sentences, with a space unless the script has none."""
    joined = texts[0]
    for left, right in pairwise(texts):
        joined += right if unicodedata.east_asian_width(left[-1:] or " ") in "WF" else f" {right}"
    return joined


def runs(glued: NDArray[np.bool_]) -> list[range]:
    """Split positions into runs; a run starts at each position that is not `glued` to the one before."""
    first = np.flatnonzero(~glued | (np.arange(len(glued)) == 0))
    return [range(start, end) for start, end in pairwise([*first.tolist(), len(glued)])]
