"""The Unix filter: a line in, a line out, at once when they come slowly and in large batches when they come fast.

Only LF ends a line. Bytes that are not UTF-8 are read as U+FFFD, as browsers do; a byte order mark in front of all is
left out.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, BinaryIO, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from glassformer.config import SearchConfig
from glassformer.data.lines import UNREADABLE, Watch, explain_unreadable, no_watch, open_bytes
from glassformer.errors import DataError
from glassformer.files import atomic_file
from glassformer.text.tokenizer import Span
from glassformer.translate.alignment import pharaoh
from glassformer.translate.results import Translation
from glassformer.translate.translator import Options, Translator

_CHUNK: Final = 1 << 16  # bytes that are read at once; a pipe holds no more
_AHEAD: Final = 64  # chunks that are read ahead
_FIRST: Final = 64  # lines that are translated before the first of them is written
_BATCH: Final = 2048  # and later, when nobody waits for the first any more
_BATCH_BYTES: Final = 1 << 20  # and bytes, so that lines of a megabyte do not fill the memory

_Read = Callable[[int], bytes]  # gives what there is, at most so many bytes; nothing at the end


class Answers(NamedTuple):
    """What is asked of the translator, and how its answers are written."""

    search: SearchConfig | None = None
    n_best: int = 1  # more than one: a line each, with the number of the text and the score in front
    prefix: str = ""
    suppress: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    as_json: bool = False
    alignment: bool = False  # behind a tab, as 0-0 1-2, words counted from 0
    attention: bool = False


def run_filter(translator: Translator, source: Path | None, output: Path | None, answers: Answers) -> None:
    """Translate a file or stdin into a file or stdout."""
    with atomic_file(output) if output else nullcontext(sys.stdout.buffer) as written:
        if source is not None:
            translate_file(translator, source, written, answers, bar=output is not None)
            return
        # Unbuffered: a thread that waits in a buffered read cannot be left behind at the end of the program.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stdin:
            translate_lines(translator, _explaining(stdin.read, Path("stdin")), written, answers)


def translate_lines(
    translator: Translator, read: _Read, output: BinaryIO, answers: Answers, done: Watch = no_watch
) -> None:
    """Translate all lines there are, flushing whenever no more have come; `done` hears of the bytes translated."""
    number = 0
    for lines in read_batches(read):
        texts = [_decode(line, number + place) for place, line in enumerate(lines)]
        for text in _answer(translator, texts, number, answers):
            output.write(text.encode("utf-8", "replace") + b"\n")
        output.flush()
        number += len(lines)
        done(sum(map(len, lines)) + len(lines))


def translate_file(translator: Translator, path: Path, output: BinaryIO, answers: Answers, bar: bool) -> None:
    """Translate the lines of a file, plain, .gz or .zst, with a progress bar on stderr or without."""
    try:
        stream = open_bytes(path)
        is_packed = path.suffix.lower() in (".gz", ".zst")
        size = None if is_packed else path.stat().st_size
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, 0)) from None
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with stream, Progress(*columns, console=console, disable=not (bar and console.is_terminal)) as progress:
        task = progress.add_task("", total=size)
        read = _explaining(stream.read1, path)  # type: ignore[attr-defined] # what `open_bytes` gives is buffered
        translate_lines(translator, read, output, answers, lambda n_bytes: progress.advance(task, n_bytes))


def _explaining(read: _Read, path: Path) -> _Read:
    """Read on, and say in one sentence why that is impossible."""

    def read_on(n_bytes: int) -> bytes:
        try:
            return read(n_bytes)
        except UNREADABLE as error:
            raise DataError(explain_unreadable(error, path, 0)) from None

    return read_on


def converse(translator: Translator, ask: Callable[[], str], show: Callable[[str], None], answers: Answers) -> None:
    """Translate what a person types, line by line, until the end of the input."""
    while True:
        try:
            text = ask()
        except EOFError:
            return
        found = _results(translator, [text], answers._replace(alignment=True))[0]
        for rank, way in enumerate(found.n_best):
            show(way if len(found.n_best) == 1 else f"{rank + 1}. {way}")
        if found.sentences:
            pairs = " ".join(f"{_part(text, src)}→{_part(found.text, tgt)}" for src, tgt in found.alignment)
            remarks = [f"{found.confidence:.0%} sure", *["cut off"] * (not found.ended), *["looped"] * found.looped]
            show(f"   {', '.join(remarks)}   {pairs}".rstrip())


def read_batches(read: _Read) -> Iterator[list[bytes]]:
    """Give the lines of a stream in batches of those that have come, at least one, at most `_BATCH`, fewer at first."""
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


def _read_lines(read: _Read, queue: Queue[list[bytes] | DataError]) -> None:
    """Put lines into the queue, without their ends, as they come; then an empty list."""
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


def _answer(translator: Translator, texts: list[str], first: int, answers: Answers) -> Iterator[str]:
    """Give the lines to write for a batch of texts, of which the first is number `first` of all."""
    if not (answers.as_json or answers.n_best > 1 or answers.alignment):
        for text in translator.translate(texts, **_options(answers)):
            yield text.replace("\n", " ")  # a model may write any character
        return
    for number, found in enumerate(_results(translator, texts, answers), first):
        if answers.as_json:
            yield json.dumps(_finite(_facts(found)), ensure_ascii=False)
        elif answers.n_best > 1:
            for rank, way in enumerate(found.n_best):
                yield f"{number + 1}\t{_score(found, rank):.6f}\t{_one_line(way)}"
        else:
            yield f"{_one_line(found.text)}\t{_pharaoh(found)}"


def _options(answers: Answers) -> Options:
    return {
        "search": answers.search,
        "prefix": answers.prefix,
        "suppress": answers.suppress,
        "require": answers.require,
    }


def _results(translator: Translator, texts: list[str], answers: Answers) -> list[Translation]:
    return translator.results(
        texts,
        **_options(answers),
        n_best=answers.n_best,
        token_probabilities=answers.as_json,
        alignment=answers.alignment or answers.as_json,
        attention=answers.attention,
    )


def _one_line(text: str) -> str:
    return re.sub("[\t\n]", " ", text)


def _score(found: Translation, rank: int) -> float:
    scores = [sentence.hypotheses[min(rank, len(sentence.hypotheses) - 1)].score for sentence in found.sentences]
    return sum(scores) / max(len(scores), 1)


def _part(text: str, span: Span) -> str:
    return text[slice(*span)].strip()


def _pharaoh(found: Translation) -> str:
    """Write which words belong together as 0-0 1-2, counting what white space parts."""
    src, tgt = ([word.span() for word in re.finditer(r"\S+", text)] for text in (found.src, found.text))
    links = {(s, t) for a, b in found.alignment for s in _overlapping(src, a) for t in _overlapping(tgt, b)}
    return pharaoh(sorted(links))


def _overlapping(words: Sequence[Span], span: Span) -> list[int]:
    return [number for number, (start, end) in enumerate(words) if start < span[1] and end > span[0]]


def _facts(found: Translation) -> dict[str, Any]:
    """Give all that is known of a translation, for JSON."""
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
    """Write what JSON has no number for as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
