"""From the options of a call to the request that engines get: constraints as tokens, limits checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from glassformer.config import SearchConfig, TranslateOptions
from glassformer.errors import ConfigError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocab import BOS
from glassformer.translate.engines.engine import Request


def make_request(
    options: TranslateOptions, search: SearchConfig, tokenizer: Tokenizer, *, max_positions: int, scores: bool = True
) -> Request:
    """Encode the constraints of `options` and fit `search`, the settings used if `options` has none, to them."""
    search = options.search or search
    suppressed = suppressed_words(options)
    for word in options.require:
        if suppressed and (match := suppressed.search(word)):
            raise ConfigError(f"require={word!r} contains the suppressed word {match[0]!r}; remove it from one of them")
    prefix = encode_prefix(options, tokenizer)
    longest = min(search.max_length, max_positions)
    if len(prefix) >= longest:
        raise ConfigError(f"prefix has {len(prefix)} tokens and leaves no room: max_length is {longest}")
    n_per_group = -(-max(search.width, options.n_best) // search.groups)
    values = search.model_dump() | {"width": n_per_group * search.groups, "max_length": longest}
    search = SearchConfig.parse(values, "the model's max_positions")
    return Request(
        search,
        tuple(tuple(tokenizer.encode(variant)) for word in options.suppress for variant in with_capital(word)),
        tuple(tuple(tokenizer.encode(word)) for word in options.require),
        continuing_tokens(tokenizer) if options.require else frozenset(),
        search.width if search.method == "mbr" else options.n_best,  # all draws are compared
        options.token_probabilities,
        options.alignment or options.attention,
        scores,
    )


def encode_prefix(options: TranslateOptions, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that the translation of a text must begin with."""
    return tuple(tokenizer.encode(options.prefix.rstrip())) if options.prefix else ()


def suppressed_words(options: TranslateOptions) -> re.Pattern[str] | None:
    """Return a pattern that matches the suppressed words, as written or capitalized; None if there are none."""
    return whole_words([v for word in options.suppress for v in with_capital(word)]) if options.suppress else None


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
