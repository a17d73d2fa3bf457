"""Minimum Bayes risk: of many draws, the one that agrees most with the others (Eikema and Aziz 2020), by chrF.

N texts, G different character n-grams in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ORDERS: Final = range(1, 7)  # lengths of character n-grams
_BETA: Final = 2.0  # how much more recall counts than precision


def agreement(texts: Sequence[str]) -> list[float]:
    """Return the mean chrF of each text against all others, from 0 to 100; duplicates count as often as they appear."""
    counts = Counter(texts)
    different = list(counts)
    weights = np.array([counts[text] for text in different], float)
    table = chrf(different)  # (N, N)
    totals = table @ weights - table.diagonal()  # a text is not compared with itself
    means = totals / max(len(texts) - 1, 1)
    by_text = dict(zip(different, means.tolist(), strict=True))
    return [by_text[text] for text in texts]


def ranking(texts: Sequence[str]) -> list[tuple[int, float]]:
    """Return the number of each text and its mean chrF against all others, best first."""
    return sorted(enumerate(agreement(texts)), key=lambda ranked: -ranked[1])


def chrf(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return sacreBLEU's sentence chrF (N, N) of each text (row) with each text (column) as its reference."""
    grams = [_ngrams("".join(text.split())) for text in texts]
    columns = {gram: place for place, gram in enumerate(sorted(set().union(*grams), key=len))}
    counts = np.zeros((len(texts), len(columns)), np.int32)  # (N, G), sorted by the n-grams' lengths
    for row, found in zip(counts, grams, strict=True):
        row[[columns[gram] for gram in found]] = list(found.values())
    lengths = np.array([len(gram) for gram in columns], int)
    bounds = np.searchsorted(lengths, [*_ORDERS, _ORDERS[-1] + 1])
    spans = [slice(*bounds[order : order + 2]) for order in range(len(_ORDERS))]
    totals = np.stack([counts[:, span].sum(axis=1) for span in spans], axis=1)  # (N, 6)

    scores = np.zeros((len(texts), len(texts)))
    for number, row in enumerate(counts):
        matches = np.stack([np.minimum(row[span], counts[:, span]).sum(axis=1) for span in spans], axis=1)  # (N, 6)
        scores[number] = _f_score(matches, totals[number], totals)
    return scores


def _ngrams(text: str) -> Counter[str]:
    return Counter(text[start : start + n] for n in _ORDERS for start in range(len(text) - n + 1))


def _f_score(matches: NDArray[np.int32], n_hyp: NDArray[np.int32], n_ref: NDArray[np.int32]) -> NDArray[np.float64]:
    """Score a hypothesis against each reference (N, 6), over the n-gram lengths that both have."""
    both = (n_hyp > 0) & (n_ref > 0)
    n_orders = np.maximum(both.sum(axis=1), 1)
    precision = np.where(both, matches / np.maximum(n_hyp, 1), 0.0).sum(axis=1) / n_orders  # (N,)
    recall = np.where(both, matches / np.maximum(n_ref, 1), 0.0).sum(axis=1) / n_orders
    weighted = _BETA**2 * precision + recall
    scores: NDArray[np.float64] = 100 * (1 + _BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return scores
