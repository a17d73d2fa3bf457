"""A system on a test set: its translations, their scores, how surprised it is by the references, and how fast it is.

A system is a model folder, or a file of translations that anything made, a line for each sentence of the test set.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config import CorpusConfig, SearchConfig
from glassformer.data.formats import Faults, OnFault, open_corpus
from glassformer.data.lines import UNREADABLE, explain_unreadable, open_bytes
from glassformer.data.pair import Pair
from glassformer.errors import DataError
from glassformer.evaluation.scores import Score, measure
from glassformer.store.folder import CONFIG, load_model
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.score import perplexity, score_pairs
from glassformer.translate.translator import Translator

_log = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    """What came of a system on a test set."""

    name: str
    hypotheses: list[str]
    scores: dict[str, Score]
    length_ratio: float  # of words, against the references
    perplexity: float | None = None  # of the references; None for a file
    seconds: float | None = None  # of translating
    engine: str = ""
    n_cut_off: int = 0  # by the length limit
    n_looped: int = 0

    @property
    def sentences_per_second(self) -> float | None:
        """How fast it translated."""
        return None if self.seconds is None else len(self.hypotheses) / max(self.seconds, 1e-9)

    def entry(self) -> dict[str, Any]:
        """Give everything but the translations, for machines."""
        return {
            "system": self.name,
            "sentences": len(self.hypotheses),
            "scores": {name: score._asdict() for name, score in self.scores.items()},
            "length_ratio": self.length_ratio,
            "perplexity": self.perplexity,
            "seconds": self.seconds,
            "sentences_per_second": self.sentences_per_second,
            "engine": self.engine or None,
            "cut_off": self.n_cut_off,
            "looped": self.n_looped,
        }


def read_test(corpus: CorpusConfig, on_fault: OnFault = "fail") -> list[Pair]:
    """Read a test set, all of it: a sentence that is left out would shift the others against a file."""
    pairs = list(open_corpus(corpus, Faults(), on_fault))
    if not pairs:
        raise DataError(f"{corpus.path} holds no sentence pair to evaluate on")
    return pairs


def evaluate(
    system: str,
    test: Sequence[Pair],
    *,
    tokenize: str = "13a",
    engine: str = "auto",
    search: SearchConfig | None = None,
    threads: int = 0,
) -> Evaluation:
    """Translate and score, if `system` is a model folder; score, if it is a file of translations.

    `search` replaces the model's own search settings.
    """
    path = Path(system)
    if path.is_file():
        return with_scores(Evaluation(system, list(_lines(path, len(test))), {}, math.nan), test, tokenize)
    folder = find_model(path)
    with Translator.load(folder, engine=engine, search=search, threads=threads, split=False) as translator:
        start = time.perf_counter()
        found = translator.results([pair.src for pair in test])
        seconds = time.perf_counter() - start
        evaluation = Evaluation(
            system,
            [translation.text for translation in found],
            {},
            math.nan,
            _perplexity(folder, test),
            seconds,
            translator.engine_for(translator.search),
            sum(not translation.ended for translation in found),
            sum(translation.looped for translation in found),
        )
    return with_scores(evaluation, test, tokenize)


def with_scores(evaluation: Evaluation, test: Sequence[Pair], tokenize: str) -> Evaluation:
    """Score the translations of an evaluation."""
    references = [pair.tgt for pair in test]
    n_words, n_expected = (sum(len(text.split()) for text in side) for side in (evaluation.hypotheses, references))
    scores = measure(evaluation.hypotheses, references, tokenize)
    return evaluation._replace(scores=scores, length_ratio=n_words / max(n_expected, 1))


def comet_score(model: str, test: Sequence[Pair], hypotheses: Sequence[str]) -> Score:
    """Score by COMET (Rei et al. 2020), if that package is installed; `model` is a checkpoint file of it."""
    try:
        import comet  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise DataError("COMET needs the package unbabel-comet, which is not installed") from None
    judge = comet.load_from_checkpoint(model)
    rows = [{"src": pair.src, "mt": text, "ref": pair.tgt} for pair, text in zip(test, hypotheses, strict=True)]
    return Score(100 * float(judge.predict(rows, gpus=0, progress_bar=False).system_score), f"model:{model}")


def _lines(path: Path, expected: int) -> Iterator[str]:
    try:
        with open_bytes(path) as file:
            text = file.read().decode("utf-8", "replace")
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, 0)) from None
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != expected:
        raise DataError(
            f"{path} has {len(lines):,} lines, the test set {expected:,} sentences; "
            f"it is neither a model folder (no {CONFIG}) nor a translation of this test set"
        )
    yield from lines


def _perplexity(folder: Path, test: Sequence[Pair]) -> float:
    scores = [s for s in score_pairs(load_model(folder), Tokenizers.load(folder), test) if not math.isnan(s.log_prob)]
    return perplexity(sum(s.log_prob for s in scores), sum(s.n_tokens for s in scores))
