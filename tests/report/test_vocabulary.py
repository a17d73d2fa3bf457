"""`glassformer tokenizer`: a vocabulary from corpora, and what it says about it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from glassformer.cli import app
from glassformer.config import TokenizerConfig
from glassformer.errors import ConfigError, DataError, GlassformerError, UsageError
from glassformer.report.vocabulary import Fit, measure_fit
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizer, Tokenizers, train_tokenizers

DICE = random.Random(0)
WORDS = ["".join(DICE.choices("abcdeéfghiklmnoprstuv", k=DICE.randint(1, 6))) for _ in range(300)]
PAIRS = [(" ".join(DICE.choices(WORDS, k=5)), " ".join(DICE.choices(WORDS, k=6)) + ".") for _ in range(300)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv.gz"
    path.write_bytes(gzip.compress("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS).encode()))
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["tokenizer", *map(str, words)])


def fault(kind: type[GlassformerError], *words: object) -> str:
    answer = run(*words)
    assert isinstance(answer.exception, kind)
    assert "\n" not in str(answer.exception)
    return str(answer.exception)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_it_makes_what_the_library_makes(corpus: Path, tmp_path: Path, model: str) -> None:
    answer = run(corpus, "--out", tmp_path / "out", "--vocab-size", 400, "--model", model)
    assert (answer.exit_code, answer.stdout) == (0, "")
    made = Tokenizers.load(tmp_path / "out")
    assert made == train_tokenizers(PAIRS, TokenizerConfig.model_validate({"vocab_size": 400, "model": model}))


def test_every_setting_reaches_it(corpus: Path, tmp_path: Path) -> None:
    words = ["--vocab-size", "300", "--separate", "--normalise", "nfkc", "--character-coverage", "0.99"]
    words += ["--no-split-digits", "--max-sentences", "100", "--seed", "3", "--swap"]
    assert run(corpus, "--out", tmp_path / "out", *words).exit_code == 0
    config = TokenizerConfig(
        vocab_size=300,
        joint=False,
        normalise="nfkc",
        character_coverage=0.99,
        split_digits=False,
        max_sentences=100,
        seed=3,
    )
    assert Tokenizers.load(tmp_path / "out") == train_tokenizers([(tgt, src) for src, tgt in PAIRS], config)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {SRC_MODEL, TGT_MODEL}


def test_a_single_file(corpus: Path, tmp_path: Path) -> None:
    assert run(corpus, "--out", tmp_path / "new" / "my.model", "--vocab-size", 400).exit_code == 0
    assert Tokenizer.load(tmp_path / "new" / "my.model").vocab_size == 400


def test_it_says_how_well_the_vocabulary_fits(corpus: Path, tmp_path: Path) -> None:
    said = run(corpus, "--out", tmp_path / "out", "--vocab-size", 400).stderr
    made = Tokenizers.load(tmp_path / "out")
    for side, tokenizer, texts in zip(("source", "target"), made, zip(*PAIRS, strict=True), strict=True):
        (row,) = (line.split() for line in said.splitlines() if line.startswith(side))
        n_pieces = sum(len(tokenizer.encode(text)) for text in texts)
        n_words = sum(len(text.split()) for text in texts)
        assert row[1:4] == ["400", f"{n_pieces / len(texts):.1f}", f"{n_pieces / n_words:.2f}"]
        assert row[5] == tokenizer.sha256[:12]
        assert " ".join(tokenizer.pieces(tokenizer.encode(texts[0]))) in said
    assert "300 lines, 300 pairs, 0 skipped" in said
    assert f"wrote {tmp_path / 'out'}" in said.replace("\n", "")


def test_fit_counts_texts_words_pieces_and_bytes() -> None:
    tokenizer = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=400)).src
    texts = ["", PAIRS[0][0], "日本"]
    n_pieces = len(tokenizer.encode(PAIRS[0][0])) + 7  # of two characters, three bytes each, and the space in front
    assert measure_fit(tokenizer, texts) == Fit(n_texts=3, n_words=6, n_pieces=n_pieces, n_bytes=6)


def test_lines_that_are_no_pairs_are_counted_or_fatal(tmp_path: Path) -> None:
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS) + "alone\n", encoding="utf-8")
    words = (path, "--vocab-size", 400, "--out")
    assert "300 pairs, 1 skipped" in run(*words, tmp_path / "out").stderr
    assert "corpus.tsv:301" in fault(DataError, *words, tmp_path / "other", "--strict")
    assert not (tmp_path / "other").exists()


def test_nothing_is_overwritten(corpus: Path, tmp_path: Path) -> None:
    words = (corpus, "--vocab-size", 400, "--out")
    (tmp_path / "out").mkdir()
    for name in (JOINT_MODEL, SRC_MODEL, TGT_MODEL, "my.model"):
        path = tmp_path / "out" / name
        path.touch()
        out = path if name == "my.model" else path.parent
        assert fault(UsageError, *words, out).startswith(f"{path} already exists")
        path.unlink()
    (tmp_path / "file").touch()
    assert "is a file" in fault(UsageError, *words, tmp_path / "file")
    assert "--separate writes two" in fault(UsageError, *words, tmp_path / "my.model", "--separate")


def test_mistakes_leave_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "vocab_size=9999" in fault(ConfigError, corpus, "--out", out, "--vocab-size", 9999)
    assert fault(ConfigError, corpus, "--out", out, "--model", "word").startswith("tokenizer: model='word'")
    assert "no such file" in fault(DataError, tmp_path / "none.tsv", "--out", out)
    assert not out.exists()
