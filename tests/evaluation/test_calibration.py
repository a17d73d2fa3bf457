"""Confidence after calibration is the share of words that references confirm, and a model folder keeps it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from glassformer import Translator
from glassformer.cli import app
from glassformer.config import Calibration
from glassformer.errors import DataError
from glassformer.evaluation.calibration import confirmed_share, fit, reliability
from glassformer.store.folder import read_config

OLD = Path(__file__).parents[1] / "v0_1" / "model"
PAIRS = Path(__file__).parents[1] / "v0_1" / "pocket.tsv"


@pytest.mark.parametrize(
    ("hypothesis", "reference", "share"),
    [
        ("The cat sleeps.", "the cat sleeps.", 1.0),
        ("The dog sleeps.", "the cat sleeps.", 3 / 4),
        ("sleeps cat", "cat sleeps", 1 / 2),  # the order counts
        ("a b c d", "x y", 0.0),
        ("", "", 1.0),
        ("", "a", 0.0),
    ],
)
def test_the_share_of_words_that_a_reference_confirms(hypothesis: str, reference: str, share: float) -> None:
    assert confirmed_share(hypothesis, reference) == pytest.approx(share)


def test_a_planted_calibration_is_found() -> None:
    planted = Calibration(offset=-0.7, slope=0.4)
    probabilities = np.random.default_rng(0).uniform(0.01, 0.99, 4000)
    expected = np.array([planted.confidence(p) for p in probabilities])
    found = fit(probabilities, np.random.default_rng(1).binomial(20, expected) / 20)
    assert found.offset == pytest.approx(-0.7, abs=0.05)
    assert found.slope == pytest.approx(0.4, abs=0.05)
    raw = reliability(probabilities, expected)
    calibrated = reliability(np.array([found.confidence(p) for p in probabilities]), expected)
    assert raw.error > 0.1
    assert calibrated.error < 0.01
    assert sum(one.n_sentences for one in raw.bins) == 4000
    assert [one.confidence for one in raw.bins] == sorted(one.confidence for one in raw.bins)


def test_confidence_that_says_nothing_becomes_the_mean() -> None:
    found = fit(np.full(200, 1.0), np.full(200, 0.25))
    assert found.confidence(1.0) == pytest.approx(0.25, abs=0.01)
    with pytest.raises(DataError, match="at least 100 sentences, got 3"):
        fit(np.ones(3), np.ones(3))


@given(st.floats(0, 1), st.floats(-5, 5), st.floats(0, 5))
def test_a_confidence_is_a_share_and_rises_with_the_probability(p: float, offset: float, slope: float) -> None:
    calibration = Calibration(offset=offset, slope=slope)
    assert 0 <= calibration.confidence(p) <= 1
    assert calibration.confidence(p) <= calibration.confidence(min(p + 0.1, 1.0))
    assert Calibration().confidence(p) == pytest.approx(p, abs=2e-6)


def test_the_command_writes_the_calibration_and_draws_it(tmp_path: Path) -> None:
    folder, dev, page = tmp_path / "model", tmp_path / "dev.tsv", tmp_path / "page.html"
    shutil.copytree(OLD, folder)
    dev.write_text(PAIRS.read_text(encoding="utf-8") * 20, encoding="utf-8")
    before = Translator.load(folder, engine="torch").results("bonjour")
    assert before.confidence == before.probability
    words = ["calibrate", str(folder), "--dev", str(dev), "--html", str(page), "--engine", "torch"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "error" in answer.output
    calibration = read_config(folder).about.calibration
    assert calibration is not None
    after = Translator.load(folder, engine="torch").results("bonjour")
    assert after.probability == before.probability
    assert after.confidence == pytest.approx(calibration.confidence(before.probability))
    assert page.read_text(encoding="utf-8").count("<svg") == 2
