"""`glassformer evaluate`: a model, a file of translations, two of them side by side."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.config import CorpusConfig, TokenizerConfig, preset
from glassformer.data.pair import Pair
from glassformer.errors import ConfigError, DataError, UsageError
from glassformer.evaluation.evaluation import comet_score, evaluate, read_test
from glassformer.evaluation.scores import Score, measure
from glassformer.model.transformer import Transformer
from glassformer.store.folder import load_model, save_model
from glassformer.text.tokenizer import Tokenizers, train_tokenizers
from glassformer.translate.score import perplexity, score_pairs

PAIRS = [("un chat dort. Il rêve.", "a cat sleeps. It dreams."), ("le chien", "the dog"), ("deux chats", "two cats")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test set and an untrained model."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "test.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    tokenizers = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=290))
    size = tokenizers.src.vocab_size
    save_model(Transformer(preset("tiny", size, d_model=16, d_ff=16, max_positions=64)), folder / "model")
    tokenizers.save(folder / "model")
    (folder / "right.txt").write_text("".join(f"{t}\n" for _, t in PAIRS), encoding="utf-8")
    (folder / "wrong.txt").write_text("<script>alert(1)</script>\nthe cat\n\n", encoding="utf-8")
    return folder


def pairs_of(folder: Path) -> list[Pair]:
    return read_test(CorpusConfig(path=folder / "test.tsv"))


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_model(folder: Path, engine: str) -> None:
    test = pairs_of(folder)
    found = evaluate(str(folder / "model"), test, "13a", engine, ["width=2", "max_length=10"], 1, print)
    assert len(found.hypotheses) == len(test)
    assert found.scores == measure(found.hypotheses, [pair.tgt for pair in test])
    assert found.engine == engine
    assert found.seconds is not None
    assert found.seconds > 0
    scores = list(score_pairs(load_model(folder / "model"), Tokenizers.load(folder / "model"), test))
    expected = perplexity(sum(s.log_prob for s in scores), sum(s.n_tokens for s in scores))
    assert found.perplexity == pytest.approx(expected)


def test_a_file_of_translations(folder: Path) -> None:
    found = evaluate(str(folder / "right.txt"), pairs_of(folder), "13a", "auto", [], 0, print)
    assert found.scores["BLEU"].value == pytest.approx(100)
    assert found.length_ratio == 1
    assert found.perplexity is found.seconds is None


def test_a_file_of_another_length(folder: Path) -> None:
    (folder / "short.txt").write_text("one\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"short\.txt has 1 lines, the test set 3 sentences"):
        evaluate(str(folder / "short.txt"), pairs_of(folder), "13a", "auto", [], 0, print)


def test_an_empty_test_set(folder: Path) -> None:
    (folder / "empty.tsv").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="no sentence pair"):
        read_test(CorpusConfig(path=folder / "empty.tsv"))


def test_mistakes_are_found_before_the_work(folder: Path) -> None:
    words = ["evaluate", "no such model", "--test", str(folder / "test.tsv"), "--tokenize", "13b"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "sacreBLEU has no tokenizer 13b; did you mean 13a?"


def test_a_place_that_cannot_be_written_is_found_before_the_work(folder: Path) -> None:
    words = ["evaluate", str(folder / "right.txt"), "--test", str(folder / "test.tsv"), "--output", "no-folder/x"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, DataError)
    assert "the folder no-folder does not exist" in str(done.exception)
    assert done.stdout == ""


def test_comet_stands_in_the_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.report.evaluation.comet_score", lambda *_: Score(12.5, "a checkpoint"))
    words = ["evaluate", str(folder / "right.txt"), "--test", str(folder / "test.tsv"), "--comet", "file.ckpt"]
    assert "12.5000" in CliRunner().invoke(app, words).stdout


def test_the_command_compares(folder: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(folder / "right.txt"), "--test", str(folder / "test.tsv")]
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        app,
        [
            *words,
            "--compare",
            str(folder / "wrong.txt"),
            "--html",
            str(page),
            "--json",
            "--output",
            str(tmp_path / "o"),
        ],
    )
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert [system["scores"]["BLEU"]["value"] for system in facts["systems"]] == [
        pytest.approx(100),
        pytest.approx(3.5, abs=1),
    ]
    assert {c["metric"] for c in facts["comparison"]} == {"BLEU", "chrF", "TER"}
    assert (tmp_path / "o").read_text(encoding="utf-8").splitlines() == [tgt for _, tgt in PAIRS]
    assert "<script>alert" not in page.read_text(encoding="utf-8")


def test_the_command_shows_a_table(folder: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", str(folder / "right.txt"), "--test", str(folder / "test.tsv")])
    assert done.exit_code == 0, done.output
    assert re.search(r"BLEU\s+100\.00", done.stdout)
    assert "version:" in done.stdout


def test_a_page_for_one_system_is_a_mistake(folder: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(folder / "right.txt"), "--test", str(folder / "test.tsv"), "--html", str(tmp_path / "x")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError)
    assert "--compare" in str(done.exception)


def test_comet_is_used_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Judge:
        def predict(self, rows: list[dict[str, str]], **_: Any) -> Any:
            return types.SimpleNamespace(system_score=sum(row["mt"] == row["ref"] for row in rows) / len(rows))

    test = [Pair("s", "right", "f", 1), Pair("s", "right", "f", 2)]
    monkeypatch.setitem(sys.modules, "comet", types.SimpleNamespace(load_from_checkpoint=lambda path: Judge()))
    assert comet_score("file.ckpt", test, ["right", "wrong"]).value == 50
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(DataError, match="unbabel-comet"):
        comet_score("file.ckpt", test, ["right", "wrong"])
