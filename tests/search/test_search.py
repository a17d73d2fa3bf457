"""The entry to search: the method decides, and the margin is that of all hypotheses asked for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from glassformer.config import SearchConfig
from glassformer.search.hypotheses import Hypotheses
from glassformer.search.mbr import agreement, ranking
from glassformer.search.sample import sample
from glassformer.search.search import needs_attention, refuses, search
from glassformer.text.vocab import BOS
from tests.search.toys import Toy

KEYS = torch.tensor([17, 4])


def run(n_best: int = 1, **settings: Any) -> Hypotheses:
    toy, config = Toy(), SearchConfig(max_length=6, **settings)
    attention = toy.attention if needs_attention(config) else None
    start = torch.full((2,), BOS)
    return search(toy.step, toy.start(2), start, config, n_best=n_best, keys=KEYS, attention=attention)


def same(a: Hypotheses, b: Hypotheses) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "settings", [{}, {"width": 3}, {"width": 4, "groups": 2}, {"width": 3, "coverage_penalty": 0.2}]
)
def test_a_beam_is_beam_search(settings: dict[str, Any]) -> None:
    assert same(run(**settings), Toy().search(2, max_length=6, **settings))


def test_draws_are_samples_whoever_ranks_them() -> None:
    config, toy = SearchConfig(method="sample", width=3, max_length=6), Toy()
    drawn = sample(toy.step, toy.start(2), torch.full((2,), BOS), config, KEYS)
    for method in ("sample", "mbr"):
        assert same(run(method=method, width=3), drawn)
        assert same(run(2, method=method, width=3), drawn)


@pytest.mark.parametrize("n_best", [2, 3, 4])
def test_the_margin_is_at_most_the_gap_of_any_two_that_are_asked_for(n_best: int) -> None:
    one, several = run(width=4), run(n_best, width=4)
    assert torch.equal(one.tokens, several.tokens)
    for row in range(2):
        scores = [score for score in several.scores[row].tolist()[: n_best + 1] if score > -math.inf]
        expected = min([one.margin[row].item(), *(a - b for a, b in pairwise(scores))])
        assert several.margin[row].item() == pytest.approx(expected)


def test_what_a_search_needs_and_refuses() -> None:
    assert needs_attention(SearchConfig(coverage_penalty=0.1))
    assert not needs_attention(SearchConfig(coverage_penalty=0.1, method="sample"))
    assert refuses(SearchConfig(), has_required=True) is None
    assert refuses(SearchConfig(method="mbr"), has_required=True) == "required words with method=mbr"
    assert refuses(SearchConfig(method="mbr"), has_required=False) is None


def test_ranking_is_by_agreement_and_keeps_the_order_of_ties() -> None:
    texts = ["a cat", "the dog", "mouse", "the dog"]
    means = agreement(texts)
    assert ranking(texts) == [(i, means[i]) for i in (1, 3, *sorted((0, 2), key=lambda i: -means[i]))]
