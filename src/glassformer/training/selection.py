"""The validation metrics that can select a checkpoint; a new one is a row here and a choice in `TrainingConfig`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from glassformer.evaluation.scores import Score, bleu, chrf


class Metric(NamedTuple):
    """A figure of a validation, under its name in metrics.jsonl."""

    label: str  # in reports
    higher_is_better: bool
    # Scores translations against references, given sacreBLEU's tokenizer; None if translations are not needed.
    score: Callable[[Sequence[str], Sequence[str], str], Score] | None = None


METRICS: Final[dict[str, Metric]] = {
    "bleu": Metric("BLEU", higher_is_better=True, score=bleu),
    "chrf": Metric("chrF", higher_is_better=True, score=lambda hypotheses, references, _: chrf(hypotheses, references)),
    "loss": Metric("loss", higher_is_better=False),
}


def goodness(metric: str, figures: Mapping[str, Any]) -> float:
    """Return how good a validation is by `metric`, higher is better; one that lacks it is the worst."""
    value = float(figures.get(metric, math.nan))
    return -math.inf if math.isnan(value) else value if METRICS[metric].higher_is_better else -value
