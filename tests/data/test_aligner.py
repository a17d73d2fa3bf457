"""The statistical aligner finds links that were planted, applies what it learned, and can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from glassformer.data.aligner import Aligner, Links, TokenPair
from tests.translate.test_alignment import pairs


def statistical_links(corpus: Sequence[TokenPair]) -> list[Links]:
    """Align the pairs that were learned from."""
    return Aligner.learn(corpus).links(corpus)


@pytest.mark.parametrize("backwards", [False, True])
def test_statistical_links_are_the_planted_ones(backwards: bool) -> None:
    corpus = pairs(300, backwards)
    hits = wrong = 0
    for (source, target), links in zip(corpus, statistical_links(corpus), strict=True):
        right = {(source.index(word - 10), place) for place, word in enumerate(target)}
        hits += len(links & right)
        wrong += len(links - right)
    total = sum(len(source) for source, _ in corpus)
    assert hits > 0.97 * total
    assert wrong < 0.01 * total


def test_a_word_that_comes_from_nothing_has_no_link() -> None:
    corpus = [(source, [50, *target]) for source, target in pairs(300)]
    linked = sum(any(place == 0 for _, place in links) for links in statistical_links(corpus))
    assert linked < 30


def test_nothing_has_no_links() -> None:
    assert statistical_links([]) == []
    assert statistical_links([([], [5]), ([4], [])]) == [set(), set()]
    assert statistical_links([([], [5]), ([4], [7])]) == [set(), {(0, 0)}]


def test_what_was_learned_aligns_other_pairs() -> None:
    corpus = pairs(300)
    aligner = Aligner.learn(corpus[:250])
    found = aligner.links(corpus[250:])
    right = [{(source.index(word - 10), place) for place, word in enumerate(target)} for source, target in corpus[250:]]
    assert sum(len(links & planted) for links, planted in zip(found, right, strict=True)) > 0.95 * sum(map(len, right))
    assert aligner.links([([10_000], [20_000])]) == [set()]  # never seen: more likely to come from nothing


def test_a_saved_aligner_is_the_same(tmp_path: Path) -> None:
    aligner = Aligner.learn(pairs(50))
    aligner.save(tmp_path / "aligner.npz")
    assert Aligner.load(tmp_path / "aligner.npz").links(pairs(60)) == aligner.links(pairs(60))
