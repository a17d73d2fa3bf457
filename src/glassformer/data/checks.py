"""Checks of one sentence pair, each a pure function of its two texts.

A check returns None or a finding: a short phrase for people, and a severity, so that the worst can be shown first.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from enum import StrEnum
from itertools import zip_longest
from typing import Final, NamedTuple, Self

from ftfy import fix_encoding
from ftfy.chardata import UTF8_CLUES

from glassformer.config import DoctorConfig
from glassformer.data.pair import excerpt


class Kind(StrEnum):
    """The kinds of findings, in the order in which they are shown, and whether such pairs are removed by default.

    Those that are almost always wrong are removed; findings that are often harmless are only reported.
    """

    meaning: str  # a short description
    is_removed: bool

    def __new__(cls, name: str, is_removed: bool, meaning: str) -> Self:
        """Make a member of a row of the table below."""
        kind = str.__new__(cls, name)
        kind._value_, kind.is_removed, kind.meaning = name, is_removed, meaning
        return kind

    DUPLICATE = "duplicate", True, "exact duplicate of an earlier pair"
    NEAR_DUPLICATE = "near-duplicate", False, "same up to case, punctuation, digits"
    OVERLAP = "overlap", True, "a side also occurs in dev or test"
    COPY = "copy", True, "target is a copy of the source"
    SHORT_COPY = "short-copy", False, "copy of a few words: names, codes"
    SWAPPED = "swapped", True, "source and target look swapped"
    WRONG_LANGUAGE = "wrong-language", True, "a side is in another language"
    MOJIBAKE = "mojibake", True, "text decoded with the wrong encoding"
    CONTROL = "control", True, "control or private-use characters"
    ODD_SPACE = "odd-space", False, "visible symbol in place of a space"
    MARKUP = "markup", False, "tags are damaged or differ"
    PLACEHOLDER = "placeholder", False, "placeholders differ"
    NUMBERS = "numbers", False, "numbers differ"
    LENGTH = "length", True, "a side is too long"
    RATIO = "ratio", True, "unusual length ratio"
    WORDLESS = "wordless", True, "a side has no letters"


REMOVED_BY_DEFAULT: Final = frozenset(kind for kind in Kind if kind.is_removed)


class Finding(NamedTuple):
    """One problem of a pair."""

    kind: Kind
    detail: str
    severity: float  # to rank findings of one kind, the worst first


def normal_form(text: str) -> str:
    """Return a text in lower case and NFKC, with a space for everything but letters and digits."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.translate(_WORD_CHARACTERS).split())


