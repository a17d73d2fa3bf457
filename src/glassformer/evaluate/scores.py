"""Scores of translations against references, by sacreBLEU, each with the signature that makes it comparable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Score", "bleu"]


class Score(NamedTuple):
    """A number and how it was computed."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Corpus BLEU (Papineni et al. 2002; Post 2018)."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(found.score, str(metric.get_signature()))
