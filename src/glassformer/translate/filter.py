"""The Unix filter: one line in, one line out; at once when lines come slowly, in large batches when they come fast.

Only LF ends a line. Bytes that are not UTF-8 are read as U+FFFD, as browsers do; a byte order mark at the start is
dropped.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, BinaryIO, Final

from glassformer.config import TranslateOptions
from glassformer.data.lines import UNREADABLE, Watch, explain_unreadable, no_watch, open_bytes
from glassformer.errors import DataError
from glassformer.files import atomic_file
from glassformer.text.tokenizer import Span
from glassformer.translate.alignment import pharaoh
from glassformer.translate.results import Translation
from glassformer.translate.translator import Translator

_CHUNK: Final = 1 << 16  # bytes read at once; a pipe holds no more
_AHEAD: Final = 64  # chunks read ahead
_FIRST: Final = 64  # lines that are translated before the first of them is written
_BATCH: Final = 2048  # and later, when nobody waits for the first any more
_BATCH_BYTES: Final = 1 << 20  # so that lines of a megabyte do not fill the memory

Read = Callable[[int], bytes]  # returns what is there, at most that many bytes; nothing at the end


def run_filter(
    translator: Translator,
    read: Read,
    output: Path | None,
    options: TranslateOptions,
    *,
    as_json: bool = False,
    watch: Watch = no_watch,
) -> None:
    """Translate what `open_input` opened into a file or stdout; `watch` is told the bytes translated."""
    with atomic_file(output) if output else nullcontext(sys.stdout.buffer) as written:
        translate_lines(translator, read, written, options, as_json=as_json, watch=watch)


def translate_lines(
    translator: Translator,
    read: Read,
    output: BinaryIO,
    options: TranslateOptions,
    *,
    as_json: bool = False,
    watch: Watch = no_watch,
) -> None:
    """Translate the lines of a stream, and flush whenever no more have come."""
    number = 0
    for lines in read_batches(read):
        texts = [_decode(line, number + place) for place, line in enumerate(lines)]
        for text in _format(translator, texts, number, options, as_json=as_json):
            output.write(text.encode("utf-8", "replace") + b"\n")
        output.flush()
        number += len(lines)
        watch(sum(map(len, lines)) + len(lines))


def peek(read: Read) -> tuple[str, Read]:
    """Return the beginning of an input as text, and what reads all of it."""
    beginning = read(_CHUNK)
    waiting = [beginning]
    return beginning.decode("utf-8", "replace"), lambda size: waiting.pop() if waiting else read(size)


@contextmanager
def open_input(source: Path | None) -> Iterator[Read]:
    """Yield what reads from a file, plain, .gz or .zst, or from stdin."""
    explained = _explained(source or Path("stdin"))
    if source is None:
        # Unbuffered: a thread that waits in a buffered read cannot be left behind at the end of the program.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stdin:
            yield explained(stdin.read)
    else:
        with explained(open_bytes)(source) as stream:
            yield explained(stream.read1)  # type: ignore[attr-defined] # `open_bytes` returns a buffered stream


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a failure to read into a one-line error."""
    try:
        yield
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, 0)) from None


def converse(
    translator: Translator, ask: Callable[[], str], show: Callable[[str], None], options: TranslateOptions
) -> None:
    """Translate what a person types, line by line, until the end of the input."""
    while True:
        try:
            text = ask()
        except EOFError:
            return
        found = translator.results(text, options, alignment=True)
        for rank, way in enumerate(found.n_best):
            show(way if len(found.n_best) == 1 else f"{rank + 1}. {way}")
        if found.sentences:
            pairs = " ".join(f"{_part(text, src)}→{_part(found.text, tgt)}" for src, tgt in found.alignment)
            remarks = [f"{found.confidence:.0%} sure", *["cut off"] * (not found.ended), *["looped"] * found.looped]
            show(f"   {', '.join(remarks)}   {pairs}".rstrip())


