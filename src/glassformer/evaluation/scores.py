"""Scores of translations against references by sacreBLEU, with the signatures that make them comparable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from glassformer.errors import ConfigError, nearest

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


METRICS: Final = ("BLEU", "chrF", "TER")
_N_SAMPLES: Final = 1000  # of the paired bootstrap, Koehn 2004


class Score(NamedTuple):
    """A value and the signature of how it was computed."""

    value: float
    signature: str


class Comparison(NamedTuple):
    """Two systems compared by one metric with the paired bootstrap (Koehn 2004)."""

    metric: str
    first: float
    other: float
    first_interval: float  # half the width of the 95 % interval
    other_interval: float
    p_value: float  # of a difference this large under the null hypothesis
    signature: str

    @property
    def is_significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p_value < 0.05


def check_tokenize(name: str) -> None:
    """Raise if sacreBLEU has no such tokenizer."""
    from sacrebleu.metrics.bleu import BLEU

    if name not in BLEU.TOKENIZERS:
        raise ConfigError(f"sacreBLEU has no tokenizer {name}; {nearest(name, BLEU.TOKENIZERS)}")


def measure(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", names: Sequence[str] = METRICS
) -> dict[str, Score]:
    """Return corpus BLEU (Papineni et al. 2002; Post 2018), chrF (Popović 2015) and TER (Snover et al. 2006)."""
    found = {}
    for name in names:
        metric = _metric(name, tokenize)
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        found[name] = Score(value, str(metric.get_signature()))
    return found


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence; BLEU of single sentences says little."""
    metric = _metric("chrF")
    return [metric.sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]


def sentence_bleu(hypothesis: str, reference: str, tokenize: str = "13a") -> float:
    """Return the BLEU of one sentence, smoothed, which ranks translations of the same sentence."""
    return float(_sentence_metric(tokenize).sentence_score(hypothesis, [reference]).score)


def compare(
    first: Sequence[str], other: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> list[Comparison]:
    """Compare two systems on the same sentences by each metric."""
    from sacrebleu.significance import PairedTest, Result

    metrics = {name: _metric(name, tokenize, with_references=references) for name in METRICS}
    systems: list[tuple[str, Sequence[str]]] = [("first", list(first)), ("other", list(other))]
    test = PairedTest(systems, metrics, references=None, test_type="bs", n_samples=_N_SAMPLES)
    signatures, found = test()
    comparisons = []
    for name, (key, signature) in zip(METRICS, signatures.items(), strict=True):
        one, two = (result for result in found[key] if isinstance(result, Result))
        # sacreBLEU reports equal systems as significantly different.
        p_value = 1.0 if one.score == two.score or two.p_value is None else float(two.p_value)
        intervals = float(one.ci or 0), float(two.ci or 0)
        comparisons.append(Comparison(name, one.score, two.score, *intervals, p_value, signature.format()))
    return comparisons


@lru_cache(maxsize=4)
def _sentence_metric(tokenize: str) -> Metric:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenize, effective_order=True, force=tokenize == "none")


def _metric(name: str, tokenize: str = "13a", with_references: Sequence[str] | None = None) -> Metric:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    references = None if with_references is None else [list(with_references)]
    if name == "BLEU":
        # With `none` the text is already tokenised, which sacreBLEU would warn about.
        return BLEU(tokenize=tokenize, references=references, force=tokenize == "none")
    return CHRF(references=references) if name == "chrF" else TER(references=references)
