"""Random numbers that depend on a key."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.seeding import draw, draw_order, draw_seeds

KEYS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6)


@given(KEYS, KEYS)
def test_a_key_draws_the_same_again_and_another_does_not(one: list[int], other: list[int]) -> None:
    assert (draw(one, 8) == draw(one, 8)).all()
    assert draw_seeds(one, 4) == draw_seeds(one, 4)
    if one != other:
        assert (draw(one, 8) != draw(other, 8)).any()
        assert draw_seeds(one, 4) != draw_seeds(other, 4)


def test_a_zero_more_is_another_key() -> None:
    assert (draw([1], 8) != draw([1, 0], 8)).any()


def test_what_a_seed_means_does_not_change() -> None:
    """A run that resumes under another version of numpy must draw what it would have drawn."""
    assert draw([1, 2, 3], 2).tolist() == [0.7955955324543236, 0.5908917223815944]
    assert draw_order([1, 2, 3], 6).tolist() == [5, 2, 4, 1, 3, 0]
    assert draw_seeds([1, 2, 3], 2) == [1612568899, 3040865467]


def test_numbers_are_even() -> None:
    numbers = draw([0], 1000, 10)
    assert numbers.shape == (1000, 10)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert abs(numbers.mean() - 0.5) < 0.01


@given(KEYS, st.integers(0, 50))
def test_an_order_has_everything_once(address: list[int], count: int) -> None:
    assert sorted(draw_order(address, count).tolist()) == list(range(count))
    assert draw_order(address, count).dtype == np.int64
