"""Random segmentation of words into pieces, for subword regularisation.

By hand, because sentencepiece mixes its seed with a random number of the process, so that no run is reproducible. Here
the result depends only on the caller's generator.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

_MOST_WORDS: Final = 30_000  # words in the cache; a few kB each
_LONGEST_WORD: Final = 40  # characters of a cached word; longer ones rarely recur
_UNKNOWN: Final = 10.0  # how much less likely than any piece an unknown character is to sentencepiece


class Vocabulary(NamedTuple):
    """The pieces of a tokenizer."""

    pieces: Mapping[str, tuple[int, float]]  # id and score
    spell: Callable[[str], list[int]]  # the ids of a character without a piece
    best: Callable[[str], list[int]]  # the best segmentation of a word


class Cutter(Protocol):
    """Segments words at random."""

    def cut(self, word: str, draws: random.Random) -> list[int]:
        """Return the ids of a word."""


class _Edge(NamedTuple):
    start: int
    ids: list[int]


class _Position(NamedTuple):
    """A position in a word: the pieces that end there, and their cumulative probabilities."""

    edges: list[_Edge]
    bounds: list[float]


class UnigramCutter:
    """Samples among all segmentations by their probability to the power of alpha (Kudo 2018)."""

    def __init__(self, vocabulary: Vocabulary, alpha: float) -> None:
        self._vocabulary, self._alpha = vocabulary, alpha
        self._longest = max(map(len, vocabulary.pieces))
        self._unknown = min(score for _, score in vocabulary.pieces.values()) - _UNKNOWN
        self._symbols = {token for token, score in vocabulary.pieces.values() if score == 0}
        self._cached = lru_cache(_MOST_WORDS)(self._lattice)

    def cut(self, word: str, draws: random.Random) -> list[int]:
        """Sample pieces from the end of the word to its beginning."""
        nodes = self._cached(word) if len(word) <= _LONGEST_WORD else self._lattice(word)
        if not nodes:
            return self._vocabulary.best(word)
        parts, end = [], len(word)
        while end:
            edges, bounds = nodes[end]
            edge = edges[bisect_right(bounds, draws.random(), hi=len(bounds) - 1) if len(edges) > 1 else 0]
            parts.append(edge.ids)
            end = edge.start
        return [token for ids in reversed(parts) for token in ids]

    def _lattice(self, word: str) -> list[_Position]:
        """Sum over all segmentations of each prefix; empty if the word contains a symbol, which is never cut."""
        if self._symbols and not self._symbols.isdisjoint(self._vocabulary.best(word)):
            return []
        pieces = self._vocabulary.pieces
        nodes, totals = [_Position([], [])], [0.0]  # the logarithm of the sum
        for end in range(1, len(word) + 1):
            edges, scores = [], []
            for start in range(max(0, end - self._longest), end):
                text = word[start:end]
                if text in pieces:
                    token, score = pieces[text]
                    edges.append(_Edge(start, [token]))
                elif start == end - 1:
                    score = self._unknown
                    edges.append(_Edge(start, self._vocabulary.spell(text)))
                else:
                    continue
                scores.append(totals[start] + self._alpha * score)
            top = max(scores)
            sums = list(accumulate(math.exp(score - top) for score in scores))
            totals.append(top + math.log(sums[-1]))
            nodes.append(_Position(edges, [part / sums[-1] for part in sums]))
        return nodes


class BpeCutter:
    """Merges pieces like BPE, but skips each merge with the probability of dropout (Provilkov et al. 2020)."""

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        self._vocabulary, self._dropout = vocabulary, dropout
        self._cached = lru_cache(_MOST_WORDS)(self._is_merged)

    def cut(self, word: str, draws: random.Random) -> list[int]:
        """Merge at random; what is not made by merging, such as a symbol, stays whole."""
        is_merged = self._cached(word) if len(word) <= _LONGEST_WORD else self._is_merged(word)
        return self._merge(word, draws) if is_merged else self._vocabulary.best(word)

    def _is_merged(self, word: str) -> bool:
        return self._merge(word) == self._vocabulary.best(word)

    def _merge(self, word: str, draws: random.Random | None = None) -> list[int]:
        pieces = self._vocabulary.pieces
        parts = list(word)
        before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
        agenda: list[tuple[float, int, str]] = []  # the best first, of equals the leftmost

        def offer(left: int, right: int) -> None:
            text = parts[left] + parts[right]
            if text in pieces:
                heappush(agenda, (-pieces[text][1], left, text))

        for left in range(len(parts) - 1):
            offer(left, left + 1)
        while agenda:
            _, left, text = heappop(agenda)
            right = after[left]
            if not parts[left] or right == len(parts) or parts[left] + parts[right] != text:
                continue  # one of the two has been merged since
            if draws is not None and draws.random() < self._dropout:
                continue
            parts[left], parts[right] = text, ""
            after[left] = after[right]
            if after[left] < len(parts):
                before[after[left]] = left
                offer(left, after[left])
            if before[left] >= 0:
                offer(before[left], left)
        found = [[pieces[part][0]] if part in pieces else self._vocabulary.spell(part) for part in parts if part]
        return [token for ids in found for token in ids]
