"""The data doctor's diagnosis in the terminal and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from glassformer.config import CorpusConfig, DoctorConfig
from glassformer.data.checks import Kind
from glassformer.data.clean import CleanCorpus
from glassformer.data.doctor import Diagnosis, Example, examine
from glassformer.data.formats import OnFault, corpus_size
from glassformer.data.lengths import Bars
from glassformer.data.pair import excerpt
from glassformer.errors import DataError
from glassformer.files import write_text
from glassformer.report.charts import bar_range, draw_length_map, draw_lengths, draw_ratios
from glassformer.report.page import render
from glassformer.report.progress import progress
from glassformer.report.terminal import bar, percent, show, table

_SHOWN: Final = 2  # examples of each kind in the terminal; the page has more
_LINE: Final = 160  # characters shown of a text
_BAR: Final = 20


def show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis: the counts, the histograms, the worst examples."""
    n_skipped = diagnosis.faults.n_skipped
    parts: list[RenderableType] = [
        Text("\n".join(diagnosis.files), style="bold"),
        Text(
            f"{diagnosis.n_pairs:,} pairs: {diagnosis.n_kept:,} to keep, {diagnosis.n_removed:,} to remove; "
            f"{n_skipped:,} unreadable line{'s' * (n_skipped != 1)}"
        ),
        Text(),
        _counts(diagnosis),
        Text(),
        _lengths(*diagnosis.shape.lengths()),
        Text(),
        _ratios(diagnosis.shape.ratios(), diagnosis.usual_ratio),
    ]
    for kind, examples in diagnosis.examples.items():
        parts += [Text(), Text(f"{kind}: {kind.meaning}", style="bold")]
        parts += [_example(example) for example in examples[:_SHOWN]]
    show(console, Group(*parts))


def doctor_html(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as a page, which has no script."""
    shape = diagnosis.shape
    notes = {
        name: f"{name}: median {shape.quantile(side, 0.5):,}, longest {shape.longest(side):,}"
        for side, name in enumerate(("source", "target"))
    }
    return render(
        "doctor.html.j2",
        diagnosis=diagnosis,
        names=", ".join(Path(file).name for file in diagnosis.files),
        found={kind: percent(n, diagnosis.n_pairs) for kind in Kind if (n := diagnosis.counts[kind])},
        absent=[kind for kind in Kind if not diagnosis.counts[kind] and diagnosis.was_looked_for(kind)],
        unchecked=[kind for kind in Kind if not diagnosis.was_looked_for(kind)],
        removed=_removed(diagnosis),
        charts=[
            draw_lengths(*shape.lengths(), notes),
            draw_ratios(shape.ratios(), diagnosis.usual_ratio),
            draw_length_map(shape.joint()),
        ],
    )


def remarks(diagnosis: Diagnosis) -> Iterator[str]:
    """Say how the corpus was read and by which rules it was judged, a line at a time."""
    yield from diagnosis.faults.report()
    yield f"rule: pairs with these findings are removed: {', '.join(_removed(diagnosis)) or 'none'}"
    if not diagnosis.held_out:
        yield "overlap: not checked, because no dev or test set was given"
    yield f"languages: {diagnosis.languages}"
    yield (
        f"{diagnosis.seconds:.1f} s, {diagnosis.n_pairs / diagnosis.seconds:,.0f} pairs/s; "
        f"{diagnosis.n_fingerprint_bytes / 1e6:.1f} MB of fingerprints"
    )


def _removed(diagnosis: Diagnosis) -> list[str]:
    return [str(kind) for kind in Kind if kind in diagnosis.remove]


def _counts(diagnosis: Diagnosis) -> Table:
    rows = [
        (
            str(kind),
            f"{diagnosis.counts[kind]:,}" if diagnosis.was_looked_for(kind) else "",
            percent(diagnosis.counts[kind], diagnosis.n_pairs) if diagnosis.counts[kind] else "",
            "removed" if kind in diagnosis.remove else "",
            kind.meaning,
        )
        for kind in Kind
    ]
    return table(("finding", "pairs", "share", "", ""), rows)


def _lengths(source: Bars, target: Bars) -> Table:
    full = max(*source.counts, *target.counts)
    rows = []
    for i in range(len(source.starts)):
        drawn = [(f"{side.counts[i]:,}", bar(side.counts[i], full, _BAR)) for side in (source, target)]
        rows.append((bar_range(source, i), *drawn[0], *drawn[1]))
    return table(("characters", "sources", "", "targets", ""), rows)


def _ratios(ratios: Bars, usual: float) -> Table:
    full, at = max(ratios.counts), max(i for i, start in enumerate(ratios.starts) if start <= usual)
    rows = [
        (bar_range(ratios, i), f"{n:,}", bar(n, full, _BAR), "median" if i == at else "")
        for i, n in enumerate(ratios.counts)
    ]
    return table(("source/target", "pairs", "", ""), rows)


def _example(example: Example) -> RenderableType:
    pair, finding = example.pair, example.finding
    place = Text(f"{pair.file}:{pair.line}  {finding.detail}", style="dim")
    texts = Text(f"{excerpt(pair.src, _LINE)}\n{excerpt(pair.tgt, _LINE)}")
    return Group(Padding(place, (0, 0, 0, 2)), Padding(texts, (0, 0, 0, 4)))


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
    """Examine corpora, print the diagnosis, and write the cleaned corpus and the reports that are asked for."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    clean = None if out is None else CleanCorpus(out)
    if clean is not None:
        clean.refuse_to_overwrite([*corpora, *dev, *test])
    for path in filter(None, (html, as_json)):
        if not path.parent.is_dir():  # said before the work, not after it
            raise DataError(f"{path}: cannot be written: there is no folder {path.parent}")
    size = 2 * sum(map(corpus_size, corpora)) + sum(map(corpus_size, [*dev, *test]))
    with progress("reading twice", size, unit="bytes") as watch, nullcontext() if clean is None else clean:
        diagnosis = examine(corpora, dev, test, config, remove, on_fault, clean, watch)
    show_diagnosis(diagnosis, Console())
    for line in remarks(diagnosis):
        errors.print(line, markup=False)
    written = [] if clean is None else [*clean.paths, clean.removed_path]
    if html is not None:
        write_text(html, doctor_html(diagnosis))
        written.append(html)
    if as_json is not None:
        write_text(as_json, json.dumps(diagnosis.as_dict(), ensure_ascii=False, indent=1) + "\n")
        written.append(as_json)
    for path in written:
        errors.print(f"wrote {path}", markup=False)
