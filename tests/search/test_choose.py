"""Groups differ, and a margin says truly how little it takes to change the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.beam import beam_search
from glassformer.search.rules import make_rules
from glassformer.search.sample import sample
from glassformer.text.vocab import BOS, EOS
from tests.search.toys import CPU, Toy, existing


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_may_not_agree_begin_differently(seed: int) -> None:
    """With a cost beyond any log-probability each group goes another way from the first token on."""
    toy = Toy(9, seed, {EOS: -1.0})
    found = toy.search(2, width=4, groups=4, diversity=1e3, max_length=6)
    for sentence in range(2):
        hypotheses = existing(found, sentence)
        assert len({tokens[0] for tokens, _, _ in hypotheses if tokens[0] != EOS}) >= 3
        for tokens, log_prob, _ in hypotheses:
            assert log_prob == pytest.approx(sum(toy.log_probs(sentence, tokens)), abs=1e-9)
        scores = [score for _, _, score in hypotheses]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_groups_at_no_cost_are_the_same_search_again(seed: int, width: int) -> None:
    toy = Toy(seed=seed)
    plain = toy.search(3, width=width, max_length=7)
    grouped = toy.search(3, width=3 * width, groups=3, diversity=0.0, max_length=7)
    for sentence in range(3):
        assert existing(grouped, sentence) == sorted(
            existing(plain, sentence) * 3, key=lambda hypothesis: -hypothesis[2]
        )


def test_the_first_group_does_not_care_for_the_others() -> None:
    toy = Toy(seed=4)
    best = existing(toy.search(1, width=2, max_length=7), 0)[0]
    assert best in existing(toy.search(1, width=6, groups=3, diversity=0.7, max_length=7), 0)


@dataclass
class Shaken(Toy):
    """The same toy, each logit a little off, as another batch shape would have it."""

    by: float = 0.0

    def logits(self, sentence: int, prefix: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((sentence, *prefix)) % 2**31)
        noise = torch.rand(self.vocab, generator=generator, dtype=torch.float64) * 2 - 1
        return super().logits(sentence, prefix) + self.by * noise


KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"width": 1},
    "beam": {"width": 3},
    "exact": {"width": 2, "stop": "exact"},
    "gnmt": {"width": 3, "penalty_form": "gnmt", "length_penalty": 0.6},
    "groups": {"width": 4, "groups": 2},
    "required": {"width": 3},
    "draws": {"method": "sample", "width": 3},
    "hot draws": {"method": "sample", "width": 2, "temperature": 1.7, "top_k": 3},
    "draws from few": {"method": "sample", "width": 2, "temperature": 0.7, "top_p": 0.7},
    "draws from fewer": {"method": "sample", "width": 2, "top_k": 4, "top_p": 0.8},
}


@pytest.mark.parametrize("kind", KINDS)
def test_less_than_the_margin_changes_nothing(kind: str) -> None:
    """And more than it does, now and then: the margin is neither too large nor a mere 0."""
    config = SearchConfig(max_length=6, **KINDS[kind])
    rules = make_rules(config, CPU, required=[[4, 5], [6]] if kind == "required" else ())

    def run(toy: Toy) -> tuple[list[list[int]], float]:
        if config.method == "beam":
            found = toy.search(1, rules, **config.model_dump())
            return [existing(found, 0)[0][0]], found.margin.item()
        found = sample(toy.step, toy.start(1), torch.tensor([BOS]), config, torch.tensor([17]))
        return [tokens for tokens, _, _ in existing(found, 0)], found.margin.item()

    changed, margins = 0, []
    for seed in range(120):
        right, margin = run(Toy(8, seed, {EOS: 0.5}))
        assert margin >= 0
        margins.append(margin)
        # a log-probability moves by at most twice the shake, a sum of six by twelve times, a gap by twice that
        assert run(Shaken(8, seed, {EOS: 0.5}, by=margin / 25))[0] == right
        changed += run(Shaken(8, seed, {EOS: 0.5}, by=3 * margin))[0] != right
    assert changed > 5
    assert sum(margin > 1e-3 for margin in margins) > 60


@hypothesis.settings(max_examples=40)
@given(seed=st.integers(0, 999), width=st.integers(1, 4))
def test_the_margin_of_a_sentence_is_its_own(seed: int, width: int) -> None:
    toy = Toy(seed=seed)
    together = toy.search(3, width=width, max_length=6)
    for sentence in range(3):
        state = toy.start(3).keep(torch.tensor([sentence]))
        alone = beam_search(toy.step, state, torch.tensor([BOS]), SearchConfig(width=width, max_length=6))
        assert together.margin[sentence].item() == pytest.approx(alone.margin.item(), abs=1e-12)
