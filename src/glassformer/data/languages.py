"""Pairs in the wrong language, by py3langid.

py3langid takes longer to read a text than all other checks together, so it is asked only about suspects: texts whose
runs of four bytes (UTF-8, words only) are rarer on their side of the corpus, or more like the other side's, than usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassformer.data.checks import Finding, Kind

MIN_PAIRS: Final = 100  # below this, what is usual in a corpus is unknown

_BITS: Final = 18  # runs are counted in 2^18 hashed buckets
_N: Final = 4
_SPACE: Final = 32
_MULTIPLIER: Final = np.uint32(2654435761)  # Knuth's: spreads runs over the buckets
_LETTERS: Final = np.array([_SPACE if byte < ord("A") else byte for byte in range(256)], np.uint8)  # no digits
_SMOOTHING: Final = 5.0  # counts added to each bucket, so that no text vouches for itself
_RARER: Final = 1.0  # nats per run below the usual frequency that make a suspect
_LESS_ALIKE: Final = 0.5  # share of the usual likeness to its own side below which a text is a suspect

_IDENTIFIED: Final = 256  # texts of each side that tell its language
_MIN_LENGTH: Final = 12  # characters; shorter texts could be in several languages
_IMPROBABLE: Final = 0.003  # probability of its side's language below which a text is in the wrong one
_UNLIKELY: Final = 0.03  # the same for the words that the other side does not have


@lru_cache(maxsize=1)
def identifier() -> Any:
    """Return py3langid's classifier of languages, with probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def usual_language(texts: Sequence[str]) -> str:
    """Return the language of most of some sample texts, or an empty string if they do not agree."""
    some = texts[:: -(-len(texts) // _IDENTIFIED)]
    language, count = Counter(identifier().classify(text)[0] for text in some).most_common(1)[0]
    return str(language) if 2 * count > len(some) else ""


def identify_among(text: str, languages: Collection[str]) -> str:
    """Return the most likely of some languages."""
    return str(next(language for language, _ in identifier().rank(text) if language in languages))


class Judge:
    """Finds pairs with a side in another language than is usual on that side."""

    def __init__(self, src: Sequence[str], tgt: Sequence[str], forms: tuple[Sequence[str], Sequence[str]]) -> None:
        """Learn what is usual from sample texts and their normal forms."""
        self._identifier = identifier()
        self.languages = usual_language(src), usual_language(tgt)
        counts = np.array([np.bincount(_runs(side)[0], minlength=1 << _BITS) for side in forms])
        per_million = 1e6 / counts.sum(axis=1, keepdims=True).clip(1)
        self._frequency = np.log((counts + _SMOOTHING) * per_million).astype(np.float32)  # (2, buckets)
        medians = [np.median(self._score(side, number), axis=1) for number, side in enumerate(forms)]
        self._limits = [(frequency - _RARER, _LESS_ALIKE * likeness) for frequency, likeness in medians]

    def judge(self, texts: Sequence[tuple[str, str]], forms: Sequence[tuple[str, str]]) -> dict[int, Finding]:
        """Return, by position, what is wrong with pairs, given with their normal forms."""
        findings: dict[int, Finding] = {}
        for side in (1, 0):
            for i in self._suspects([pair[side] for pair in forms], side):
                finding = self._identify(texts[i], side)
                if finding is not None:
                    findings[i] = finding
        return findings

    def _identify(self, texts: tuple[str, str], side: int) -> Finding | None:
        language, other = self.languages[side], self.languages[1 - side]
        own_words = _without_shared(*texts)[side]  # names and code are in no language
        if len(own_words) < _MIN_LENGTH:
            return None
        found = self._identifier.classify(texts[side])[0]
        if found == language or self._probability(texts[side], language) >= _IMPROBABLE:
            return None
        if self._probability(own_words, language) >= _UNLIKELY:
            return None
        length = sum(map(len, texts))
        if found == other and self._identifier.classify(texts[1 - side])[0] == language:
            return Finding(Kind.SWAPPED, "each side looks like the other's language", length)
        name = ("source", "target")[side]
        return Finding(Kind.WRONG_LANGUAGE, f"{name} looks like {found}, not {language}", length)

    def _probability(self, text: str, language: str) -> float:
        return float(dict(self._identifier.rank(text))[language])

    def _suspects(self, forms: Sequence[str], side: int) -> list[int]:
        frequency, likeness = self._score(forms, side)
        is_suspect = (frequency < self._limits[side][0]) | (likeness < self._limits[side][1])
        return [int(i) for i in np.flatnonzero(is_suspect)]

    def _score(self, forms: Sequence[str], side: int) -> NDArray[np.float64]:
        """Return the mean log-frequency of each text's runs on its own side, and how far it is above the other's."""
        buckets, ends = _runs(forms)
        own, other = (_sums(self._frequency[number][buckets], ends) for number in (side, 1 - side))
        scores: NDArray[np.float64] = np.array([own, own - other]) / np.diff(ends, prepend=0).clip(1)
        return scores


def _runs(forms: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the bucket of each run of four bytes in some texts, and the number of runs up to the end of each text."""
    packed = [f"  {form}   ".encode() for form in forms]  # no run holds two letters of one text and one of the next
    letters = _LETTERS[np.frombuffer(b"".join(packed), np.uint8)].astype(np.uint32)
    if len(letters) < _N:
        return np.zeros(0, np.uint32), np.zeros(len(forms), np.int64)
    run, n_letters = np.zeros((2, len(letters) - _N + 1), np.uint32)
    for place in range(_N):
        byte = letters[place : len(letters) - _N + 1 + place]
        run |= byte << np.uint32(8 * place)
        n_letters += byte != _SPACE
    is_speaking = n_letters >= _N // 2  # a letter between spaces says little
    n_before = np.concatenate(([0], np.cumsum(is_speaking)))
    ends = np.cumsum([len(text) for text in packed])
    buckets = (run[is_speaking] * _MULTIPLIER) >> np.uint32(32 - _BITS)
    return buckets, n_before[np.minimum(ends, len(run))]


def _sums(values: NDArray[np.float32], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add up the values of each text."""
    totals = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    return np.diff(totals[ends], prepend=0.0)


def _without_shared(src: str, tgt: str) -> tuple[str, str]:
    """Leave out the words that both sides have."""
    src_words, tgt_words = src.split(), tgt.split()
    shared = set(src_words) & set(tgt_words)
    return " ".join(w for w in src_words if w not in shared), " ".join(w for w in tgt_words if w not in shared)
