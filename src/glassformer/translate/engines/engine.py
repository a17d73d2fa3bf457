"""The interface of translation engines: token ids in, hypotheses as token ids out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.config import SearchConfig

_T = TypeVar("_T")


class Source(NamedTuple):
    """A sentence to translate, without end mark, and the tokens that its translation must begin with."""

    tokens: Sequence[int]
    prefix: Sequence[int] = ()


class Request(NamedTuple):
    """How to translate all sentences of a call, and what to report: `TranslateOptions` with constraints as tokens."""

    search: SearchConfig = SearchConfig()
    suppressed: tuple[tuple[int, ...], ...] = ()  # token sequences that must not appear
    required: tuple[tuple[int, ...], ...] = ()  # token sequences that must appear
    continuing: frozenset[int] = frozenset()  # tokens that continue a word, and so cannot follow a required sequence
    n_best: int = 1  # hypotheses to return, at most the beam size
    token_log_probs: bool = False
    attention: bool = False
    scores: bool = True  # False: an engine that needs no log-probabilities to choose may leave them out, as NaN


class IdHypothesis(NamedTuple):
    """One hypothesis of one sentence, in token ids."""

    tokens: list[int]  # without start and end mark, with the forced prefix
    log_prob: float  # sum over all tokens, including the end mark
    score: float  # what hypotheses are ranked by
    ended: bool  # False: cut off by the length limit
    token_log_probs: list[float] | None = None  # one per token, including the end mark if it ended
    attention: NDArray[np.float32] | None = None  # (tokens, source tokens), of the alignment head


class Engine(Protocol):
    """Translates token ids."""

    name: str
    is_thread_safe: bool

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[IdHypothesis]]]:
        """Yield the number of each source and its hypotheses, best first, in any order."""

    def refuses(self, request: Request) -> str | None:
        """Return what this engine does not support of the request, or None."""

    def close(self) -> None:
        """Release threads and memory."""


def run_in_thread(work: Callable[[], _T]) -> _T:
    """Let torch compute in a thread that ends with the work.

    CTranslate2 shares the OpenMP runtime that torch has loaded. While a thread that has computed is alive, its helpers
    count; with more of them than cores, all sleep between tasks instead of spinning, and CTranslate2 with several
    threads per worker becomes two to ten times slower.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
