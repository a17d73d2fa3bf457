"""Degenerate loops: translations that repeat themselves and have to be searched again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from typing import Final, NamedTuple

NGRAM: Final = 3  # tokens: if no sequence of this length appears twice, there is no loop

_LONGEST_PERIOD: Final = 16  # tokens that are repeated
_MIN_COPIES: Final = 4
_MIN_TOKENS: Final = 12  # of all copies together; "ha, ha, ha, ha" is not a loop


class Repetition(NamedTuple):
    """A sequence of `period` tokens, `copies` times in a row; the last copy may be cut off."""

    period: int
    copies: float

    @property
    def n_tokens(self) -> float:
        """The number of tokens of all copies together."""
        return self.period * self.copies


def is_loop(tokens: Sequence[int], source: Sequence[int]) -> bool:
    """Return whether a translation repeats itself, far more often than its source does."""
    # Copies after the first add no new token: that alone rules out most translations.
    if len(tokens) - len(set(tokens)) < _MIN_TOKENS * (_MIN_COPIES - 1) / _MIN_COPIES:
        return False
    found = longest_repetition(tokens)
    if found.copies < _MIN_COPIES or found.n_tokens < _MIN_TOKENS:
        return False
    return found.n_tokens > 2 * longest_repetition(source).n_tokens


def longest_repetition(tokens: Sequence[int]) -> Repetition:
    """Return the repetition that covers the most tokens; of several, that of the shortest sequence."""
    best = Repetition(1, 0.0)
    for period in range(1, min(_LONGEST_PERIOD, len(tokens) // 2) + 1):
        is_same = bytes(map(eq, tokens, tokens[period:]))  # 1 where a token equals the one a period before
        longest = max(map(len, is_same.split(b"\0")))
        if longest >= period and longest + period > best.n_tokens:
            best = Repetition(period, longest / period + 1)
    return best
