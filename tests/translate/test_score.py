"""Scores of given translations: what the model says of them, whatever pairs stand beside them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.data.pair import Pair
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About, save_model
from glassformer.text.vocab import EOS
from glassformer.translate.score import PairScore, log_probs_of, score_pairs
from tests.models import build
from tests.translate.fakes import tokenizers

SOURCES = ["Le chat dort.", "Un chien court dans la rue. Il est noir.", "x", "la souris " * 5]
TARGETS = ["The cat sleeps.", "A dog runs in the street.", "the mouse " * 5, "y"]


def model(dtype: torch.dtype = torch.float64) -> Transformer:
    size = tokenizers().src.vocab_size
    return build(dtype=dtype, src_vocab=size, tgt_vocab=size, max_positions=60)


def pairs(sources: list[str], targets: list[str]) -> list[Pair]:
    return [Pair(*texts, "file", line) for line, texts in enumerate(zip(sources, targets, strict=True), 1)]


def test_the_score_is_the_models_own() -> None:
    """Ask the model for each token of a target and for its end mark, one pair at a time."""
    scores = score_pairs(model(), tokenizers(), pairs(SOURCES, TARGETS))
    for source, target, score in zip(SOURCES, TARGETS, scores, strict=True):
        src, tgt = tokenizers().src.encode(source), [*tokenizers().tgt.encode(target), EOS]
        with torch.inference_mode():
            memory = model().encode(torch.tensor([[*src, EOS]]))
            log_probs = model().decode(torch.tensor([[model().start_id, *tgt[:-1]]]), memory).log_softmax(dim=-1)
        assert score.n_tokens == len(tgt)
        expected = log_probs[0, range(len(tgt)), tgt]
        assert score.log_prob == pytest.approx(expected.sum().item())
        assert log_probs_of(model(), [src, src[:1]], [tgt[:-1], []])[0] == pytest.approx(expected.tolist())


def test_a_pair_is_scored_as_if_alone() -> None:
    together = list(score_pairs(model(), tokenizers(), pairs(SOURCES, TARGETS)))
    for source, target, score in zip(SOURCES, TARGETS, together, strict=True):
        (alone,) = score_pairs(model(), tokenizers(), pairs([source], [target]))
        assert alone.n_tokens == score.n_tokens
        assert alone.log_prob == pytest.approx(score.log_prob)


def test_perplexity() -> None:
    assert PairScore(-4 * math.log(5), 4).perplexity == pytest.approx(5)
    assert math.isnan(PairScore(math.nan, 4).perplexity)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(model(torch.float32), tmp_path / "model", About())
    tokenizers().save(tmp_path / "model")
    return tmp_path / "model"


def test_the_command_scores_each_pair_and_all(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    lines = [f"{source}\t{target}" for source, target in zip(SOURCES, TARGETS, strict=True)]
    file.write_text("\n".join([*lines, "no pair", f"{'chat ' * 100}\tcat"]) + "\n", encoding="utf-8")
    answer = CliRunner().invoke(app, ["score", str(folder), str(file)], catch_exceptions=False)
    rows = [[float(cell) for cell in line.split("\t")] for line in answer.stdout.splitlines()]
    assert len(rows) == 5
    assert math.isnan(rows[-1][0])
    for log_prob, n_tokens, perplexity in rows[:-1]:
        assert perplexity == pytest.approx(math.exp(-log_prob / n_tokens), rel=1e-3)
    total, count = sum(row[0] for row in rows[:-1]), sum(row[1] for row in rows[:-1])
    assert "1 skipped" in answer.stderr
    assert "1 pairs not scored: longer" in answer.stderr
    told = float(answer.stderr.split()[-1])
    assert told == pytest.approx(math.exp(-total / count), rel=1e-3)

    answer = CliRunner().invoke(app, ["score", str(folder), str(file), "--json"], catch_exceptions=False)
    facts = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [fact["line"] for fact in facts] == [1, 2, 3, 4, 6]
    assert [fact["log_prob"] for fact in facts[:-1]] == pytest.approx([row[0] for row in rows[:-1]], abs=1e-3)
    assert facts[-1]["perplexity"] is None
