"""An engine that answers at once, and a vocabulary to go with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from glassformer.config import TokenizerConfig
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.translate.engines.engine import IdHypothesis, Request, Source

__all__ = ["Answer", "FakeEngine", "echo", "tokenizers"]

_LINES = [
    "Le chat mange la souris, et le chien dort.",
    "Un chien court dans la rue; il est noir.",
    "The cat eats the mouse, and the dog sleeps.",
    "A dog runs in the street; it is black.",
]

Answer = Callable[[Source, Request], list[IdHypothesis]]


@cache
def tokenizers() -> Tokenizers:
    """Learn a small vocabulary that both sides share."""
    joint = Tokenizer.train(_LINES, TokenizerConfig(vocab_size=310))
    return Tokenizers(joint, joint)


def echo(source: Source, request: Request) -> list[IdHypothesis]:
    """Answer with the source, up to the length limit."""
    limit = request.search.max_length
    tokens = [*source.prefix, *source.tokens]
    ended = len(tokens) < limit
    kept = tokens[:limit]
    log_probs = [-0.1] * (len(kept) + ended)
    attention = np.eye(len(kept), len(source.tokens), dtype=np.float32) if request.attention else None
    return [
        IdHypothesis(kept, sum(log_probs), -0.1 * rank, ended, log_probs, attention)
        for rank in range(1, request.n_best + 1)
    ]


class FakeEngine:
    """Answers each source by a function, and remembers what it was asked."""

    name = "fake"

    def __init__(
        self,
        answer: Answer = echo,
        cannot: Callable[[Request], str | None] = lambda request: None,
        is_thread_safe: bool = False,
    ) -> None:
        self.answer, self.refuses, self.is_thread_safe = answer, cannot, is_thread_safe
        self.asked: list[tuple[list[Source], Request]] = []
        self.closed = False

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[IdHypothesis]]]:
        """Answer from the last to the first: whoever asks must not count on an order."""
        self.asked.append((list(sources), request))
        for number in reversed(range(len(sources))):
            yield number, self.answer(sources[number], request)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
