"""Learning rates: warm-up, peak and the way down."""

from __future__ import annotations

import itertools

import pytest

from glassformer.config import TrainingConfig
from glassformer.training.adam import learning_rate

SCHEDULES = ("inverse-sqrt", "cosine", "linear", "constant")


def test_the_papers_formula() -> None:
    config = TrainingConfig(schedule="paper", lr=1.0, warmup=4000)
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        assert learning_rate(step, config, 512) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_rises_in_a_line_and_never_again(schedule: str) -> None:
    config = TrainingConfig.parse({"schedule": schedule, "lr": 0.01, "warmup": 50, "max_updates": 200}, "test")
    rates = [learning_rate(step, config, 64) for step in range(1, 201)]
    assert rates[:50] == pytest.approx([0.01 * step / 50 for step in range(1, 51)])
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[49:]))
    assert max(rates) == pytest.approx(0.01)


def test_where_they_end() -> None:
    ends = {
        schedule: learning_rate(
            200, TrainingConfig.parse({"schedule": schedule, "lr": 1, "warmup": 50, "max_updates": 200}, "test"), 64
        )
        for schedule in SCHEDULES
    }
    assert ends == pytest.approx({"inverse-sqrt": 0.5, "cosine": 0.0, "linear": 0.0, "constant": 1.0}, abs=1e-12)


def test_no_warm_up_begins_at_the_top() -> None:
    assert learning_rate(1, TrainingConfig(schedule="constant", lr=0.3, warmup=0), 64) == 0.3
