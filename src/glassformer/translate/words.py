"""Words in text and in tokens: where one stands by itself, and which tokens would make it part of a longer one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocab import BOS


def whole_words(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of the words or phrases where no letter or digit stands beside it."""
    return re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))


@cache
def continuing_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the tokens that continue the word before them: they begin with a letter, a digit or a byte."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    begins = (token for token, piece in enumerate(pieces) if tokenizer.is_byte(token) or re.match(r"\w", piece))
    return frozenset([*begins, BOS])  # the start mark is silent: what comes after it may continue the word, too
