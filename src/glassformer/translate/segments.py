"""Texts as segments, sentences and the white space between them; and translated segments put back into texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from glassformer.config import TranslateOptions
from glassformer.text.sentences import cut_sentence, split_sentences, split_space
from glassformer.text.tokenizer import Span, Tokenizers
from glassformer.translate.alignment import word_alignment, word_pieces
from glassformer.translate.engines.engine import IdHypothesis, Source
from glassformer.translate.results import Hypothesis, Piece, Sentence, Token, Translation

_WINDOW: Final = 4096  # texts that are translated together: memory does not grow with a file
_MAX_CHARACTERS: Final = 1 << 20  # per window, except for its last text
_WORD: Final = re.compile(r"\S+")  # as `word_pieces` counts them


class Segment(NamedTuple):
    """A sentence, a part of one that was too long, or the white space between two; translated if it has hypotheses."""

    text: str
    is_first: bool = False  # the first sentence of its text, to which the prefix and the required words apply
    source: Source = Source(())
    hypotheses: Sequence[IdHypothesis] = ()  # best first
    looped: bool = False  # it repeated itself and was translated again

    @property
    def is_space(self) -> bool:
        """Whether there is nothing to translate."""
        return self.text.isspace()


def windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group texts that are translated together."""
    window, size = list[str](), 0
    for text in texts:
        window.append(text)
        size += len(text)
        if len(window) == _WINDOW or size > _MAX_CHARACTERS:
            yield window
            window, size = [], 0
    if window:
        yield window


def split_text(text: str, language: str, *, whole: bool) -> list[Segment]:
    """Split a text into sentences and white space; `whole` takes it as one sentence."""
    return _segments(split_space(text) if whole else split_sentences(text, language), has_first=True)


def cut_segment(segment: Segment, n_parts: int) -> list[Segment]:
    """Cut a sentence that is too long into parts and the white space between them."""
    spans = [span for part in cut_sentence(segment.text, n_parts) for span in split_space(part)]
    return _segments(spans, segment.is_first)


def fill(segments: Iterable[Segment], translated: Iterator[list[Segment]]) -> list[Segment]:
    """Replace each sentence by the segments that it was translated as, in order."""
    return [part for segment in segments for part in ([segment] if segment.is_space else next(translated))]


def assemble(
    text: str,
    segments: Sequence[Segment],
    tokenizers: Tokenizers,
    options: TranslateOptions,
    read: Callable[[str], str],
) -> Translation:
    """Make a translation of translated segments; `read` gives a sentence as the model reads it."""
    sentences, texts = list[Sentence](), list[str]()
    src_start = start = 0
    for segment in segments:
        written = segment.text
        if segment.hypotheses:
            sentence = _sentence(segment, src_start, start, tokenizers, options, read)
            sentences.append(sentence)
            written = sentence.hypotheses[0].text
        texts.append(written)
        src_start, start = src_start + len(segment.text), start + len(written)
    return Translation(text, "".join(texts), tuple(sentences))


def _segments(spans: Iterable[str], has_first: bool) -> list[Segment]:
    segments = list(map(Segment, spans))
    first = next((i for i, segment in enumerate(segments) if not segment.is_space), None)
    if has_first and first is not None:
        segments[first] = segments[first]._replace(is_first=True)
    return segments


def _sentence(
    segment: Segment,
    src_start: int,
    start: int,
    tokenizers: Tokenizers,
    options: TranslateOptions,
    read: Callable[[str], str],
) -> Sentence:
    src, tgt = tokenizers
    hypotheses = tuple(
        Hypothesis(tgt.decode(one.tokens), one.log_prob, one.score, one.ended, len(one.tokens) + one.ended)
        for one in segment.hypotheses
    )
    best, text = segment.hypotheses[0], hypotheses[0].text
    src_span, span = (src_start, src_start + len(segment.text)), (start, start + len(text))
    sentence = Sentence(src_span, span, hypotheses, segment.looped)
    if not (options.token_probabilities or options.alignment or options.attention):
        return sentence
    spans, log_probs = tgt.decode_spans(best.tokens), best.token_log_probs
    probabilities = [None] * len(spans) if log_probs is None else [math.exp(p) for p in log_probs[: len(spans)]]
    tokens = tuple(map(Token, tgt.pieces(best.tokens), _shift(spans, start), probabilities))
    sentence = sentence._replace(tokens=tokens)
    if best.attention is None:
        return sentence
    src_spans = src.spans(read(segment.text))
    sentence = sentence._replace(
        src_tokens=tuple(map(Piece, src.pieces(segment.source.tokens), _shift(src_spans, src_start))),
        attention=best.attention if options.attention else None,
    )
    if not options.alignment:
        return sentence
    links = word_alignment(best.attention, word_pieces(segment.text, src_spans), word_pieces(text, spans))
    src_words, words = (
        _shift((word.span() for word in _WORD.finditer(side)), by)
        for side, by in ((segment.text, src_start), (text, start))
    )
    return sentence._replace(alignment=tuple((src_words[one], words[other]) for one, other in links))


def _shift(spans: Iterable[Span], by: int) -> list[Span]:
    return [(start + by, end + by) for start, end in spans]
