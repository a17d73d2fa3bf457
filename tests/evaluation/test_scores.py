"""Scores are sacreBLEU's own, and equal systems are not different."""

from __future__ import annotations

import random

import pytest
import sacrebleu

from glassformer.evaluation.scores import METRICS, compare, measure, sentence_scores

WORDS = ["the", "a", "cat", "dog", "saw", "sat", "on", "under", "mat", "house", "of", "with", "and", "red", "old"]


def sentences(seed: int, count: int = 80) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(count)]


def spoilt(texts: list[str], share: float, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else word for word in t.split()) for t in texts]


def test_scores_are_those_of_sacrebleu() -> None:
    references = sentences(0)
    hypotheses = spoilt(references, 0.3)
    found = measure(hypotheses, references)
    assert found["BLEU"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert found["chrF"].value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert found["TER"].value == sacrebleu.corpus_ter(hypotheses, [references]).score
    assert measure(hypotheses, references, names=["chrF"]) == {"chrF": found["chrF"]}
    assert all("version:" in score.signature for score in found.values())
    assert "tok:none" in measure(hypotheses, references, "none")["BLEU"].signature


def test_a_perfect_translation() -> None:
    references = sentences(0)
    found = measure(references, references)
    assert [found[name].value for name in METRICS] == pytest.approx([100, 100, 0])
    assert sentence_scores(references, references) == pytest.approx([100.0] * len(references))


def test_equal_systems_are_not_different() -> None:
    references = sentences(0)
    hypotheses = spoilt(references, 0.3)
    for comparison in compare(hypotheses, hypotheses, references):
        assert comparison.p_value == 1.0
        assert not comparison.is_significant


def test_much_better_is_significant_and_a_little_better_is_not() -> None:
    references = sentences(0)
    bad, good = spoilt(references, 0.6), spoilt(references, 0.1)
    for comparison in compare(bad, good, references):
        assert comparison.is_significant
        better = (
            comparison.first > comparison.other if comparison.metric == "TER" else comparison.first < comparison.other
        )
        assert better
    one = spoilt(references, 0.3)
    other = [*one[:-1], references[-1]]
    assert not any(comparison.is_significant for comparison in compare(one, other, references))
