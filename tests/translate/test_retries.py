"""Loops: what says the same again and again is found, and what the source says again and again is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.translate.retries import NGRAM, Repetition, is_loop, longest_repetition

TOKENS = st.lists(st.integers(0, 9), max_size=20)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True), st.integers(2, 9), TOKENS)
def test_a_repetition_is_found(unit: list[int], copies: int, before: list[int]) -> None:
    found = longest_repetition([*before, *unit * copies])
    assert found.n_tokens >= len(unit) * copies
    assert longest_repetition(unit * copies) == Repetition(len(unit), copies)


@pytest.mark.parametrize(
    ("tokens", "source", "loops"),
    [
        ([7] * 12, [1, 2], True),
        ([7] * 11, [1, 2], False),
        ([1, 2, 3] * 4, [1, 2], True),
        ([5, *[1, 2, 3, 4] * 4, 6], [1, 2], True),
        ([1, 2, 3, 4, 5, 6] * 3, [1, 2], False),  # three times is a chorus
        ([7] * 12, [8] * 12, False),
        ([7] * 40, [8] * 12, True),
        ([], [], False),
        (list(range(100)), [1], False),
    ],
)
def test_a_loop_is_more_than_the_source_says(tokens: list[int], source: list[int], loops: bool) -> None:
    assert is_loop(tokens, source) is loops


@given(st.lists(st.integers(0, 2), max_size=60))
def test_without_repeated_ngrams_there_is_no_loop(tokens: list[int]) -> None:
    """What a search with the rule against it finds is never a loop."""
    ngrams = list(zip(*(tokens[start:] for start in range(NGRAM)), strict=False))
    if len(set(ngrams)) == len(ngrams):
        assert not is_loop(tokens, [])


@given(st.lists(st.integers(0, 3), max_size=60))
def test_the_short_cut_changes_nothing(tokens: list[int]) -> None:
    found = longest_repetition(tokens)
    assert is_loop(tokens, []) == (found.copies >= 4 and found.n_tokens >= 12)
