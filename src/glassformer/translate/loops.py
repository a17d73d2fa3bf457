"""Degenerate loops: a translation that says the same thing again and again, and has to be made once more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from typing import Final, NamedTuple

NGRAM: Final = 3  # tokens: where no sequence of so many comes twice, no loop is left

_LONGEST_PERIOD: Final = 16  # tokens that come again and again
_MIN_COPIES: Final = 4
_MIN_TOKENS: Final = 12  # that all copies have together; "ha, ha, ha, ha" is no loop


class Repetition(NamedTuple):
    """A sequence of `period` tokens that stands `copies` times in a row; the last may be cut off."""

    period: int
    copies: float

    @property
    def n_tokens(self) -> float:
        """Tokens of all copies together."""
        return self.period * self.copies


def is_loop(tokens: Sequence[int], source: Sequence[int]) -> bool:
    """Say whether a translation repeats itself, far more often than its source does."""
    # All copies but the first bring no token that was not there: most translations are told apart by that alone.
    if len(tokens) - len(set(tokens)) < _MIN_TOKENS * (_MIN_COPIES - 1) / _MIN_COPIES:
        return False
    found = longest_repetition(tokens)
    if found.copies < _MIN_COPIES or found.n_tokens < _MIN_TOKENS:
        return False
    return found.n_tokens > 2 * longest_repetition(source).n_tokens


def longest_repetition(tokens: Sequence[int]) -> Repetition:
    """Find the repetition that covers most tokens; of several, that of the shortest sequence."""
    best = Repetition(1, 0.0)
    for period in range(1, min(_LONGEST_PERIOD, len(tokens) // 2) + 1):
        is_same = bytes(map(eq, tokens, tokens[period:]))  # 1 where a token is that of a period before
        longest = max(map(len, is_same.split(b"\0")))
        if longest >= period and longest + period > best.n_tokens:
            best = Repetition(period, longest / period + 1)
    return best
