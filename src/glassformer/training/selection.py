"""The validation metrics that can select a checkpoint; a new one is a row here and a choice in `TrainingConfig`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Metric(NamedTuple):
    """A figure of a validation, under its name in metrics.jsonl."""

    label: str  # in reports, and to `measure`
    higher_is_better: bool
    is_score: bool  # of translations


METRICS: Final[dict[str, Metric]] = {
    "bleu": Metric("BLEU", higher_is_better=True, is_score=True),
    "chrf": Metric("chrF", higher_is_better=True, is_score=True),
    "loss": Metric("loss", higher_is_better=False, is_score=False),
}
SCORES: Final = {name: metric.label for name, metric in METRICS.items() if metric.is_score}


def score_of(metric: str) -> str:
    """Return by which score to judge the translations of a run that selects by `metric`."""
    return metric if metric in SCORES else "bleu"


def goodness(metric: str, figures: Mapping[str, Any]) -> float:
    """Return how good a validation is by `metric`, higher is better; one that lacks it is the worst."""
    value = float(figures.get(metric, math.nan))
    return -math.inf if math.isnan(value) else value if METRICS[metric].higher_is_better else -value
