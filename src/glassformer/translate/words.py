"""Words in text and in tokens: where a word stands alone, and which tokens would make it part of a longer one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocab import BOS


def whole_words(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the words or phrases, not as part of a longer word."""
    return re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))


def with_capital(word: str) -> list[str]:
    """Return the word as written and as it begins a sentence."""
    return list(dict.fromkeys([word, word[0].upper() + word[1:]]))


@lru_cache(maxsize=8)
def continuing_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the tokens that continue the word before them: they begin with a letter, a digit or a byte."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    found = (token for token, piece in enumerate(pieces) if tokenizer.is_byte(token) or re.match(r"\w", piece))
    return frozenset([*found, BOS])  # the start mark is silent: the token after it may continue the word
