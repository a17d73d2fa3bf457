"""Evaluate a system on a test set: translations, scores, perplexity of the references and speed.

A system is a model folder, or a file with one translation per line of the test set.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
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
    """The results of a system on a test set."""

    name: str
    hypotheses: list[str]
    scores: dict[str, Score]
    length_ratio: float  # words of the translations over words of the references
    perplexity: float | None = None  # of the references; None for a file of translations
    seconds: float | None = None  # spent translating
    engine: str = ""
    n_cut_off: int = 0  # translations that reached max_length
    n_looped: int = 0  # translations that repeat themselves

    @property
    def sentences_per_second(self) -> float | None:
        """Translation speed; None for a file of translations."""
        return None if self.seconds is None else len(self.hypotheses) / max(self.seconds, 1e-9)

    def entry(self) -> dict[str, Any]:
        """Return everything but the translations as plain values, for JSON."""
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
    """Read all pairs of a test set; by default a faulty line is an error, since skipping it would shift the others."""
    pairs = list(open_corpus(corpus, Faults(), on_fault))
    if not pairs:
        raise DataError(f"{corpus.path} contains no sentence pairs to evaluate on")
    return pairs


def evaluate(
    system: str | Path,
    test: str | Path | CorpusConfig | Sequence[Pair],
    *,
    tokenize: str = "13a",
    engine: str = "auto",
    search: SearchConfig | Mapping[str, Any] | None = None,
    threads: int = 0,
) -> Evaluation:
    """Translate a test set with a model and score the result, or score a file of translations.

    The test set is a file, a corpus or pairs. A mapping in `search` overrides settings of the model's own search.
    """
    if isinstance(test, str | Path):
        test = CorpusConfig.parse_word(str(test))
    if isinstance(test, CorpusConfig):
        test = read_test(test)
    path, name = Path(system), str(system)
    if path.is_file():
        return _scored(test, tokenize, _lines(path, len(test)), name=name)
    folder = find_model(path)
    with Translator.load(folder, engine=engine, threads=threads, split=False) as translator:
        settings = _search(search, translator.search)
        start = time.perf_counter()
        found = translator.results([pair.src for pair in test], search=settings)
        seconds = time.perf_counter() - start
        _log.info("%s: %d sentences translated in %.1f s", name, len(test), seconds)
        return _scored(
            test,
            tokenize,
            [translation.text for translation in found],
            name=name,
            perplexity=_perplexity(folder, test),
            seconds=seconds,
            engine=translator.engine_for(settings),
            n_cut_off=sum(not translation.ended for translation in found),
            n_looped=sum(translation.looped for translation in found),
        )


def _search(search: SearchConfig | Mapping[str, Any] | None, default: SearchConfig) -> SearchConfig:
    if isinstance(search, SearchConfig):
        return search
    return SearchConfig.parse({**default.model_dump(), **search}, "search") if search else default


def _scored(test: Sequence[Pair], tokenize: str, hypotheses: list[str], **figures: Any) -> Evaluation:
    references = [pair.tgt for pair in test]
    n_words, n_expected = (sum(len(text.split()) for text in side) for side in (hypotheses, references))
    scores, ratio = measure(hypotheses, references, tokenize), n_words / max(n_expected, 1)
    return Evaluation(hypotheses=hypotheses, scores=scores, length_ratio=ratio, **figures)


def comet_score(model: str, test: Sequence[Pair], hypotheses: Sequence[str]) -> Score:
    """Score by COMET (Rei et al. 2020) with a checkpoint file; needs the package unbabel-comet."""
    try:
        import comet  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise DataError("COMET scores need the package unbabel-comet: pip install unbabel-comet") from None
    scorer = comet.load_from_checkpoint(model)
    rows = [{"src": pair.src, "mt": text, "ref": pair.tgt} for pair, text in zip(test, hypotheses, strict=True)]
    return Score(100 * float(scorer.predict(rows, gpus=0, progress_bar=False).system_score), f"model:{model}")


def _lines(path: Path, expected: int) -> list[str]:
    try:
        with open_bytes(path) as file:
            text = file.read().decode("utf-8", "replace")
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, 0)) from None
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != expected:
        raise DataError(
            f"{path} has {len(lines):,} lines, the test set {expected:,} sentences; "
            f"expected a model folder (with {CONFIG}) or one translation per sentence"
        )
    return lines


def _perplexity(folder: Path, test: Sequence[Pair]) -> float:
    scores = [s for s in score_pairs(load_model(folder), Tokenizers.load(folder), test) if not math.isnan(s.log_prob)]
    return perplexity(sum(s.log_prob for s in scores), sum(s.n_tokens for s in scores))
