"""What a translation engine is asked and what it answers: token ids in, hypotheses out, whichever engine it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.config import SearchConfig

Say = Callable[[str], None]  # hears, in a word, what is otherwise than asked for

_T = TypeVar("_T")


class Source(NamedTuple):
    """A sentence to translate, without end mark, and the tokens that its translation must begin with."""

    tokens: Sequence[int]
    prefix: Sequence[int] = ()


class Request(NamedTuple):
    """How all sentences of a call are to be translated, and what is wanted besides the tokens."""

    search: SearchConfig = SearchConfig()
    suppressed: tuple[tuple[int, ...], ...] = ()  # token sequences that must not come
    required: tuple[tuple[int, ...], ...] = ()  # token sequences that must come
    continuing: frozenset[int] = frozenset()  # tokens that continue a word: none stands right after a required sequence
    n_best: int = 1  # hypotheses to give back, at most the search's width
    token_log_probs: bool = False
    attention: bool = False
    scores: bool = True  # False: an engine that needs no log-probabilities to choose may leave them out, as nan


class Found(NamedTuple):
    """One hypothesis of one sentence."""

    tokens: list[int]  # without start and end mark, with the forced prefix
    log_prob: float  # over all tokens, the end mark included
    score: float  # what hypotheses are ranked by
    ended: bool  # False: cut off by the length limit
    token_log_probs: list[float] | None = None  # one a token and, if it ended, one for the end mark
    attention: NDArray[np.float32] | None = None  # (tokens, source tokens), of the head that aligns best


class Engine(Protocol):
    """Whoever translates token ids."""

    name: str
    is_shared: bool  # several threads may ask it at once

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[Found]]]:
        """Give the number of each source and its hypotheses, best first, in whatever order they are done."""
        ...

    def refuses(self, request: Request) -> str | None:
        """Say what of the request this engine cannot do, or None."""
        ...

    def close(self) -> None:
        """Let go of threads and memory."""
        ...


def aside(work: Callable[[], _T]) -> _T:
    """Let torch compute in a thread that ends with it.

    CTranslate2 finds the OpenMP that torch has loaded. As long as a thread lives that has computed, its helpers count,
    and when there are more of them than cores, all sleep between two tasks instead of spinning: that makes CTranslate2
    with several threads for a worker two to ten times slower.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
