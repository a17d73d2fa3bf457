"""The data doctor in the terminal: progress and rules on stderr, what was found on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from glassformer.config import CorpusConfig, DoctorConfig
from glassformer.data.checks import Kind
from glassformer.data.clean import CleanCorpus
from glassformer.data.doctor import Diagnosis, Example, examine
from glassformer.data.formats import OnFault, corpus_size
from glassformer.data.lengths import Bars
from glassformer.data.lines import Watch
from glassformer.data.pair import excerpt
from glassformer.errors import DataError
from glassformer.files import write_text
from glassformer.report.doctor_page import draw_page
from glassformer.report.terminal import bar, show, table

_SHOWN: Final = 2  # examples of each kind; the HTML report has more
_LINE: Final = 160  # characters of a text that are shown
_BAR: Final = 20


def check_corpora(
    corpora: Sequence[CorpusConfig],
    dev: Sequence[CorpusConfig],
    test: Sequence[CorpusConfig],
    config: DoctorConfig,
    remove: frozenset[Kind],
    on_fault: OnFault,
    out: CorpusConfig | None = None,
    html: Path | None = None,
    as_json: Path | None = None,
) -> None:
    """Examine corpora, print what was found, and write the cleaned corpus and the reports that are asked for."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    clean = None if out is None else CleanCorpus(out)
    if clean is not None:
        clean.refuse_to_overwrite([*corpora, *dev, *test])
    for path in filter(None, (html, as_json)):
        if not path.parent.is_dir():  # said before the work, not after it
            raise DataError(f"{path}: cannot be written: there is no folder {path.parent}")
    size = 2 * sum(map(corpus_size, corpora)) + sum(map(corpus_size, [*dev, *test]))
    with _progress(errors, size) as watch, nullcontext() if clean is None else clean:
        diagnosis = examine(corpora, dev, test, config, remove, on_fault, clean, watch)
    show(Console(highlight=False), draw_diagnosis(diagnosis))
    for line in _remarks(diagnosis):
        errors.print(line, markup=False)
    if clean is not None:
        for path in (*clean.paths, clean.removed_path):
            errors.print(f"wrote {path}", markup=False)
    if html is not None:
        _write(html, draw_page(diagnosis), errors)
    if as_json is not None:
        _write(as_json, json.dumps(diagnosis.as_dict(), ensure_ascii=False, indent=1) + "\n", errors)


def draw_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Lay out a diagnosis for a terminal: the counts, the histograms, the worst examples."""
    parts: list[RenderableType] = [
        Text("\n".join(diagnosis.files), style="bold"),
        Text(
            f"{diagnosis.n_pairs:,} pairs: {diagnosis.n_kept:,} to keep, {diagnosis.n_removed:,} to remove; "
            f"{diagnosis.faults.n_skipped:,} lines that are no pairs"
        ),
        Text(),
        _draw_counts(diagnosis),
        Text(),
        _draw_lengths(diagnosis),
        Text(),
        _draw_ratios(diagnosis),
    ]
    for kind, examples in diagnosis.examples.items():
        parts += [Text(), Text(f"{kind}: {kind.meaning}", style="bold")]
        parts += [_draw_example(example) for example in examples[:_SHOWN]]
    return Group(*parts)


def _draw_counts(diagnosis: Diagnosis) -> Table:
    rows = [
        (
            str(kind),
            f"{diagnosis.counts[kind]:,}" if diagnosis.was_looked_for(kind) else "",
            diagnosis.share(kind),
            "removed" if kind in diagnosis.remove else "",
            kind.meaning,
        )
        for kind in Kind
    ]
    return table(("finding", "pairs", "share", "", ""), rows)


def _draw_lengths(diagnosis: Diagnosis) -> Table:
    source, target = diagnosis.shape.lengths()
    full = max(*source.counts, *target.counts)
    rows = []
    for i in range(len(source.starts)):
        drawn = [(f"{side.counts[i]:,}", bar(side.counts[i], full, _BAR)) for side in (source, target)]
        rows.append((_range(source, i), *drawn[0], *drawn[1]))
    return table(("characters", "sources", "", "targets", ""), rows)


def _draw_ratios(diagnosis: Diagnosis) -> Table:
    ratios = diagnosis.shape.ratios()
    full = max(ratios.counts)
    rows = [
        (_range(ratios, i), f"{n:,}", bar(n, full, _BAR), "usual" if _holds(ratios, i, diagnosis.usual_ratio) else "")
        for i, n in enumerate(ratios.counts)
    ]
    return table(("source/target", "pairs", "", ""), rows)


def _holds(bars: Bars, i: int, value: float) -> bool:
    return bars.starts[i] <= value and (i + 1 == len(bars.starts) or value < bars.starts[i + 1])


def _range(bars: Bars, i: int) -> str:
    """Name a bar by its ends: whole numbers from the first to the last, others by the two limits."""
    start = bars.starts[i]
    if i + 1 == len(bars.starts):
        return f"{start:g} and more"
    end = bars.starts[i + 1]
    return f"{start}–{end - 1}" if isinstance(start, int) else f"{start:.2f}–{end:.2f}"


def _draw_example(example: Example) -> RenderableType:
    pair, finding = example.pair, example.finding
    place = Text(f"{pair.file}:{pair.line}  {finding.detail}", style="dim")
    texts = Text(f"{excerpt(pair.src, _LINE)}\n{excerpt(pair.tgt, _LINE)}")
    return Group(Padding(place, (0, 0, 0, 2)), Padding(texts, (0, 0, 0, 4)))


def _remarks(diagnosis: Diagnosis) -> Iterator[str]:
    """Say what was done by which rule, for stderr."""
    yield from diagnosis.faults.report()
    removed = ", ".join(kind for kind in Kind if kind in diagnosis.remove) or "nothing"
    yield f"rule: removed are {removed}; --keep KIND and --remove KIND change that"
    if not diagnosis.held_out:
        yield "overlap: not looked for, without --dev or --test"
    yield f"languages: {diagnosis.languages}"
    yield (
        f"{diagnosis.seconds:.1f} s, {diagnosis.n_pairs / diagnosis.seconds:,.0f} pairs/s; "
        f"{diagnosis.n_fingerprint_bytes / 1e6:.1f} MB of fingerprints"
    )


@contextmanager
def _progress(console: Console, n_bytes: int) -> Iterator[Watch]:
    """Show a bar on a terminal, and nothing in a log."""
    columns = TextColumn("reading twice"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=n_bytes)
        yield lambda n_read: progress.advance(task, n_read)


def _write(path: Path, text: str, errors: Console) -> None:
    write_text(path, text)
    errors.print(f"wrote {path}", markup=False)
