"""Calibration: turn the probability of a translation into the share of its words that a reference confirms.

A model's own probabilities are too high where it knows little and too low where there are many good ways to say a
thing. Two numbers, fitted on a validation set, correct that (Platt 1999); the expected calibration error (Naeini et al.
2015) says how far confidence and quality are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.config import Calibration
from glassformer.data.pair import Pair
from glassformer.errors import DataError
from glassformer.store.folder import read_config, write_about
from glassformer.store.registry import find_model
from glassformer.translate.translator import Translator

_BINS: Final = 10  # each with as many sentences
_STEPS: Final = 50  # of Newton's method; it takes about six
_MIN_SENTENCES: Final = 100
_RIDGE: Final = 1e-3  # keeps the slope finite where confidence says nothing about quality


class Bin(NamedTuple):
    """Sentences of similar confidence."""

    n_sentences: int
    confidence: float  # mean
    quality: float  # mean


class Reliability(NamedTuple):
    """How well confidence predicts quality on a test set."""

    error: float  # expected calibration error
    bins: list[Bin]  # by rising confidence


class CalibrationResult(NamedTuple):
    """A calibration, and how well confidence predicts quality without and with it."""

    calibration: Calibration
    before: Reliability
    after: Reliability


def confirmed_share(hypothesis: str, reference: str) -> float:
    """Return the share of a translation's words that are also in the reference, in the same order."""
    words, others = (text.casefold().split() for text in (_spaced(hypothesis), _spaced(reference)))
    if not words:
        return float(not others)
    row = [0] * (len(others) + 1)  # lengths of longest common subsequences
    for word in words:
        before = row
        row = [0]
        for place, other in enumerate(others):
            row.append(before[place] + 1 if word == other else max(row[place], before[place + 1]))
    return row[-1] / len(words)


def _spaced(text: str) -> str:
    """Put spaces around punctuation, so that it counts by itself."""
    return "".join(c if c.isalnum() or c in "'’-" or c.isspace() else f" {c} " for c in text)


def probabilities_and_quality(
    translator: Translator, pairs: Sequence[Pair]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Translate pairs and return, for each, the model's own probability and the confirmed share of its translation."""
    found = translator.results([pair.src for pair in pairs])
    quality = [confirmed_share(one.text, pair.tgt) for one, pair in zip(found, pairs, strict=True)]
    return np.array([one.probability for one in found]), np.array(quality)


def calibrate(
    model: str | Path, dev: Sequence[Pair], test: Sequence[Pair], *, engine: str = "auto"
) -> CalibrationResult:
    """Fit the calibration of a model on `dev`, write it into its folder, and measure it on `test`."""
    folder = find_model(model)
    with Translator.load(folder, engine=engine) as translator:
        found = fit(*probabilities_and_quality(translator, dev))
        raw, quality = probabilities_and_quality(translator, test)
    write_about(folder, read_config(folder).about.model_copy(update={"calibration": found}))
    calibrated = np.array([found.confidence(p) for p in raw])
    return CalibrationResult(found, reliability(raw, quality), reliability(calibrated, quality))


def fit(probabilities: NDArray[np.float64], quality: NDArray[np.float64]) -> Calibration:
    """Return the calibration under which the observed quality is most likely."""
    if len(quality) < _MIN_SENTENCES:
        raise DataError(f"calibration needs at least {_MIN_SENTENCES} sentences, got {len(quality)}")
    x = np.stack([np.ones_like(quality), [Calibration.logit(p) for p in probabilities]], axis=1)  # (N, 2)
    weights = np.zeros(2)
    for _ in range(_STEPS):
        predicted = (1 + np.tanh(x @ weights / 2)) / 2  # the logistic function, without overflow
        gradient = x.T @ (predicted - quality) + _RIDGE * weights
        curvature = (x * (predicted * (1 - predicted))[:, None]).T @ x + _RIDGE * np.eye(2)
        weights = weights - np.linalg.solve(curvature, gradient)
    if weights[1] <= 0:  # the probability says nothing: the mean is the best that can be said
        return Calibration(offset=Calibration.logit(float(quality.mean())), slope=0.0)
    return Calibration(offset=float(weights[0]), slope=float(weights[1]))


def reliability(confidences: NDArray[np.float64], quality: NDArray[np.float64]) -> Reliability:
    """Compare confidence with quality in bins of equal size."""
    order = np.argsort(confidences, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    bins = [Bin(len(part), float(confidences[part].mean()), float(quality[part].mean())) for part in parts]
    error = sum(one.n_sentences * abs(one.confidence - one.quality) for one in bins) / max(len(order), 1)
    return Reliability(error, bins)
