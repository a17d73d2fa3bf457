"""Search, and the retries when a search goes wrong, so that all engines behave alike.

- a sentence is too long, or its translation was cut off: it is split, and its parts are translated;
- a translation repeats itself: it is searched again with no_repeat_ngram;
- a suppressed word appears, spelt in other tokens: it is searched again with that spelling suppressed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import eq
from typing import Final, NamedTuple

from glassformer.config import TranslateOptions
from glassformer.search.mbr import ranking
from glassformer.text.tokenizer import Tokenizer
from glassformer.translate.engines.engine import IdHypothesis, Request, Source
from glassformer.translate.loading import Engines
from glassformer.translate.request import suppressed_words, whole_words
from glassformer.translate.segments import Segment, cut_segment, fill

NGRAM: Final = 3  # tokens: if no sequence of this length appears twice, there is no loop

_LONGEST_PERIOD: Final = 16  # tokens that are repeated
_MIN_COPIES: Final = 4
_MIN_TOKENS: Final = 12  # of all copies together; "ha, ha, ha, ha" is not a loop

_SLACK: Final = 1.25  # the parts of a sentence that is too long differ in length
_MAX_ROUNDS: Final = 10  # searches for a translation without the suppressed words, which can be spelt in many ways

_Found = list[list[IdHypothesis]]  # of each source, best first


@dataclass(frozen=True)
class RetryingSearch:
    """Searches for the translations of segments under one request, with retries."""

    engines: Engines
    encode: Callable[[Sequence[Segment]], list[Segment]]
    tokenizer: Tokenizer  # of the target
    options: TranslateOptions
    request: Request

    def search(self, segments: Sequence[Segment]) -> list[list[Segment]]:
        """Translate encoded segments; one that is too long comes back as several."""
        limit = max(self.request.search.max_length - 1, 1)  # a translation is about as long as its source
        fits = [len(segment.source.tokens) <= limit or len(segment.text) == 1 for segment in segments]
        found = iter(self._search(list(compress(segments, fits))))
        tried = [next(found) if is_short else segment for segment, is_short in zip(segments, fits, strict=True)]
        is_long = [not segment.hypotheses or _is_cut_off(segment, limit) for segment in tried]
        parts = iter(self._split_and_search(list(compress(tried, is_long)), limit))
        return [next(parts) if long else [segment] for segment, long in zip(tried, is_long, strict=True)]

    def _split_and_search(self, segments: Sequence[Segment], limit: int) -> list[list[Segment]]:
        """Translate segments that are too long in parts."""
        if not segments:
            return []
        n_parts = [max(2, math.ceil(_SLACK * len(segment.source.tokens) / limit)) for segment in segments]
        parts = list(map(cut_segment, segments, n_parts))
        found = iter(self.search(self.encode([part for some in parts for part in some if not part.is_space])))
        return [fill(some, found) for some in parts]

    def _search(self, segments: Sequence[Segment]) -> list[Segment]:
        """Translate segments that fit; only those that begin their text must contain the required words."""
        is_first = [segment.is_first for segment in segments]
        if not self.request.required or all(is_first):
            return self._without_loops(segments)
        others = replace(
            self,
            request=self.request._replace(required=()),
            options=self.options.model_copy(update={"require": ()}),
        )
        first = iter(self._without_loops(list(compress(segments, is_first))))
        rest = iter(others._without_loops([segment for segment in segments if not segment.is_first]))
        return [next(first if is_such else rest) for is_such in is_first]

    def _without_loops(self, segments: Sequence[Segment]) -> list[Segment]:
        """Search, and again where a translation repeats itself."""
        sources = [segment.source for segment in segments]
        found = self._without_suppressed(sources, self.request)
        looped = [is_loop(some[0].tokens, source.tokens) for some, source in zip(found, sources, strict=True)]
        if any(looped):
            request = without_loops(self.request)
            if self.engines.first.refuses(request):
                self.engines.remark(
                    f"a translation repeated itself; retrying such sentences with no_repeat_ngram={NGRAM}"
                )
            again = iter(self._without_suppressed(list(compress(sources, looped)), request))
            found = [next(again) if is_such else some for some, is_such in zip(found, looped, strict=True)]
        return [
            segment._replace(hypotheses=some, looped=is_such)
            for segment, some, is_such in zip(segments, found, looped, strict=True)
        ]

    def _without_suppressed(self, sources: Sequence[Source], request: Request) -> _Found:
        """Search, and again while a suppressed word appears; rank what was drawn."""
        found = self.engines.run(sources, request)
        for _ in range(_MAX_ROUNDS if self.options.suppress else 0):
            spellings = [self._suppressed_in(some) for some in found]
            new = set().union(*spellings).difference(request.suppressed)
            if not new:
                break
            request = request._replace(suppressed=(*request.suppressed, *sorted(new)))
            again = iter(self.engines.run(list(compress(sources, spellings)), request))
            found = [next(again) if spelt else some for some, spelt in zip(found, spellings, strict=True)]
        if any(map(self._suppressed_in, found)):
            self.engines.remark("a suppressed word still appears: the model found too many ways to spell it")
        for word in self.options.require:
            pattern = whole_words([word])
            if not all(pattern.search(self.tokenizer.decode(some[0].tokens)) for some in found):
                self.engines.remark(
                    f"the required word {word} is missing from a translation: the search found no place for it"
                )
        return [self._ranked(some) for some in found] if request.search.method == "mbr" else found

    def _suppressed_in(self, hypotheses: Sequence[IdHypothesis]) -> set[tuple[int, ...]]:
        """Return the token sequences that suppressed words appear as, except in the forced prefix."""
        pattern, prefix = suppressed_words(self.options), self.options.prefix.rstrip()
        spellings: set[tuple[int, ...]] = set()
        if pattern is None:
            return spellings
        for hypothesis in hypotheses:
            text = self.tokenizer.decode(hypothesis.tokens)
            forced = len(prefix) if text.startswith(prefix) else 0
            matches = [match for match in pattern.finditer(text) if match.end() > forced]
            spans = self.tokenizer.decode_spans(hypothesis.tokens) if matches else []
            for match in matches:
                inside = (begin < match.end() and end > match.start() for begin, end in spans)
                spellings.add(tuple(compress(hypothesis.tokens, inside)))
        return spellings

    def _ranked(self, draws: Sequence[IdHypothesis]) -> list[IdHypothesis]:
        """Return the draws that the others agree with most, best first (minimum Bayes risk)."""
        ranked = ranking([self.tokenizer.decode(draw.tokens) for draw in draws])[: self.options.n_best]
        return [draws[number]._replace(score=mean) for number, mean in ranked]


def without_loops(request: Request) -> Request:
    """Return the request with which a translation that repeats itself is searched again."""
    return request._replace(search=request.search.model_copy(update={"no_repeat_ngram": NGRAM}))


def _is_cut_off(segment: Segment, limit: int) -> bool:
    """Return whether a translation ended at the length limit, and its source is long enough to be split."""
    is_whole = segment.hypotheses[0].ended or segment.looped or len(segment.text) == 1
    return not is_whole and 2 * len(segment.source.tokens) > limit


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
