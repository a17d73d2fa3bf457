"""Several models searched as one hold probable the mean of what they hold probable."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from glassformer.config import SearchConfig
from glassformer.search.beam import beam_search
from glassformer.search.ensemble import States, ensemble
from glassformer.search.hypotheses import Hypotheses
from glassformer.text.vocab import BOS
from tests.search.toys import Toy, all_sequences, existing, score


def search(toys: list[Toy], batch: int, **settings: Any) -> Hypotheses:
    state = States(tuple(toy.start(batch) for toy in toys))
    step = ensemble([toy.step for toy in toys])
    return beam_search(step, state, torch.full((batch,), BOS), SearchConfig(**settings))


def log_prob(toys: list[Toy], sentence: int, tokens: list[int]) -> float:
    steps = zip(*(toy.log_probs(sentence, tokens) for toy in toys), strict=True)
    return sum(math.log(sum(math.exp(each) for each in step) / len(toys)) for step in steps)


@pytest.mark.parametrize("width", [1, 3])
def test_twice_the_same_model_is_that_model(width: int) -> None:
    toy = Toy(seed=3)
    twice, once = search([toy, toy], 3, width=width, max_length=7), toy.search(3, width=width, max_length=7)
    assert torch.equal(twice.tokens, once.tokens)
    torch.testing.assert_close(twice.scores, once.scores, atol=1e-10, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_search_by_several_is_exhaustive(seed: int) -> None:
    toys = [Toy(5, seed), Toy(5, seed + 10), Toy(5, seed + 20)]
    sequences = all_sequences(5, 3)
    found = search(toys, 2, width=len(sequences), max_length=3, length_penalty=0.6)
    for sentence in range(2):
        right = sorted(((score(log_prob(toys, sentence, s), s, 0.6), s) for s in sequences), reverse=True)
        assert [tokens for tokens, _, _ in existing(found, sentence)] == [tokens for _, tokens in right]
        assert [s for _, _, s in existing(found, sentence)] == pytest.approx([s for s, _ in right], abs=1e-9)


def test_several_are_not_one_of_them() -> None:
    one, other = Toy(seed=1), Toy(seed=2)
    best = existing(search([one, other], 1, width=2, max_length=6), 0)[0]
    assert best[1] != pytest.approx(sum(one.log_probs(0, best[0])))
    assert best[1] == pytest.approx(log_prob([one, other], 0, best[0]))
