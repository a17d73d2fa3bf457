"""Cutting at random: each way as often as it should, and nothing but the generator decides."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from glassformer.text.sampling import BpeCutter, Cutter, UnigramCutter, Vocabulary

N_DRAWS = 20_000
SCORES = {"a": -2.0, "b": -2.5, "c": -3.0, "ab": -3.5, "bc": -2.8, "abc": -4.0, "ca": -6.0, "<s>": 0.0}
PIECES = {piece: (number, score) for number, (piece, score) in enumerate(SCORES.items())}
UNKNOWN = 99
SYMBOL = PIECES["<s>"][0]


BEST = {"<s>": ["<s>"], "abc": ["abc"], "abcab": ["abc", "ab"], "abcabc": ["abc", "abc"]}


def best(word: str) -> list[int]:
    return [PIECES[piece][0] for piece in BEST.get(word, word)]


VOCABULARY = Vocabulary(PIECES, lambda character: [UNKNOWN] * len(character.encode()), best)


def segmentations(word: str) -> Iterator[list[str]]:
    """Find every way to write a word in pieces."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in PIECES:
            yield from ([word[:end], *rest] for rest in segmentations(word[end:]))


def shares(cutter: Cutter, word: str) -> dict[tuple[int, ...], float]:
    draws = random.Random(0)
    counts = Counter(tuple(cutter.cut(word, draws)) for _ in range(N_DRAWS))
    return {ids: count / N_DRAWS for ids, count in counts.items()}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("word", ["a", "ab", "abc", "abcab", "cabca"])
def test_unigram_takes_every_way_by_its_probability(word: str, alpha: float) -> None:
    weights = {
        tuple(PIECES[piece][0] for piece in way): math.exp(alpha * sum(SCORES[piece] for piece in way))
        for way in segmentations(word)
    }
    found = shares(UnigramCutter(VOCABULARY, alpha), word)
    assert found.keys() <= weights.keys()
    for ids, weight in weights.items():
        expected = weight / sum(weights.values())
        assert found.get(ids, 0) == pytest.approx(expected, abs=5 * math.sqrt(expected / N_DRAWS))


@pytest.mark.parametrize("dropout", [0.0, 0.3, 1.0])
def test_bpe_passes_over_each_merge_by_chance(dropout: float) -> None:
    """Of "abc", "bc" (-2.8) is offered before "ab" (-3.5), and "abc" once either is there."""
    a, b, c, ab, bc, abc = (PIECES[piece][0] for piece in ("a", "b", "c", "ab", "bc", "abc"))
    cutter = BpeCutter(VOCABULARY, dropout)
    keep = 1 - dropout
    expected = {
        (abc,): keep * keep + dropout * keep * keep,
        (a, bc): keep * dropout,
        (ab, c): dropout * keep * dropout,
        (a, b, c): dropout * dropout,
    }
    found = shares(cutter, "abc")
    assert found == pytest.approx({way: share for way, share in expected.items() if share}, abs=0.02)


@pytest.mark.parametrize("kind", [UnigramCutter, BpeCutter])
def test_a_symbol_stays_whole(kind: type[UnigramCutter | BpeCutter]) -> None:
    assert shares(kind(VOCABULARY, 0.5), "<s>") == {(SYMBOL,): 1.0}


def test_a_character_that_is_no_piece_is_spelt() -> None:
    a, b = PIECES["a"][0], PIECES["b"][0]
    expected = [a, UNKNOWN, UNKNOWN, b]
    vocabulary = VOCABULARY._replace(best=lambda _: expected)
    for cutter in (UnigramCutter(vocabulary, 0.5), BpeCutter(vocabulary, 0.5)):
        assert cutter.cut("aéb", random.Random(0)) == expected


@pytest.mark.parametrize("kind", [UnigramCutter, BpeCutter])
def test_what_was_cut_before_changes_nothing(kind: type[UnigramCutter | BpeCutter]) -> None:
    used, draws = kind(VOCABULARY, 0.4), random.Random(0)
    for _ in range(100):
        used.cut("abcab", draws)
    fresh = kind(VOCABULARY, 0.4)
    cuts = [used.cut("abcabc", random.Random(seed)) for seed in range(50)]
    assert cuts == [fresh.cut("abcabc", random.Random(seed)) for seed in range(50)]
    assert len(set(map(tuple, cuts))) > 3
