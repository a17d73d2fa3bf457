"""Draws come as often as they are probable, and depend on nothing but seed, sentence, number and step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.hypotheses import Hypotheses
from glassformer.search.rules import Rules, make_rules
from glassformer.search.sample import noise, sample
from glassformer.text.vocab import BOS, EOS, PAD
from tests.search.toys import CPU, Toy, existing


def draw(toy: Toy, keys: list[int], rules: Rules | None = None, **settings: Any) -> Hypotheses:
    config = SearchConfig(method="sample", **settings)
    start = torch.full((len(keys),), BOS)
    return sample(toy.step, toy.start(len(keys)), start, config, torch.tensor(keys), rules=rules)


@dataclass
class Memoryless(Toy):
    """A toy for which all sentences are the same, so that a batch is many draws of one."""

    def logits(self, sentence: int, prefix: list[int]) -> Tensor:
        return super().logits(0, prefix)


def shares(toy: Toy, prefix: list[int], **settings: Any) -> Tensor:
    """Say how probable each next token is for a draw."""
    config = SearchConfig(method="sample", **settings)
    logits = toy.logits(0, prefix)
    logits[PAD] = -math.inf
    probs = (logits / config.temperature).softmax(dim=0)
    ranked, order = probs.sort(descending=True)
    kept = torch.ones_like(probs, dtype=torch.bool)
    if config.top_k:
        kept[config.top_k :] = False
    kept &= ranked.cumsum(dim=0) - ranked < config.top_p
    probs = probs.index_fill(0, order[~kept], 0.0)
    return probs / probs.sum()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.6},
        {"top_k": 4, "top_p": 0.8, "temperature": 1.5},
        {"seed": 2**40 + 5},
    ],
)
def test_draws_come_as_often_as_they_are_probable(settings: dict[str, Any]) -> None:
    """Chi-square over the first and the second token of 4,000 draws, half of them in one sentence's width."""
    toy, n_keys, width = Memoryless(7, 3, {EOS: -1.0}), 80, 50
    found = draw(toy, list(range(n_keys)), width=width, max_length=2, **settings)
    tokens = found.tokens.flatten(0, 1)
    first = shares(toy, [BOS], **settings)
    checked = [(first, tokens[:, 0])]
    for token in range(1, 7):
        if token != EOS and (tokens[:, 0] == token).sum() > 300:
            checked.append((shares(toy, [BOS, token], **settings), tokens[tokens[:, 0] == token, 1]))
    assert len(checked) > 1
    for probs, drawn in checked:
        counts = torch.bincount(drawn, minlength=7).double()
        assert counts[probs == 0].sum() == 0
        expected = (probs * len(drawn))[probs > 0]
        chi_square = ((counts[probs > 0] - expected) ** 2 / expected).sum()
        assert chi_square < 30  # six degrees of freedom at most: 22.5 would be one in a thousand


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_log_probability_is_the_models_own(temperature: float) -> None:
    toy = Toy(seed=5)
    found = draw(toy, [3, 1, 4], width=4, max_length=6, temperature=temperature, top_k=5, length_penalty=0.7)
    for sentence in range(3):
        hypotheses = existing(found, sentence)
        assert len(hypotheses) == 4
        for tokens, log_prob, score in hypotheses:
            assert log_prob == pytest.approx(sum(toy.log_probs(sentence, tokens)), abs=1e-9)
            length = max(1, len(tokens) - (tokens[-1] == EOS))
            assert score == pytest.approx(log_prob / length**0.7, abs=1e-9)
            assert (tokens[-1] == EOS) or len(tokens) == 6


def test_draws_do_not_depend_on_the_batch_nor_on_the_width() -> None:
    toy = Toy(seed=2)
    together = draw(toy, [11, 12, 13], width=5, max_length=8)
    for sentence, key in enumerate([11, 12, 13]):
        state = toy.start(3).keep(torch.tensor([sentence]))
        config = SearchConfig(method="sample", width=3, max_length=8)
        alone = sample(toy.step, state, torch.tensor([BOS]), config, torch.tensor([key]))
        assert existing(alone, 0) == existing(together, sentence)[:3]
        assert alone.margin.item() >= together.margin[sentence].item()


def test_seeds_sentences_and_draws_differ() -> None:
    toy, drawn = Memoryless(9, bias={EOS: -math.inf}), list[tuple[int, ...]]()
    for key, seed in ((5, 0), (5, 1), (5, 2**63), (-6, 0), (2**62, 0)):
        drawn += [tuple(tokens) for tokens, _, _ in existing(draw(toy, [key], width=8, seed=seed, max_length=20), 0)]
    assert len(set(drawn)) == len(drawn) == 40


def test_cold_draws_are_greedy_search() -> None:
    toy = Toy(seed=8)
    cold = draw(toy, [1, 2, 3], width=2, max_length=7, temperature=1e-9)
    alone = draw(toy, [1, 2, 3], width=2, max_length=7, top_k=1)
    greedy = toy.search(3, max_length=7)
    for sentence in range(3):
        right = existing(greedy, sentence)[0][0]
        assert [tokens for tokens, _, _ in existing(cold, sentence)] == [right, right]
        assert [tokens for tokens, _, _ in existing(alone, sentence)] == [right, right]


def test_rules_hold_for_draws() -> None:
    toy, settings = Toy(seed=1, bias={EOS: 1.0}), {"width": 6, "max_length": 9, "min_length": 4, "no_repeat_ngram": 2}
    config = SearchConfig(method="sample", **settings)
    rules = make_rules(config, CPU, prefixes=[[4, 5], [6]], suppressed=[[1], [5, 6]])
    found = draw(toy, [1, 2], rules, **settings)
    for sentence, prefix in enumerate([[4, 5], [6]]):
        for tokens, log_prob, _ in existing(found, sentence):
            assert log_prob == pytest.approx(sum(toy.log_probs(sentence, tokens)), abs=1e-9)
            assert tokens[: len(prefix)] == prefix
            assert EOS not in tokens[:4]
            pairs = list(pairwise(tokens))
            assert 1 not in tokens
            assert (5, 6) not in pairs
            assert len(set(pairs)) == len(pairs)


def test_noise_is_gumbels() -> None:
    """Mean gamma, variance pi^2 / 6, hardly two alike; and the noise of a token does not depend on its place."""
    tokens = torch.arange(1000).expand(100, -1)
    drawn = noise(torch.arange(100) - 50, tokens)
    assert drawn.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert drawn.var().item() == pytest.approx(math.pi**2 / 6, abs=0.05)
    assert len(set(drawn.flatten().tolist())) > 0.98 * drawn.numel()
    torch.testing.assert_close(noise(torch.arange(100) - 50, tokens.flip(1)), drawn.flip(1))
    lagged = drawn[:, 1:] * drawn[:, :-1], drawn[1:] * drawn[:-1]  # of neighbours among tokens, and among keys
    assert all(products.mean().item() == pytest.approx(0.5772**2, abs=0.03) for products in lagged)