class _WordCharacters(dict[int, str]):
    """Maps characters to their normal form; filled on demand, so that each is looked up once."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_mark = unicodedata.category(character)[0] == "M"  # the vowel signs of many scripts are marks
        self[code] = character.casefold() if is_mark or character.isalnum() else " "
        return self[code]


_WORD_CHARACTERS: Final = _WordCharacters()


def check_copy(forms: tuple[str, str], config: DoctorConfig) -> Finding | None:
    """Report sides that are equal in their normal forms."""
    if forms[0] != forms[1] or not forms[0]:
        return None
    n_words = forms[0].count(" ") + 1
    kind = Kind.COPY if n_words >= config.min_copy else Kind.SHORT_COPY
    return Finding(kind, f"{n_words} word{'s' * (n_words > 1)}", len(forms[0]))


def check_length(src: str, tgt: str, config: DoctorConfig) -> Finding | None:
    """Report a side that is too long."""
    longest = max(len(src), len(tgt))
    if longest <= config.max_length:
        return None
    return Finding(Kind.LENGTH, f"{longest:,} characters", longest)


# Smaller differences in characters mean nothing: "Yes" is "C'est exact".
_MIN_DIFFERENCE: Final = 20


def check_ratio(src: str, tgt: str, usual: float, config: DoctorConfig) -> Finding | None:
    """Report an unusual length ratio; `usual` is the median ratio of the corpus, source over target."""
    expected = len(tgt) * usual
    ratio = len(src) / expected
    unevenness = max(ratio, 1 / ratio)
    if unevenness <= config.max_ratio or abs(len(src) - expected) <= _MIN_DIFFERENCE:
        return None
    longer = "source" if ratio > 1 else "target"
    return Finding(Kind.RATIO, f"{longer} {unevenness:.1f} times longer than usual", unevenness)


_LETTER: Final = re.compile(r"[^\W\d_]")


def check_wordless(src: str, tgt: str) -> Finding | None:
    """Report sides without a letter."""
    sides = [name for name, text in (("source", src), ("target", tgt)) if not _LETTER.search(text)]
    if not sides:
        return None
    return Finding(Kind.WORDLESS, " and ".join(sides), len(sides))


# C0 and C1 with DEL, line and paragraph separators, annotation marks, a byte order mark inside, private use,
# noncharacters. A tab cannot occur. Joiners, bidi marks and soft hyphens are text in some language.
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb\ufeff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"
)


def check_control(src: str, tgt: str) -> Finding | None:
    """Report characters that are not text."""
    if src.isprintable() and tgt.isprintable():
        return None
    found = _CONTROL.findall(src) + _CONTROL.findall(tgt)
    if not found:
        return None
    names = ", ".join(f"U+{ord(character):04X}" for character in sorted(set(found))[:4])
    return Finding(Kind.CONTROL, names, len(found))


# Symbols that editors show for a non-breaking space, saved as if they had been typed.
# Between two numbers or single letters it is a product.
_ODD_SPACE: Final = re.compile(r"(?<=[^\W\d_][^\W\d_])[⋅␣⎵](?=\S)|(?<=[«–—−])[⋅␣⎵]|(?<=\S)[⋅␣⎵](?=[^\W\d_]{2}|[»;:?!])")


def check_odd_spaces(src: str, tgt: str) -> Finding | None:
    """Report ⋅ or ␣ where a space belongs, as in « mot⋅: »."""
    if not any(sign in text for text in (src, tgt) if not text.isascii() for sign in "⋅␣⎵"):
        return None
    found = _ODD_SPACE.findall(src) + _ODD_SPACE.findall(tgt)
    if not found:
        return None
    return Finding(Kind.ODD_SPACE, f"{len(found)} × {' '.join(sorted(set(found)))}", len(found))


_SUSPECT: Final = re.compile(
    "[{utf8_first_of_2}][{utf8_continuation}]|[{utf8_first_of_3}{utf8_first_of_4}][{utf8_continuation}]{{2}}".format(
        **UTF8_CLUES
    )
)
_LOST: Final = "\N{REPLACEMENT CHARACTER}"


def check_mojibake(src: str, tgt: str) -> Finding | None:
    """Report UTF-8 that was decoded as something else (cafÃ© for café), and lost characters (�)."""
    if src.isascii() and tgt.isascii():
        return None
    n_lost = src.count(_LOST) + tgt.count(_LOST)
    if n_lost:
        return Finding(Kind.MOJIBAKE, f"{n_lost} × {_LOST}", n_lost)
    words = [*_misread(src), *_misread(tgt)]
    return Finding(Kind.MOJIBAKE, excerpt(", ".join(words[:3])), len(words)) if words else None


def _misread(text: str) -> list[str]:
    """Return the words that ftfy would decode again, each with its intended form."""
    if not _SUSPECT.search(text):  # ftfy's own verdict takes much longer
        return []
    words = zip_longest(text.split(), fix_encoding(text).split(), fillvalue="")
    return [f"{word} for {meant}" for word, meant in words if word != meant]


_PLACEHOLDER: Final = re.compile(
    r"""
      (?<![\d%])%(?:\d+\$|\(\w+\))?[-+\#0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[Ljzt])?[@cdeEfgGiosuxX](?!\w)  # %s
    | %\{\w+\}  # %{name}
    | \$\{\w+\}  # ${name}
    | \{\{\s?[\w.]+\s?\}\}  # {{name}}
    | \{(?:\d+|[A-Za-z_][\w.]*)?(?:![rsa])?(?::[^{}\s]*)?\}  # {name}
    | %[A-Z_]{3,}%(?!\w)  # %NAME%
    """,
    re.VERBOSE,
)


def check_placeholders(src: str, tgt: str) -> Finding | None:
    """Report placeholders such as %s and {name} that differ between the sides."""
    if not any(mark in text for text in (src, tgt) for mark in "%{"):
        return None
    return _compare(Kind.PLACEHOLDER, _PLACEHOLDER.findall(src), _PLACEHOLDER.findall(tgt))


_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)(/?)>")
_HTML: Final = re.compile(
    "a|abbr|b|bdi|bdo|big|blockquote|body|br|button|caption|center|cite|code|col|dd|del|dfn|div|dl|dt|em|font|form|h[1-6]"
    "|head|hr|html|i|iframe|img|input|ins|kbd|label|li|link|map|mark|meta|ol|option|p|pre|q|s|samp|script|select|small"
    "|span|strike|strong|style|sub|sup|table|tbody|td|textarea|tfoot|th|thead|title|tr|tt|u|ul|var|wbr",
    re.IGNORECASE,
)
_VOID: Final = re.compile("br|col|hr|img|input|link|meta|wbr", re.IGNORECASE)


class _Tag(NamedTuple):
    closes: bool
    name: str
    is_alone: bool  # <br> or <br/>

    def __str__(self) -> str:
        return f"<{'/' * self.closes}{self.name}>"


_ENTITY: Final = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_REMAINS: Final = re.compile(r"\blt/?\w+gt\b")  # &lt;b&gt; without what made it an entity


def check_markup(src: str, tgt: str) -> Finding | None:
    """Report tags and entities that differ between the sides, are unbalanced on one, or are damaged.

    <file> in a manual is a word that may be translated: a tag is markup if HTML has it or if either side closes it.
    """
    if "gt" in src or "gt" in tgt:
        remains = _REMAINS.findall(f"{src} {tgt}")
        if remains:
            return Finding(Kind.MARKUP, excerpt(f"{' '.join(remains)}: remains of <...>"), len(remains))
    if "&" in src or "&" in tgt:
        entities = _compare(Kind.MARKUP, _ENTITY.findall(src), _ENTITY.findall(tgt))
        if entities is not None:
            return entities
    if "<" not in src and "<" not in tgt:
        return None
    sides = _tags(src), _tags(tgt)
    closed = {tag.name for tags in sides for tag in tags if tag.closes or tag.is_alone}
    tags = [[tag for tag in side if _HTML.fullmatch(tag.name) or tag.name in closed] for side in sides]
    different = _compare(Kind.MARKUP, [str(tag) for tag in tags[0]], [str(tag) for tag in tags[1]])
    if different is not None:
        return different
    loose = _unbalanced(tags[0])
    if loose and loose != _unbalanced(tags[1]):
        return Finding(Kind.MARKUP, f"unbalanced {' '.join(loose)}", len(loose))
    return None


def _tags(text: str) -> list[_Tag]:
    return [
        _Tag(bool(slash), name, bool(end) or attributes.endswith("/") or bool(_VOID.fullmatch(name)))
        for slash, name, attributes, end in _TAG.findall(text)
    ]


def _unbalanced(tags: list[_Tag]) -> list[str]:
    """Return the tags without a partner, in order."""
    loose: list[str] = []
    opened: list[_Tag] = []
    for tag in tags:
        if tag.is_alone:
            continue
        if not tag.closes:
            opened.append(tag)
        elif opened and opened[-1].name == tag.name:
            opened.pop()
        else:
            loose.append(str(tag))
    return loose + [str(tag) for tag in opened]


_DIGITS: Final = re.compile(r"\d+")


def check_numbers(src: str, tgt: str) -> Finding | None:
    """Report numbers that differ.

    Only digits count, so that 1,000.5 and 1 000,5 are equal; a single digit may be spelt out on the other side.
    """
    numbers = _DIGITS.findall(src), _DIGITS.findall(tgt)
    if sorted(numbers[0]) == sorted(numbers[1]):
        return None
    digits = [sorted(str(unicodedata.digit(digit)) for number in side for digit in number) for side in numbers]
    if digits[0] == digits[1]:
        return None
    if not (digits[0] and digits[1]) and all(len(number) == 1 for side in numbers for number in side):
        return None
    return _compare(Kind.NUMBERS, *numbers)


# The checks that need nothing but the two texts; a new one is a function here and a row of `Kind`.
TEXT_CHECKS: Final = (check_mojibake, check_control, check_odd_spaces, check_markup, check_placeholders, check_numbers)


def _compare(kind: Kind, src: list[str], tgt: list[str]) -> Finding | None:
    """Report what only one side has."""
    only_src, only_tgt = Counter(src) - Counter(tgt), Counter(tgt) - Counter(src)
    n_different = only_src.total() + only_tgt.total()
    if not n_different:
        return None
    parts = [
        f"{' '.join(list(only.elements())[:4])} only in {side}"
        for only, side in ((only_src, "source"), (only_tgt, "target"))
        if only
    ]
    return Finding(kind, excerpt(", ".join(parts)), n_different)
