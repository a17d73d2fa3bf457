"""Rules are kept, and cost nothing but what they forbid: scores stay the model's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.search.hypotheses import Hypotheses
from glassformer.search.rules import Required, make_rules
from glassformer.text.vocab import EOS
from tests.search.toys import CPU, Toy, all_sequences, existing

WORDS = st.lists(st.integers(4, 6), min_size=1, max_size=3)
CONTINUING = {1, 6}


def contains(tokens: Sequence[int], sequence: Sequence[int]) -> bool:
    return any(list(tokens[i : i + len(sequence)]) == list(sequence) for i in range(len(tokens)))


def has_word(tokens: Sequence[int], sequence: Sequence[int]) -> bool:
    """Say whether a sequence comes and no token after it continues its last word."""
    ends = [i + len(sequence) for i in range(len(tokens)) if list(tokens[i : i + len(sequence)]) == list(sequence)]
    return any(CONTINUING.isdisjoint(tokens[end : end + 1]) for end in ends)


def begin_words(sequences: Sequence[Sequence[int]]) -> bool:
    return not any(sequence[0] in CONTINUING for sequence in sequences)


def continues(vocab: int = 7) -> torch.Tensor:
    return torch.isin(torch.arange(vocab), torch.tensor(sorted(CONTINUING)))


def search(toy: Toy, batch: int, *rules: Any, **settings: Any) -> Hypotheses:
    """Search under rules: prefixes, suppressed, required, continues."""
    named = dict(zip(("prefixes", "suppressed", "required", "continues"), rules, strict=False))
    return toy.search(batch, make_rules(SearchConfig(**settings), CPU, **named), **settings)


def check_scores(toy: Toy, found: Hypotheses) -> None:
    for sentence in range(len(found.scores)):
        for tokens, log_prob, _ in existing(found, sentence):
            assert log_prob == pytest.approx(sum(toy.log_probs(sentence, tokens)), abs=1e-9)


@hypothesis.settings(max_examples=60)
@given(
    prefixes=st.lists(st.lists(st.integers(4, 6), max_size=4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    width=st.integers(1, 4),
)
def test_a_forced_prefix_comes_first_and_the_rest_is_as_after_it(
    prefixes: list[list[int]], seed: int, width: int
) -> None:
    toy = Toy(seed=seed, bias={EOS: 0.5})
    found = search(toy, len(prefixes), prefixes, width=width, max_length=9)
    check_scores(toy, found)
    for sentence, prefix in enumerate(prefixes):
        assert existing(found, sentence)
        for tokens, _, _ in existing(found, sentence):
            assert tokens[: len(prefix)] == prefix
    if width == 1:
        for sentence, prefix in enumerate(prefixes):
            tokens = existing(found, sentence)[0][0]
            for place in range(len(prefix), len(tokens)):
                logits = toy.logits(sentence, [2, *tokens[:place]])
                logits[0] = -math.inf
                assert int(logits.argmax()) == tokens[place]


@hypothesis.settings(max_examples=100)
@given(
    suppressed=st.lists(WORDS, min_size=1, max_size=4),
    seed=st.integers(0, 99),
    width=st.integers(1, 4),
)
def test_suppressed_sequences_do_not_come(suppressed: list[list[int]], seed: int, width: int) -> None:
    toy = Toy(seed=seed, bias={EOS: -1.0})
    found = search(toy, 2, (), suppressed, width=width, max_length=8)
    check_scores(toy, found)
    for sentence in range(2):
        assert existing(found, sentence)
        for tokens, _, _ in existing(found, sentence):
            assert not any(contains(tokens, sequence) for sequence in suppressed)


@pytest.mark.parametrize("seed", range(5))
def test_only_what_is_suppressed_is_lost(seed: int) -> None:
    """A wide search finds all sequences but those that hold a suppressed one."""
    toy, suppressed = Toy(6, seed), [[4], [5, 5]]
    right = [s for s in all_sequences(6, 3) if not any(contains(s, w) for w in suppressed)]
    found = existing(search(toy, 1, (), suppressed, width=125, max_length=3), 0)
    assert sorted(tokens for tokens, _, _ in found) == right


@hypothesis.settings(max_examples=60)
@given(size=st.integers(1, 4), seed=st.integers(0, 99), width=st.integers(1, 4))
def test_no_ngram_comes_twice(size: int, seed: int, width: int) -> None:
    toy = Toy(seed=seed, bias={EOS: -2.0})
    found = search(toy, 2, no_repeat_ngram=size, width=width, max_length=14)
    check_scores(toy, found)
    for sentence in range(2):
        assert existing(found, sentence)
        for tokens, _, _ in existing(found, sentence):
            grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
            assert len(set(grams)) == len(grams)


@pytest.mark.parametrize("size", [1, 2])
def test_only_repeats_are_lost(size: int) -> None:
    toy = Toy(6, 3)
    grams = {tuple(s): [tuple(s[i : i + size]) for i in range(len(s) - size + 1)] for s in all_sequences(6, 3)}
    right = sorted(list(s) for s, all_grams in grams.items() if len(set(all_grams)) == len(all_grams))
    found = existing(search(toy, 1, no_repeat_ngram=size, width=125, max_length=3), 0)
    assert sorted(tokens for tokens, _, _ in found) == right


@hypothesis.settings(max_examples=150)
@given(
    required=st.lists(WORDS, min_size=1, max_size=3),
    seed=st.integers(0, 99),
    width=st.integers(1, 5),
    room=st.integers(0, 4),
    prefix=st.lists(st.integers(4, 6), max_size=2),
    groups=st.sampled_from([1, 1, 2]),
    ngram=st.sampled_from([0, 0, 2]),
    ending=st.floats(-2, 3),
    whole=st.booleans(),
)
def test_required_sequences_come_whenever_there_is_room(
    required: list[list[int]],
    seed: int,
    width: int,
    room: int,
    prefix: list[int],
    groups: int,
    ngram: int,
    ending: float,
    whole: bool,
) -> None:
    """As whole words too, though the likeliest next token is one that continues a word."""
    toy = Toy(seed=seed, bias={EOS: ending, 4: -3.0, 6: 2.0 * whole})
    holds = has_word if whole and begin_words(required) else contains
    needed = sum(map(len, {tuple(word) for word in required}))
    settings = {"width": groups * width, "groups": groups, "max_length": len(prefix) + needed + room}
    words = continues() if whole else None
    found = search(toy, 2, [prefix, []], (), required, words, no_repeat_ngram=ngram, **settings)
    check_scores(toy, found)
    for sentence in range(2):
        hypotheses = existing(found, sentence)
        assert hypotheses
        assert hypotheses[0][0][: len(prefix)] == prefix or sentence == 1
        for tokens, _, _ in hypotheses:
            assert all(holds(tokens, word) for word in required)


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_search_with_required_words_is_exhaustive(seed: int) -> None:
    toy, required = Toy(6, seed), [[4, 5], [1]]
    right = [s for s in all_sequences(6, 4) if all(contains(s[:3], word) for word in required)]  # leaves room to end
    best = max(right, key=lambda s: sum(toy.log_probs(0, s)))
    found = existing(search(toy, 1, (), (), required, width=400, max_length=4, length_penalty=0.0, stop="exact"), 0)
    assert found[0][0] == best
    assert sorted(tokens for tokens, _, _ in found) == right


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_search_loses_only_parts_of_words(seed: int) -> None:
    """A required word is found beside longer words that begin with it, in any order."""
    toy, required = Toy(7, seed), [[4], [5, 1]]
    right = [s for s in all_sequences(7, 4) if all(has_word(s[:3], word) and has_word(s, word) for word in required)]
    assert [4, 5, 1, EOS] in right
    settings = {"width": 1300, "max_length": 4, "length_penalty": 0.0, "stop": "exact"}
    found = existing(search(toy, 1, (), (), required, continues(), **settings), 0)
    assert sorted(tokens for tokens, _, _ in found) == right
    toy.bias = {6: 4.0}
    (best, *_), *_ = existing(search(toy, 1, (), (), [[4], [4, 6]], continues(), width=30, max_length=7), 0)
    assert has_word(best, [4])
    assert has_word(best, [4, 6])


def test_a_sequence_that_begins_in_a_word_comes_as_it_can() -> None:
    found = search(Toy(), 1, (), (), [[6, 4]], continues(), width=2, max_length=4)
    assert all(contains(tokens, [6, 4]) for tokens, _, _ in existing(found, 0))


def test_a_required_word_is_put_where_it_fits_not_only_at_the_end() -> None:
    """The beam keeps prefixes with and without the word, so it beats a search that is forced to it at last."""
    better = 0
    for seed in range(12):
        toy = Toy(9, seed)
        found = existing(search(toy, 1, (), (), [[4, 8]], width=6, max_length=8, length_penalty=0.0), 0)
        late = existing(search(toy, 1, (), (), [[4, 8]], width=1, max_length=8, length_penalty=0.0), 0)
        better += found[0][1] > late[0][1] + 1e-9
    assert better >= 9


@pytest.mark.parametrize("whole", [False, True])
@given(written=st.lists(st.integers(4, 6), max_size=6), words=st.lists(WORDS, min_size=1, max_size=3))
def test_what_is_missing_is_enough_and_can_be_made_less(
    written: list[int], words: list[list[int]], whole: bool
) -> None:
    sequences = tuple(torch.tensor(w) for w in sorted({tuple(w) for w in words}))
    used = torch.tensor(sorted({token for word in words for token in word}))
    hypothesis.assume(begin_words(words) or not whole)
    required = Required(sequences, used, continues(11) if whole else None)
    tokens = torch.tensor(written, dtype=torch.long)
    missing = int(required.missing(tokens))
    assert (missing == 0) == all((has_word if whole else contains)(written, word) for word in words)
    after, other, glued = required.missing_after(tokens)
    assert [int(required.missing(torch.cat([tokens, u.view(1)]))) for u in required.tokens] == after.tolist()
    assert int(required.missing(torch.cat([tokens, torch.tensor([9])]))) == int(other)
    assert int(required.missing(torch.cat([tokens, torch.tensor([1])]))) == int(glued)
    if missing:
        assert int(after.min()) <= missing - 1


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_length=3"):
        make_rules(SearchConfig(max_length=3), CPU, prefixes=[[4, 5]], required=[[5, 6]])
    with pytest.raises(ConfigError, match=r"\[5\] are suppressed"):
        make_rules(SearchConfig(), CPU, suppressed=[[5]], required=[[4, 5, 6]])


def test_no_rules_are_no_rules() -> None:
    assert make_rules(SearchConfig(), CPU, prefixes=[[], []], required=[[]]) is None
