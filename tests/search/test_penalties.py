"""Scores are what the formulas say, and a search that stops exactly gives nothing up."""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.search.beam import beam_search
from glassformer.search.penalties import best_possible
from glassformer.text.vocab import BOS, EOS
from tests.search.toys import Toy, all_sequences, existing


def right_score(toy: Toy, sentence: int, tokens: list[int], config: SearchConfig) -> float:
    """Write the formulas of Wu et al. (2016) down once more."""
    length = len(tokens) - (tokens[-1] == EOS)
    base = (5 + length) / 6 if config.penalty_form == "gnmt" else max(1, length)
    result: float = sum(toy.log_probs(sentence, tokens)) / base**config.length_penalty
    if config.coverage_penalty:
        steps = [toy.attend(sentence, [BOS, *tokens[:t]]) for t in range(len(tokens))]
        for position in range(3):
            covered = sum(step[position].item() for step in steps)
            result += config.coverage_penalty * math.log(min(covered, 1.0))
    return result


settings = st.fixed_dictionaries(
    {
        "length_penalty": st.sampled_from([-1.0, -0.3, 0.0, 0.6, 1.0, 2.5]),
        "penalty_form": st.sampled_from(["power", "gnmt"]),
        "coverage_penalty": st.sampled_from([0.0, 0.2, 2.0]),
        "min_length": st.integers(0, 2),
        "stop": st.sampled_from(["first", "exact"]),
    }
)


@hypothesis.settings(max_examples=80)
@given(changes=settings, seed=st.integers(0, 99), width=st.integers(1, 5), ending=st.floats(-2, 2))
def test_the_score_is_what_the_formula_says(changes: dict[str, Any], seed: int, width: int, ending: float) -> None:
    toy, config = Toy(seed=seed, bias={EOS: ending}), SearchConfig(width=width, max_length=6, **changes)
    found = toy.search(2, **config.model_dump())
    for sentence in range(2):
        hypotheses = existing(found, sentence)
        assert hypotheses
        for tokens, log_prob, score in hypotheses:
            assert log_prob == pytest.approx(sum(toy.log_probs(sentence, tokens)), abs=1e-9)
            assert score == pytest.approx(right_score(toy, sentence, tokens, config), abs=1e-9)
            assert EOS not in tokens[: config.min_length]


@hypothesis.settings(max_examples=60)
@given(changes=settings, seed=st.integers(0, 99), ending=st.floats(-2, 4))
def test_a_wide_exact_search_is_exhaustive(changes: dict[str, Any], seed: int, ending: float) -> None:
    """The width is half of what would hold everything, so that it is the rule that must not stop too early."""
    toy, limit = Toy(5, seed, {EOS: ending}), 4
    config = SearchConfig(width=60, max_length=limit, **{**changes, "stop": "exact"})
    sequences = [s for s in all_sequences(5, limit) if EOS not in s[: config.min_length]]
    scores = {tuple(s): right_score(toy, 0, s, config) for s in sequences}
    ranked = sorted(scores, key=lambda s: -scores[s])[:60]
    found = existing(toy.search(1, **config.model_dump()), 0)
    if config.length_penalty == 0 and not config.coverage_penalty:  # then a prefix is never worse than what it becomes
        assert [tuple(tokens) for tokens, _, _ in found] == ranked
    wide = toy.search(1, **{**config.model_dump(), "width": len(sequences)})
    assert tuple(existing(wide, 0)[0][0]) == ranked[0]
    assert len(existing(wide, 0)) == len(sequences)


@hypothesis.settings(max_examples=100)
@given(changes=settings, seed=st.integers(0, 199), width=st.integers(1, 4), ending=st.floats(-2, 4))
def test_exact_finds_what_never_stopping_finds(changes: dict[str, Any], seed: int, width: int, ending: float) -> None:
    """Against a search with lists that goes on to the limit, whatever it has found."""
    toy = Toy(6, seed, {EOS: ending})
    config = SearchConfig(width=width, max_length=6, **{**changes, "stop": "exact"})
    beams, done = [(0.0, [BOS])], list[tuple[float, list[int]]]()
    for length in range(1, config.max_length + 1):
        candidates = [
            (total + log_prob, [*prefix, token])
            for total, prefix in beams
            for token, log_prob in enumerate(toy.logits(0, prefix).log_softmax(dim=0).tolist())
            if token != 0 and not (token == EOS and length <= config.min_length)
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        for _, prefix in candidates[:width]:
            if prefix[-1] == EOS or length == config.max_length:
                done.append((right_score(toy, 0, prefix[1:], config), prefix[1:]))
        beams = [(total, prefix) for total, prefix in candidates if prefix[-1] != EOS][:width]
    right = sorted(done, reverse=True)[:width]
    assert [tokens for tokens, _, _ in existing(toy.search(1, **config.model_dump()), 0)] == [t for _, t in right]


def test_exact_can_stop_early_and_first_can_miss_the_best() -> None:
    hasty = Toy(seed=1, bias={EOS: 6.0})
    hasty.search(1, width=1, max_length=30, length_penalty=0.0, stop="exact")
    assert len(hasty.calls) < 30
    missed = 0
    for seed in range(20):
        first, exact = (
            Toy(seed=seed).search(1, width=2, max_length=8, length_penalty=1.0, stop=stop).scores[0, 0]
            for stop in ("first", "exact")
        )
        assert exact >= first - 1e-12
        missed += bool(exact > first + 1e-9)
    assert missed


@given(
    total=st.floats(-50, 0),
    length=st.integers(0, 9),
    more=st.integers(0, 9),
    loss=st.floats(0, 5),
    alpha=st.floats(-2, 2),
    form=st.sampled_from(["power", "gnmt"]),
)
def test_no_continuation_beats_the_bound(
    total: float, length: int, more: int, loss: float, alpha: float, form: Any
) -> None:
    config = SearchConfig(max_length=length + more + 1, length_penalty=alpha, penalty_form=form)
    bound = best_possible(torch.tensor(total, dtype=torch.float64), length, config).item()
    for final in range(length, config.max_length + 1):
        base = (5 + final) / 6 if form == "gnmt" else max(1, final)
        assert (total - loss) / base**alpha <= bound + 1e-9


def test_coverage_needs_attention() -> None:
    toy = Toy()
    with pytest.raises(ConfigError, match="coverage_penalty"):
        beam_search(toy.step, toy.start(1), torch.tensor([BOS]), SearchConfig(coverage_penalty=0.1))
