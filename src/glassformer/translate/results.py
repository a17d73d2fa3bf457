"""Translations: a text, its sentences, and what is reported of each."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.config import Calibration
from glassformer.text.tokenizer import Span


class Piece(NamedTuple):
    """A token of the source."""

    piece: str
    span: Span  # in the source text


class Token(NamedTuple):
    """A token of the translation."""

    piece: str
    span: Span  # in the translated text
    probability: float | None


class Hypothesis(NamedTuple):
    """One way to translate a sentence."""

    text: str
    log_prob: float
    score: float  # what hypotheses are ranked by; with `mbr`, the mean chrF against the other draws
    ended: bool  # False: cut off by the length limit
    n_tokens: int  # including the end mark


class Sentence(NamedTuple):
    """A sentence of a text, translated; spans are in the whole texts."""

    src_span: Span
    span: Span
    hypotheses: tuple[Hypothesis, ...]  # best first
    looped: bool  # it repeated itself and was translated again
    src_tokens: tuple[Piece, ...] = ()
    tokens: tuple[Token, ...] = ()
    alignment: tuple[tuple[Span, Span], ...] = ()  # linked words of source and translation
    attention: NDArray[np.float32] | None = None  # (tokens, source tokens)


class Translation(NamedTuple):
    """A text, translated."""

    src: str
    text: str
    sentences: tuple[Sentence, ...]  # none if there is nothing to translate
    calibration: Calibration | None = None

    @property
    def log_prob(self) -> float:
        """The log-probability, summed over all sentences."""
        return sum(sentence.hypotheses[0].log_prob for sentence in self.sentences)

    @property
    def score(self) -> float:
        """The mean score of the sentences."""
        scores = [sentence.hypotheses[0].score for sentence in self.sentences]
        return sum(scores) / max(len(scores), 1)

    @property
    def confidence(self) -> float:
        """The share of its words that a reference would confirm, as calibrated; else the probability."""
        return self.probability if self.calibration is None else self.calibration.confidence(self.probability)

    @property
    def probability(self) -> float:
        """The geometric mean of the probabilities of all tokens."""
        n_tokens = sum(sentence.hypotheses[0].n_tokens for sentence in self.sentences)
        return math.exp(self.log_prob / max(n_tokens, 1))

    @property
    def ended(self) -> bool:
        """Whether no sentence was cut off by the length limit."""
        return all(sentence.hypotheses[0].ended for sentence in self.sentences)

    @property
    def looped(self) -> bool:
        """Whether any sentence repeated itself and was translated again."""
        return any(sentence.looped for sentence in self.sentences)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of all sentences."""
        return tuple(token for sentence in self.sentences for token in sentence.tokens)

    @property
    def alignment(self) -> tuple[tuple[Span, Span], ...]:
        """The linked words of all sentences."""
        return tuple(link for sentence in self.sentences for link in sentence.alignment)

    @property
    def n_best(self) -> tuple[str, ...]:
        """Whole texts: with the best hypothesis of each sentence, the second best, and so on."""
        most = max((len(sentence.hypotheses) for sentence in self.sentences), default=1)
        return tuple(self._with(rank) for rank in range(most))

    def _with(self, rank: int) -> str:
        text, end = "", 0
        for sentence in self.sentences:
            chosen = sentence.hypotheses[min(rank, len(sentence.hypotheses) - 1)]
            text += self.text[end : sentence.span[0]] + chosen.text
            end = sentence.span[1]
        return text + self.text[end:]