def read_batches(read: Read) -> Iterator[list[bytes]]:
    """Yield the lines of a stream in batches of what has come: at least one, at most `_BATCH`, fewer at first."""
    queue: Queue[list[bytes] | DataError] = Queue(_AHEAD)
    Thread(target=_read_lines, args=(read, queue), daemon=True).start()
    waiting: list[bytes] = []
    is_open, most = True, _FIRST
    while is_open or waiting:
        n_bytes = sum(map(len, waiting))
        while is_open and len(waiting) < most and n_bytes < _BATCH_BYTES:
            try:
                lines = queue.get(block=not waiting)
            except Empty:
                break
            if isinstance(lines, DataError):
                raise lines
            is_open = bool(lines)
            waiting += lines
            n_bytes += sum(map(len, lines))
        if waiting:
            yield waiting[:most]
            del waiting[:most]
            most = min(2 * most, _BATCH)


def _read_lines(read: Read, queue: Queue[list[bytes] | DataError]) -> None:
    """Put lines into the queue as they come, without their line ends; then an empty list."""
    parts: list[bytes] = []  # of a line that has not ended
    try:
        while chunk := read(_CHUNK):
            first, *others = chunk.split(b"\n")
            parts.append(first)
            if others:
                queue.put([b"".join(parts), *others[:-1]])
                parts = [others[-1]]
    except DataError as error:
        queue.put(error)
        return
    last = b"".join(parts)
    if last:
        queue.put([last])
    queue.put([])


def _decode(line: bytes, number: int) -> str:
    return line.removeprefix(codecs.BOM_UTF8 if number == 0 else b"").decode("utf-8", "replace")


def _format(
    translator: Translator, texts: list[str], first: int, options: TranslateOptions, *, as_json: bool
) -> Iterator[str]:
    """Yield the lines to write for a batch of texts, the first of which is number `first` of all."""
    if as_json:
        found = translator.results(texts, options, token_probabilities=True, alignment=True)
        yield from (json.dumps(_finite(_facts(one)), ensure_ascii=False) for one in found)
    elif options.n_best > 1:
        for number, one in enumerate(translator.results(texts, options), first + 1):
            for rank, way in enumerate(one.n_best):
                yield f"{number}\t{_score(one, rank):.6f}\t{_one_line(way)}"
    elif options.alignment:
        yield from (f"{_one_line(one.text)}\t{_pharaoh(one)}" for one in translator.results(texts, options))
    else:
        yield from (text.replace("\n", " ") for text in translator.translate(texts, options))  # models write anything


def _one_line(text: str) -> str:
    return re.sub("[\t\n]", " ", text)


def _score(found: Translation, rank: int) -> float:
    scores = [sentence.hypotheses[min(rank, len(sentence.hypotheses) - 1)].score for sentence in found.sentences]
    return sum(scores) / max(len(scores), 1)


def _part(text: str, span: Span) -> str:
    return text[slice(*span)].strip()


def _pharaoh(found: Translation) -> str:
    """Format the alignment as 0-0 1-2; words are what white space separates."""
    src, tgt = ([word.span() for word in re.finditer(r"\S+", text)] for text in (found.src, found.text))
    links = {(s, t) for a, b in found.alignment for s in _overlapping(src, a) for t in _overlapping(tgt, b)}
    return pharaoh(sorted(links))


def _overlapping(words: Sequence[Span], span: Span) -> list[int]:
    return [number for number, (start, end) in enumerate(words) if start < span[1] and end > span[0]]


def _facts(found: Translation) -> dict[str, Any]:
    """Return everything that is known of a translation, for JSON."""
    return {
        "source": found.src,
        "translation": found.text,
        "score": found.score,
        "log_prob": found.log_prob,
        "confidence": found.confidence,
        "ended": found.ended,
        "looped": found.looped,
        "n_best": found.n_best,
        "sentences": [
            {
                **sentence._asdict(),
                "hypotheses": [hypothesis._asdict() for hypothesis in sentence.hypotheses],
                "src_tokens": [token._asdict() for token in sentence.src_tokens],
                "tokens": [token._asdict() for token in sentence.tokens],
                "attention": None if sentence.attention is None else sentence.attention.tolist(),
            }
            for sentence in found.sentences
        ],
    }


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON has no numbers for, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
