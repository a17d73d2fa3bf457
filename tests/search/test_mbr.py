"""Minimum Bayes risk: our chrF is sacreBLEU's, and the draw that others agree with wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from glassformer.search.mbr import agreement, chrf

TEXTS = st.lists(st.text("ab cé😀\u00a0", max_size=15), min_size=1, max_size=6)


@given(TEXTS)
def test_chrf_is_that_of_sacrebleu(texts: list[str]) -> None:
    theirs = CHRF()
    for row, hypothesis in zip(chrf(texts), texts, strict=True):
        for score, reference in zip(row, texts, strict=True):
            assert score == pytest.approx(theirs.sentence_score(hypothesis, [reference]).score)


@given(TEXTS)
def test_agreement_is_the_mean_over_the_others(texts: list[str]) -> None:
    """Written out, with every text compared with every other one, however often it comes."""
    table = chrf(texts)
    for i, mean in enumerate(agreement(texts)):
        others = [table[i, j] for j in range(len(texts)) if j != i]
        assert mean == pytest.approx(sum(others) / max(len(others), 1))
