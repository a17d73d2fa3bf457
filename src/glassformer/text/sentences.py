"""Split a text into sentences and the white space between them; joined again, they are the text.

sentencex finds sentence ends in many languages; its errors in French and English are corrected here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import sentencex  # type: ignore[import-untyped] # compiled, without stubs

_DEFAULT_LANGUAGE: Final = "en"
_WINDOW: Final = 2000  # characters: sentencex takes quadratic time where quotes are never closed

# sentencex panics on wide white space before a full stop and on lone surrogates; a space has the same length.
_UNSAFE: Final = re.compile("[\ud800-\udfff]|[^\\S ]")
_LINE_BREAKS: Final = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")

# Abbreviations that do not end a sentence: titles, and words that are followed by a number.
_TITLES: Final = {
    "fr": re.compile("MM?|Mr|Mmes?|Mlles?|Me|Mgr|Drs?|Pr|Prof|Ste?s?|Sté|Cie|Ph|bd|boul|Rép|dém|c\\.-à-d"),
    "en": re.compile("M[rst]|Mrs|Dr|Prof|St|Capt|Gen|Col|Lt|Sgt|Rev|Hon|Sen|Rep|Gov|Messrs|Ph|vs"),
}
_COUNTED: Final = {
    "fr": re.compile("janv|févr?|avr|juill?|sept|oct|nov|déc|h|no?|vol|pp?|art|al|chap|fig|env|[Tt]él|[Rr]éf"),
    "en": re.compile("Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec|nos?|vol|pp?|art|chap|fig|sec|ch|approx"),
}
_INITIALS: Final = re.compile(r"(?:\w[’'])?(?:[^\W\d_]\.-?)*[^\W\d_]\.")  # M., J.-C., l'O.N.U.
_LONGEST_WORD: Final = 40  # characters; longer words are not abbreviations

# The best places to cut a long sentence: after a clause, a comma, a space, and never inside a character.
_PLACES: Final = (
    re.compile(r"[;:!?…。！？；：)»”—–][\"')»”]*(?=\s)|[。！？；：]|[.!?;:](?=\s)"),
    re.compile(r"[,،、，](?=\s)|[、，]"),
    re.compile(r"\s+"),
)
_CHARACTER: Final = re.compile("(?![\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff])(?<!\u200d)")


def split_sentences(text: str, language: str = "") -> list[str]:
    """Return the sentences of a text and the white space around and between them; `"".join` restores the text.

    A sentence neither starts nor ends with white space, and contains no line break.
    """
    spans: list[str] = []
    start = 0
    for gap in _LINE_BREAKS.finditer(text):
        spans += _split_line(text[start : gap.start()], language)
        spans.append(gap[0])
        start = gap.end()
    spans += _split_line(text[start:], language)
    return spans


def split_space(text: str) -> list[str]:
    """Return a text without the white space at its ends, and that white space before and behind it, if any."""
    core = text.strip()
    start = text.find(core)
    return [span for span in (text[:start], core, text[start + len(core) :]) if span]


def cut_sentence(sentence: str, n_parts: int) -> list[str]:
    """Cut a long sentence into about `n_parts` parts of similar length, at the best places nearby.

    A sentence of two characters or more is cut into at least two parts.
    """
    assert n_parts > 1
    size = len(sentence) / n_parts
    cuts = {_best_place(sentence, round(size * number), int(size / 3)) for number in range(1, n_parts)}
    inner = sorted(cuts - {0, len(sentence)}) or [len(sentence) // 2]
    ends = [*inner, len(sentence)]
    return [sentence[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _best_place(sentence: str, target: int, slack: int) -> int:
    for place in (*_PLACES, _CHARACTER):
        found = (match.end() for match in place.finditer(sentence, max(target - slack, 0), target + slack + 1))
        nearest = min(found, key=lambda end: abs(end - target), default=None)
        if nearest is not None:
            return nearest
    return target


def _split_line(line: str, language: str) -> Iterator[str]:
    """Split a single line."""
    code = re.split("[-_]", language)[0].lower() or _DEFAULT_LANGUAGE
    start = 0
    for end in _ends(line, code):
        yield from split_space(line[start:end])
        start = end


def _ends(line: str, code: str) -> Iterator[int]:
    """Yield the ends of the sentences of a line, in order."""
    safe = _UNSAFE.sub(" ", line)
    start = 0
    while len(safe) - start > _WINDOW:
        *ends, stop = accumulate(map(len, sentencex.segment(code, safe[start : start + _WINDOW])), initial=start)
        yield from (end for end in ends[1:] if not _goes_on(safe, end, code))
        start = ends[-1] if ends[-1] - start > _WINDOW // 2 else stop  # the last sentence continues in the next window
    ends = list(accumulate(map(len, sentencex.segment(code, safe[start:])), initial=start))
    yield from (end for end in ends[1:-1] if not _goes_on(safe, end, code))
    yield len(line)


def _goes_on(line: str, end: int, code: str) -> bool:
    """Return whether the sentence continues after an end that sentencex found."""
    before, behind = line[max(end - _LONGEST_WORD, 0) : end], line[end]
    word = before.rstrip()
    if before == word:
        return word.isascii()  # no space after a full stop, as in example.com; but 。 needs none
    word = word.split(" ")[-1].lstrip("([\"'«“‘-")
    if not word.endswith("."):
        return False
    if word[:-1].isdigit() and line[:end].strip() == word:  # 1. before a list item
        return True
    if code == "fr" and _INITIALS.fullmatch(word):
        return behind.isupper() or behind.isdigit() or len(word) > 2
    is_title = code in _TITLES and _TITLES[code].fullmatch(word[:-1])
    return bool(is_title or (behind.isdigit() and code in _COUNTED and _COUNTED[code].fullmatch(word[:-1])))
