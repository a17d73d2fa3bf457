"""Translation by CTranslate2: the same text as the torch engine's, several times as fast on a CPU.

Both stop at `width` finished hypotheses, so both find the same ones. CTranslate2 is asked for all of them, and we rank
them, because it counts the end mark as a token and we do not. Where more than `width` have ended after the last step
it drops the last by its own rank; with a penalty that grows with the length that is never our best.
What it does differently from our search is refused, and goes to torch. T target tokens, S source tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import ctranslate2
import numpy as np
import torch

from glassformer.convert.ctranslate2 import Quantization, read_mark
from glassformer.errors import ModelFileError
from glassformer.search.penalties import length_penalty
from glassformer.translate.engines.engine import IdHypothesis, Request, Source

_NO_PENALTY: Final = 1e-30  # x^1e-30 is 1 as x^0 is, but with an exponent of 0 CTranslate2 has another stopping rule
_IMPOSSIBLE: Final = -1e9  # below it are the beams that CTranslate2 fills up a forced prefix with


class Setup(NamedTuple):
    """How CTranslate2 runs on this machine."""

    quantization: Quantization = "float32"
    workers: int = 1  # batches in parallel
    threads: int = 1  # per batch
    batch: int = 64  # sentences


class CTranslate2Engine:
    """Translates with an export written by `export_ctranslate2`.

    After a forced prefix, CTranslate2 does not count a hypothesis that ends there and is not the likeliest: it may find
    one hypothesis more than the torch engine.
    """

    name = "ctranslate2"
    is_thread_safe = True

    def __init__(self, folder: str | Path, setup: Setup | None = None) -> None:
        """Load the export in `folder`."""
        self.setup = setup or Setup()
        self._src, self._tgt = _read_vocabularies(Path(folder))
        mark = read_mark(Path(folder))
        if mark is None:
            raise ModelFileError(f"{folder} was not exported by glassformer; export the model again")
        self._max_positions = mark.max_positions
        self._ids = {piece: number for number, piece in enumerate(self._tgt)}
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                compute_type=self.setup.quantization,
                inter_threads=self.setup.workers,
                intra_threads=self.setup.threads,
                max_queued_batches=-1,  # so that workers continue while results are read
            )
        except (RuntimeError, ValueError) as error:
            raise ModelFileError(f"{folder} cannot be loaded by CTranslate2: {error}") from None

    def refuses(self, request: Request) -> str | None:
        """Return what of the request is not supported, or not as the torch engine does it, or None."""
        search, rules = request.search, _rules(request)
        reasons = {
            "draws (method=sample or mbr)": search.method != "beam",  # its draws are not reproducible
            f"length_penalty={search.length_penalty}": search.length_penalty < 0,
            "a coverage penalty": search.coverage_penalty != 0,  # it counts the end mark's column and one head only
            f"stop={search.stop}": search.stop != "first",
            f"groups={search.groups}": search.groups != 1,
            "required words": bool(request.required),
            # It shares out the probability of what is forbidden: that changes no order in greedy search, but the ranks
            # in a beam.
            f"{' and '.join(rules)} in a beam": bool(rules) and search.width > 1,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[IdHypothesis]]]:
        """Yield the number of each source and its hypotheses, best first, longest sources first.

        The translation of an empty source is empty.
        """
        assert self.refuses(request) is None, f"ctranslate2 does not support {self.refuses(request)}"
        order = sorted(range(len(sources)), key=lambda number: -len(sources[number].tokens))
        while order and not sources[order[-1]].tokens:
            yield order.pop(), [IdHypothesis([], 0.0, 0.0, True)]
        # A prefix in a batch changes the search of sentences without one.
        plain, forced = ([i for i in order if bool(sources[i].prefix) == is_forced] for is_forced in (False, True))
        yield from self._translate(sources, plain, request, bool(_rules(request)))
        yield from self._translate(sources, forced, request, True)

    def _translate(
        self, sources: Sequence[Source], numbers: list[int], request: Request, changed: bool
    ) -> Iterator[tuple[int, list[IdHypothesis]]]:
        """Translate some of the sources; `changed` says that CTranslate2's log-probabilities are not the model's."""
        search = request.search
        asked_again = changed or request.token_log_probs  # which reads the last token too
        max_length = min(search.max_length, self._max_positions - asked_again)
        alpha = search.length_penalty if search.length_penalty and search.penalty_form == "power" else _NO_PENALTY
        rows = [[self._src[token] for token in sources[i].tokens] for i in numbers]
        results = self._translator.translate_batch(
            rows,
            [[self._tgt[token] for token in sources[i].prefix] for i in numbers] if changed else None,
            max_batch_size=self.setup.batch,
            asynchronous=True,
            max_input_length=0,
            beam_size=search.width,
            num_hypotheses=search.width,
            length_penalty=alpha,
            max_decoding_length=max_length,
            min_decoding_length=search.min_length,
            no_repeat_ngram_size=search.no_repeat_ngram,
            suppress_sequences=[[self._tgt[token] for token in words] for words in request.suppressed] or None,
            return_scores=request.scores or search.width > 1,  # greedily it chooses without a sum over the vocabulary
            return_attention=request.attention,
        )
        penalties = length_penalty(torch.arange(max_length + 1, dtype=torch.float64), search).tolist()
        best = search.width if changed else request.n_best
        found: Iterable[list[IdHypothesis]] = (
            self._hypotheses(result.result(), len(row), penalties, alpha)[:best]
            for row, result in zip(rows, results, strict=True)
        )
        if request.attention and search.width > 1:
            found = map(_with_first_row, found, self._first_rows(rows))
        if asked_again:
            found = self._ask_again([sources[i] for i in numbers], list(found), penalties, request)
        yield from zip(numbers, found, strict=True)

    def log_probs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Return the log-probability of each target token of (source, target) pairs, including the end mark."""
        src = [[self._src[token] for token in source] for source, _ in pairs]
        tgt = [[self._tgt[token] for token in target] for _, target in pairs]
        scored = self._translator.score_batch(src, tgt, max_batch_size=self.setup.batch, max_input_length=0)
        return [result.log_probs for result in scored]

    def close(self) -> None:
        """Release threads and memory."""
        self._translator.unload_model()

    def _hypotheses(
        self, result: ctranslate2.TranslationResult, n_source: int, penalties: list[float], alpha: float
    ) -> list[IdHypothesis]:
        ids, max_length = self._ids, len(penalties) - 1
        found = []
        scores = result.scores or [math.nan]
        for k, (pieces, theirs) in enumerate(zip(result.hypotheses, scores, strict=True)):
            if not theirs <= _IMPOSSIBLE:  # nan is possible
                length = len(pieces)
                ended = length < max_length
                log_prob = theirs * (length + ended) ** alpha
                score = log_prob / penalties[length]
                attention = None
                if result.attention:
                    attention = np.array(result.attention[k], np.float32).reshape(length, n_source)  # (T, S)
                found.append(IdHypothesis([ids[piece] for piece in pieces], log_prob, score, ended, None, attention))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def _first_rows(self, rows: list[list[str]]) -> list[list[float]]:
        """Return the attention (S,) of the first step, which all hypotheses share.

        CTranslate2 4.8 mixes up the sentences of a batch there, in beam search and only there.
        """
        results = self._translator.translate_batch(
            rows,
            max_batch_size=self.setup.batch,
            max_input_length=0,
            beam_size=1,
            max_decoding_length=1,
            min_decoding_length=1,
            return_attention=True,
        )
        return [result.attention[0][0] for result in results]

    def _ask_again(
        self, sources: Sequence[Source], found: list[list[IdHypothesis]], penalties: list[float], request: Request
    ) -> Iterator[list[IdHypothesis]]:
        """Replace the log-probabilities by the model's own."""
        pairs = [(source.tokens, each.tokens) for source, some in zip(sources, found, strict=True) for each in some]
        given = iter(self.log_probs(pairs))
        for some in found:
            sure = []
            for each, log_probs in zip(some, given, strict=False):
                log_probs = log_probs if each.ended else log_probs[:-1]
                total = sum(log_probs)
                each = each._replace(log_prob=total, score=total / penalties[len(each.tokens)])
                sure.append(each._replace(token_log_probs=log_probs) if request.token_log_probs else each)
            yield sorted(sure, key=lambda hypothesis: -hypothesis.score)[: request.n_best]


def _with_first_row(found: list[IdHypothesis], row: list[float]) -> list[IdHypothesis]:
    for each in found:
        if each.tokens and each.attention is not None:
            each.attention[0] = row
    return found


def _rules(request: Request) -> list[str]:
    """Return the names of the rules that forbid tokens."""
    search = request.search
    rules = {
        "min_length": search.min_length,
        "no_repeat_ngram": search.no_repeat_ngram,
        "suppressed words": request.suppressed,
    }
    return [name for name, is_set in rules.items() if is_set]


def _read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    shared = folder / "shared_vocabulary.json"
    files = (
        (shared, shared) if shared.is_file() else (folder / f"{side}_vocabulary.json" for side in ("source", "target"))
    )
    try:
        src, tgt = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{folder} is not a complete CTranslate2 export ({error}); export the model again"
        ) from None
    return src, tgt
