"""Read sentence pairs from TSV, two parallel files (Moses), JSONL and TMX, plain, .gz or .zst.

A faulty line is reported, counted, and skipped or fatal, as the caller chooses; an unreadable file and two files with
different numbers of lines are always fatal.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal, NamedTuple

from glassformer.config import CorpusConfig
from glassformer.data.lines import MAX_LINE, Watch, no_watch, read_lines
from glassformer.data.pair import Pair, excerpt
from glassformer.data.tmx import closeness, read_units
from glassformer.errors import DataError

OnFault = Literal["skip", "fail"]

RULE: Final = "faulty lines are skipped and counted; unreadable files and different line counts are errors"
_EXAMPLES: Final = 3  # places that are reported per kind of fault

_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class FaultKind(StrEnum):
    """What can be wrong with a line; the last four change a pair slightly but keep it."""

    BAD_UTF8 = "bytes that are not UTF-8"
    NUL = "a NUL character"
    TOO_LONG = "longer than a MiB"
    NO_TAB = "no tab between source and target"
    EXTRA_TAB = "more than one tab"
    EMPTY = "an empty side"
    BAD_JSON = "not a JSON object"
    NO_TEXT = "no text in a field"
    LONE_SURROGATE = "half a character (a lone surrogate)"
    NO_LANGUAGE = "a language is missing"
    BYTE_ORDER_MARK = "byte order mark, left out"
    FOLDED = "tabs or line breaks inside a text, made spaces"
    INLINE_CODES = "inline codes of TMX, left out"
    SPARE = "further texts in the same language, not taken"

    @property
    def skips(self) -> bool:
        """Whether a line with this fault is skipped."""
        return self not in _HARMLESS


_HARMLESS: Final = frozenset({FaultKind.BYTE_ORDER_MARK, FaultKind.FOLDED, FaultKind.INLINE_CODES, FaultKind.SPARE})


class Fault(NamedTuple):
    """One faulty line."""

    kind: FaultKind
    file: str
    line: int  # counted from 1
    text: str  # an excerpt, safe to print

    @property
    def place(self) -> str:
        """File, line and excerpt."""
        return f"{self.file}:{self.line}" + (f": {self.text}" if self.text else "")


_Found = tuple[Pair | Fault, ...]  # of one line: a pair, a fault, or a harmless fault and its pair


class Faults:
    """Counts of faults in the files read so far, with the first places of each kind.

    `n_lines` (units, in TMX) is always `n_pairs + n_skipped`. `hear` is called with each fault that skips a line.
    """

    def __init__(self, hear: Callable[[Fault], None] | None = None) -> None:
        self.n_lines = 0
        self.n_pairs = 0
        self.counts: Counter[FaultKind] = Counter()
        self.examples: dict[FaultKind, list[Fault]] = {}
        self._hear = hear

    @property
    def n_skipped(self) -> int:
        """Number of lines that gave no pair."""
        return sum(n for kind, n in self.counts.items() if kind.skips)

    def add(self, fault: Fault) -> None:
        """Count a fault, and keep it as an example if it is one of the first of its kind."""
        self.counts[fault.kind] += 1
        if fault.kind.skips:
            self.n_lines += 1
            if self._hear is not None:
                self._hear(fault)
        examples = self.examples.setdefault(fault.kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(fault)

    def add_pair(self) -> None:
        """Count a line that gave a pair."""
        self.n_lines += 1
        self.n_pairs += 1

    def report(self) -> list[str]:
        """Return a report as lines of text; one line if there are no faults."""
        lines = [f"{self.n_lines:,} lines, {self.n_pairs:,} pairs, {self.n_skipped:,} skipped"]
        for kind in FaultKind:
            if kind in self.counts:
                lines.append(f"  {self.counts[kind]:,} × {kind}")
                lines += [f"    {fault.place}" for fault in self.examples[kind]]
        if self.n_skipped:
            lines.append(f"rule: {RULE}")
        return lines


def open_corpus(
    corpus: CorpusConfig, faults: Faults, on_fault: OnFault = "skip", watch: Watch = no_watch
) -> Iterator[Pair]:
    """Yield the pairs of a corpus in constant memory.

    Texts are as in the file, without surrounding white space. They are never empty and contain no tab, LF or NUL.
    """
    for found in _READERS[corpus.kind](corpus, watch):
        if isinstance(found, Pair):
            faults.add_pair()
            yield Pair(found.tgt, found.src, found.file, found.line) if corpus.swap else found
        elif found.kind.skips and on_fault == "fail":
            raise DataError(f"{found.place} ({found.kind}); mend it, or take the line out")
        else:
            faults.add(found)


def open_corpora(
    corpora: Iterable[CorpusConfig], faults: Faults, on_fault: OnFault = "skip", watch: Watch = no_watch
) -> Iterator[Pair]:
    """Read the pairs of several corpora, each once, whatever its weight."""
    for corpus in corpora:
        yield from open_corpus(corpus, faults, on_fault, watch)


def read_texts(path: Path, watch: Watch = no_watch) -> Iterator[str]:
    """Yield the lines of a file with one sentence per line; those that are empty or not UTF-8 are skipped."""
    for line, raw in read_lines(path, watch):
        text = _decode(raw, str(path), line)
        if isinstance(text, str) and text.strip():
            yield _BLANKS.sub(" ", text.strip())


def corpus_size(corpus: CorpusConfig) -> int:
    """Count the bytes of its files as they lie on the disk: what `watch` will have heard of in the end."""
    return sum(path.stat().st_size for path in corpus.paths if path.exists())


def _read_by_line(corpus: CorpusConfig, watch: Watch) -> Iterator[Pair | Fault]:
    parse, file = {"tsv": _read_row, "jsonl": _read_object}[corpus.kind], str(corpus.path)
    for line, raw in read_lines(corpus.path, watch):
        yield from _byte_order_mark(raw, file, line)
        text = _decode(raw, file, line)
        if isinstance(text, Fault):
            yield text
        else:
            yield from parse(text, corpus, file, line)


def _read_row(text: str, corpus: CorpusConfig, file: str, line: int) -> _Found:
    sides = text.split("\t")
    if len(sides) == 2:
        return _pair(sides[0], sides[1], file, line, text)
    fault = FaultKind.EXTRA_TAB if len(sides) > 2 else FaultKind.NO_TAB if text.strip() else FaultKind.EMPTY
    return (Fault(fault, file, line, excerpt(text)),)


def _read_moses(corpus: CorpusConfig, watch: Watch) -> Iterator[Pair | Fault]:
    assert corpus.target_path is not None
    files = str(corpus.path), str(corpus.target_path)
    sources, targets = read_lines(corpus.path, watch), read_lines(corpus.target_path, watch)
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            line, _ = source or target
            longer, rest = (0, sources) if target is None else (1, targets)
            n_lines = line + sum(1 for _ in rest)
            raise DataError(
                f"{files[longer]}:{line}: no parallel line: {files[1 - longer]} has {line - 1:,} lines, "
                f"{files[longer]} {n_lines:,}; find where they diverge, since all pairs after that are wrong"
            )
        line = source[0]
        yield from _byte_order_mark(source[1], files[0], line)
        yield from _byte_order_mark(target[1], files[1], line)
        src, tgt = _decode(source[1], files[0], line), _decode(target[1], files[1], line)
        if isinstance(src, Fault):
            yield src
        elif isinstance(tgt, Fault):
            yield tgt
        else:
            yield from _pair(src, tgt, files[0], line, f"{src} | {tgt}")


def _read_object(text: str, corpus: CorpusConfig, file: str, line: int) -> _Found:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        fault = (FaultKind.BAD_JSON, file, line, excerpt(text)) if text.strip() else (FaultKind.EMPTY, file, line, "")
        return (Fault(*fault),)
    names: tuple[str | None, str | None] = corpus.src_field, corpus.tgt_field
    if corpus.src_lang is not None and corpus.tgt_lang is not None:
        values = values.get("translation")
        if not isinstance(values, dict):
            return (Fault(FaultKind.NO_TEXT, file, line, f"translation is missing in {excerpt(text)}"),)
        names = _nearest_language(values, corpus.src_lang), _nearest_language(values, corpus.tgt_lang)
        if None in names:
            missing = corpus.src_lang if names[0] is None else corpus.tgt_lang
            return (Fault(FaultKind.NO_LANGUAGE, file, line, f"{missing} is not among {excerpt(', '.join(values))}"),)
    for name in names:
        if not isinstance(values.get(name), str):
            return (Fault(FaultKind.NO_TEXT, file, line, f"{name} in {excerpt(text)}"),)
    src, tgt = (values[name] for name in names)
    if "\\u" in text and _SURROGATE.search(src + tgt):
        return (Fault(FaultKind.LONE_SURROGATE, file, line, excerpt(text)),)
    return _pair(src, tgt, file, line, text)


def _read_tmx(corpus: CorpusConfig, watch: Watch) -> Iterator[Pair | Fault]:
    assert corpus.src_lang is not None
    assert corpus.tgt_lang is not None
    file = str(corpus.path)
    for unit in read_units(corpus.path, corpus.src_lang, corpus.tgt_lang, watch):
        if unit.is_too_long:
            yield Fault(FaultKind.TOO_LONG, file, unit.line, "")
        elif unit.src is None or unit.tgt is None:
            missing = corpus.src_lang if unit.src is None else corpus.tgt_lang
            yield Fault(
                FaultKind.NO_LANGUAGE, file, unit.line, f"{missing} beside {excerpt(unit.src or unit.tgt or '')!r}"
            )
        else:
            if unit.n_codes:
                yield Fault(FaultKind.INLINE_CODES, file, unit.line, excerpt(unit.src))
            if unit.n_spare:
                yield Fault(FaultKind.SPARE, file, unit.line, excerpt(unit.src))
            yield from _pair(unit.src, unit.tgt, file, unit.line, f"{unit.src} | {unit.tgt}")


_READERS: Final[dict[str, Callable[[CorpusConfig, Watch], Iterator[Pair | Fault]]]] = {
    "tsv": _read_by_line,
    "moses": _read_moses,
    "jsonl": _read_by_line,
    "tmx": _read_tmx,
}


def _byte_order_mark(raw: bytes, file: str, line: int) -> tuple[Fault, ...]:
    is_marked = line == 1 and raw.startswith(codecs.BOM_UTF8)
    return (Fault(FaultKind.BYTE_ORDER_MARK, file, line, ""),) if is_marked else ()


def _decode(raw: bytes, file: str, line: int) -> str | Fault:
    """Decode a line, without its end (LF, CRLF) and a byte order mark in the first."""
    if len(raw) > MAX_LINE:
        return Fault(FaultKind.TOO_LONG, file, line, excerpt(raw[:200].decode("utf-8", "replace")))
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        shown = excerpt(raw[max(error.start - 20, 0) :].decode("utf-8", "backslashreplace"))
        return Fault(FaultKind.BAD_UTF8, file, line, f"byte {error.start + 1} is 0x{raw[error.start]:02x} in {shown}")
    if "\0" in text:
        return Fault(FaultKind.NUL, file, line, excerpt(text))
    return text.removesuffix("\n").removesuffix("\r")


def _pair(src: str, tgt: str, file: str, line: int, whole: str) -> _Found:
    """Return a pair of two texts, or a fault that shows an excerpt of `whole`."""
    src, tgt = src.strip(), tgt.strip()
    if not (src and tgt):
        return (Fault(FaultKind.EMPTY, file, line, excerpt(whole)),)
    if "\0" in src or "\0" in tgt:
        return (Fault(FaultKind.NUL, file, line, excerpt(whole)),)
    if any(mark in text for text in (src, tgt) for mark in "\t\n"):
        folded = Pair(_BLANKS.sub(" ", src), _BLANKS.sub(" ", tgt), file, line)
        return (Fault(FaultKind.FOLDED, file, line, excerpt(whole)), folded)
    return (Pair(src, tgt, file, line),)


def _nearest_language(values: dict[str, object], wanted: str) -> str | None:
    best = max(values, key=lambda code: closeness(code, wanted), default=None)
    return best if best is not None and closeness(best, wanted) else None
