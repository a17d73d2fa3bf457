"""Which side's language a text looks like, learned from the corpus itself.

Overlapping runs of four bytes (UTF-8, words only) are counted on each side, in hashed buckets. A run that is frequent
on one side and rare on the other speaks for the first; where nearly all are rare, it is some other script or language.
So nothing is fetched, and it works for languages that nobody has listed. A third language among the pairs is also known
by its function words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.data.checks import Finding, Kind
from glassformer.data.function_words import other_language, usual_language

MIN_PAIRS: Final = 1000  # below this, what a language looks like cannot be learned

_BITS: Final = 18
_N: Final = 4
_SPACE: Final = 32
_MULTIPLIER: Final = np.uint32(2654435761)  # Knuth's: spreads runs over the buckets
_LETTERS: Final = np.array([_SPACE if byte < ord("A") else byte for byte in range(256)], np.uint8)  # no digits

_SMOOTHING: Final = 5.0  # a run must be met often before it speaks, so that no text testifies for itself
_MIN_RUNS: Final = 20  # shorter texts are not judged
_MARGIN: Final = 0.25  # how far on the wrong side of 0, as a share of how far on the right side texts usually are
_MIN_SEPARATION: Final = 0.4  # nats a run; if texts are usually nearer to 0, the sides are (nearly) in one language
_SHARE_OF_STRANGERS: Final = 0.2  # the least familiar texts, of which the function words are looked at
_UNFAMILIAR: Final = 4.0  # nats a run: its runs are e^4 = 55 times rarer than those of the usual text


class _Scores(NamedTuple):
    """A number for each of some texts, as means over the runs of a text."""

    likeness: NDArray[np.float64]  # above 0 like the source side, below like the target side
    familiarity: NDArray[np.float64]  # log-frequency of its runs on its own side
    is_long: NDArray[np.bool_]  # long enough to be judged


class Profiles:
    """What the two sides look like, as it is being learned."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, 1 << _BITS), np.int64)
        self._n_pairs = 0

    def learn(self, src: Sequence[str], tgt: Sequence[str]) -> None:
        """Count the runs of more texts, given in their normal forms."""
        self._n_pairs += len(src)
        for side, forms in enumerate((src, tgt)):
            buckets, _ = _runs(forms)
            self._counts[side] += np.bincount(buckets, minlength=1 << _BITS)

    def judge(self, src: Sequence[str], tgt: Sequence[str]) -> Judge | None:
        """Make a judge, set to what is usual in a sample of the corpus; None if the sides cannot be told apart."""
        if self._n_pairs < MIN_PAIRS:
            return None
        judge = Judge(self._counts, src, tgt)
        return judge if judge.separation >= _MIN_SEPARATION else None


class Judge:
    """Tells by the look of a text which side it belongs to."""

    def __init__(self, counts: NDArray[np.int64], src: Sequence[str], tgt: Sequence[str]) -> None:
        per_million = counts * (1e6 / counts.sum(axis=1, keepdims=True).clip(1))
        weight = 1e6 / counts.sum(axis=1).clip(1).mean()  # of one count, in counts per million
        smoothed = np.log(per_million + _SMOOTHING * weight)
        self._likeness = (smoothed[0] - smoothed[1]).astype(np.float32)
        self._familiarity = smoothed.astype(np.float32)
        likeness, familiarity = [], []
        for side, forms in enumerate((src, tgt)):
            scores = self._score(forms, side)
            likeness.append(_quantile(scores.likeness[scores.is_long], 0.5))
            familiarity.append(scores.familiarity[scores.is_long])
        self.separation = min(likeness[0], -likeness[1])
        self._margin = _MARGIN * self.separation
        self._usual = usual_language(src), usual_language(tgt)
        self._strange = [_quantile(values, _SHARE_OF_STRANGERS) for values in familiarity]
        self._unfamiliar = [_quantile(values, 0.5) - _UNFAMILIAR for values in familiarity]

    def judge(self, src: Sequence[str], tgt: Sequence[str]) -> dict[int, Finding]:
        """Give, by position, what is wrong with pairs of normal forms.

        A suspect is judged again without the words that both sides share: names and code are in no language.
        """
        suspects = list(self._verdicts(src, tgt))
        own_words = [_without_shared(src[i], tgt[i]) for i in suspects]
        verdicts = self._verdicts([own for own, _ in own_words], [own for _, own in own_words])
        return {suspects[position]: finding for position, finding in verdicts.items()}

    def _verdicts(self, src: Sequence[str], tgt: Sequence[str]) -> dict[int, Finding]:
        if not src:
            return {}
        sides = self._score(src, 0), self._score(tgt, 1)
        is_wrong = (
            sides[0].is_long & (sides[0].likeness < -self._margin),
            sides[1].is_long & (sides[1].likeness > self._margin),
        )
        verdicts = {}
        for side, name, forms in ((1, "target", tgt), (0, "source", src)):
            usual = self._usual[side]
            familiarity = np.where(sides[side].is_long, sides[side].familiarity, np.inf)
            for i in map(int, np.flatnonzero(familiarity < self._strange[side])):
                language = None if usual is None else other_language(forms[i], usual)
                if language is not None:
                    verdicts[i] = Finding(Kind.WRONG_LANGUAGE, f"{name} looks like {language}", len(forms[i]))
                elif familiarity[i] < self._unfamiliar[side]:
                    verdicts[i] = Finding(Kind.WRONG_LANGUAGE, f"{name} looks like neither side's", len(forms[i]))
        for i in map(int, np.flatnonzero(is_wrong[0] | is_wrong[1])):
            severity = len(src[i]) + len(tgt[i])
            if is_wrong[0][i] and is_wrong[1][i]:
                verdicts[i] = Finding(Kind.SWAPPED, "each side looks like the other's language", severity)
            elif is_wrong[0][i]:
                verdicts[i] = Finding(Kind.WRONG_LANGUAGE, "source looks like the target's", severity)
            else:
                verdicts[i] = Finding(Kind.WRONG_LANGUAGE, "target looks like the source's", severity)
        return verdicts

    def _score(self, forms: Sequence[str], side: int) -> _Scores:
        buckets, ends = _runs(forms)
        n_runs = np.diff(ends, prepend=0)
        divisor = n_runs.clip(1)
        return _Scores(
            _sums(self._likeness[buckets], ends) / divisor,
            _sums(self._familiarity[side][buckets], ends) / divisor,
            n_runs >= _MIN_RUNS,
        )


def _runs(forms: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Give the bucket of each run of four bytes in some texts, and after which of them each text ends."""
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
    src_words, tgt_words = src.split(), tgt.split()
    shared = set(src_words) & set(tgt_words)
    return " ".join(w for w in src_words if w not in shared), " ".join(w for w in tgt_words if w not in shared)


def _quantile(values: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
