"""The data doctor's report as one HTML page: nothing to fetch, no script, readable on a phone and at night."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from glassformer.data.checks import Kind
from glassformer.data.doctor import Diagnosis, Example
from glassformer.data.lengths import Bars
from glassformer.data.pair import excerpt
from glassformer.report.page import print_page

_TEXT: Final = 300  # characters of a text that are shown
_WIDTH, _HEIGHT, _BASE, _MARGIN = 360, 180, 150, 8  # of a chart; where its bars stand; space at its sides
_MAP: Final = 290  # side of the chart of both lengths

_STYLE: Final = """
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .2em; }
pre, .place { white-space: pre-wrap; overflow-wrap: anywhere; font: .82rem/1.5 ui-monospace, monospace; }
.findings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 0 2rem; }
.findings { margin: 0 0 1rem; padding: 0; list-style: none; }
.findings li { display: grid; grid-template-columns: 1fr auto; border-top: 1px solid var(--line); padding: .6rem 0; }
.findings div + div { text-align: right; font-variant-numeric: tabular-nums; }
.findings b { font-weight: 500; }
.out { color: var(--out); font-size: .8rem; white-space: nowrap; }
.meter { grid-column: 1 / -1; height: .25rem; margin-top: .4rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: .8rem; }
.charts { align-items: start; }
figure { margin: 0; padding: 1rem; }
figcaption { font-size: .9rem; margin-bottom: .5rem; }
svg { width: 100%; display: block; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.s { fill: var(--source); } .t { fill: var(--target); } .r { fill: var(--plain); }
.axis { stroke: var(--line); }
.usual { stroke: var(--ink); stroke-dasharray: 3 2; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: .15em; margin-right: .4em; }
details { margin: .6rem 0; padding: .7rem 1rem; }
summary { cursor: pointer; }
summary b { font-weight: 600; }
.pair { border-top: 1px solid var(--line); margin-top: .8rem; padding-top: .7rem; }
.pair p { border-inline-start: 3px solid var(--source); padding-inline-start: .6rem; }
.pair p + p { border-color: var(--target); }
"""


def draw_page(diagnosis: Diagnosis) -> str:
    """Write a diagnosis as a page of HTML."""
    names = ", ".join(Path(file).name for file in diagnosis.files)
    body = "\n".join(
        [
            "<h1>Data check-up</h1>",
            f'<p class="soft">{escape(names)}</p>',
            _numbers(diagnosis),
            "<h2>Findings</h2>",
            _findings(diagnosis),
            "<h2>Lengths</h2>",
            _charts(diagnosis),
            "<h2>The worst of each kind</h2>",
            *(_examples(kind, diagnosis.counts[kind], found) for kind, found in diagnosis.examples.items()),
            "<h2>How it was read and judged</h2>",
            _method(diagnosis),
        ]
    )
    return print_page(f"Check-up of {names}", body, _STYLE)


def _numbers(diagnosis: Diagnosis) -> str:
    numbers = {
        "pairs read": diagnosis.n_pairs,
        "to keep": diagnosis.n_kept,
        "to remove": diagnosis.n_removed,
        "lines that are no pairs": diagnosis.faults.n_skipped,
    }
    tiles = "".join(f"<div><b>{n:,}</b><small>{name}</small></div>" for name, n in numbers.items())
    return f'<div class="numbers">{tiles}</div>'


def _findings(diagnosis: Diagnosis) -> str:
    found = [kind for kind in Kind if diagnosis.counts[kind]]
    absent = [kind for kind in Kind if kind not in found and diagnosis.was_looked_for(kind)]
    ignored = [kind for kind in Kind if not diagnosis.was_looked_for(kind)]
    rows = "".join(_finding(diagnosis, kind) for kind in found)
    return (
        f'<ul class="findings">{rows}</ul>'
        + (f'<p class="soft">Looked for and not found: {", ".join(absent)}.</p>' if absent else "")
        + (f'<p class="soft">Not looked for: {", ".join(ignored)}.</p>' if ignored else "")
    )


def _finding(diagnosis: Diagnosis, kind: Kind) -> str:
    n = diagnosis.counts[kind]
    removed = ' <span class="out">removed</span>' if kind in diagnosis.remove else ""
    # A tenth of the corpus fills the meter, and the root makes one pair in ten thousand visible.
    width = 100 * min(math.sqrt(10 * n / diagnosis.n_pairs), 1)
    return (
        f'<li><div><a href="#{kind}">{kind}</a>{removed}<small>{kind.meaning}</small></div>'
        f"<div><b>{n:,}</b><small>{diagnosis.share(kind)}</small></div>"
        f'<div class="meter"><i style="width:{width:.1f}%"></i></div></li>'
    )


def _charts(diagnosis: Diagnosis) -> str:
    shape = diagnosis.shape
    source, target = shape.lengths()
    key = '<span class="key" style="background:var(--{0})"></span>{0}: median {1:,}, longest {2:,}'
    legend = "<br>".join(
        key.format(name, shape.quantile(side, 0.5), shape.longest(side))
        for side, name in enumerate(("source", "target"))
    )
    return (
        '<div class="charts">'
        + _figure(f"Characters a sentence<small>{legend}</small>", _length_chart(source, target))
        + _figure(
            f"Source length over target length<small>usual, dashed: {diagnosis.usual_ratio:.2f}</small>",
            _ratio_chart(shape.ratios(), diagnosis.usual_ratio),
        )
        + _figure(
            "Both lengths<small>source to the right, target upwards; the stronger, the more</small>",
            _map(shape.joint()),
        )
        + "</div>"
    )


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>"


def _length_chart(source: Bars, target: Bars) -> str:
    full = max(*source.counts, *target.counts)
    step = (_WIDTH - 2 * _MARGIN) / len(source.starts)
    width = 0.42 * step
    bars = []
    for i, start in enumerate(source.starts):
        x = _MARGIN + i * step
        span = f"{start:g} and more" if i + 1 == len(source.starts) else f"{start:g} to {source.starts[i + 1] - 1:g}"
        bars.append(_bar("s", x, width, source.counts[i] / full, f"{span} characters: {source.counts[i]:,} sources"))
        bars.append(
            _bar("t", x + width, width, target.counts[i] / full, f"{span} characters: {target.counts[i]:,} targets")
        )
    every = max(len(source.starts) // 6, 1)
    ticks = [(_MARGIN + i * step, f"{source.starts[i]:g}") for i in range(0, len(source.starts), every)]
    return _svg("Histogram of sentence lengths", [*bars, *_axis(ticks)], _HEIGHT)


def _ratio_chart(ratios: Bars, usual: float) -> str:
    full = max(ratios.counts)
    step = (_WIDTH - 2 * _MARGIN) / len(ratios.starts)
    bars = [
        _bar("r", _MARGIN + i * step, 0.85 * step, n / full, f"from {ratios.starts[i]:.2f}: {n:,} pairs")
        for i, n in enumerate(ratios.counts)
    ]
    steps = len(ratios.starts) - 1  # the first bar holds what is below all the others
    low, high = math.log(ratios.starts[1]), math.log(ratios.starts[-1])

    def place(ratio: float) -> float:
        share = (math.log(ratio) - low) / (high - low)
        return _MARGIN + step * (1 + min(max(share, 0.0), 1.0) * (steps - 1))

    ticks = [(place(ratio), f"{ratio:g}") for ratio in (0.25, 0.5, 1.0, 2.0, 4.0)]
    line = f'<line class="usual" x1="{place(usual):.1f}" x2="{place(usual):.1f}" y1="4" y2="{_BASE}"/>'
    return _svg("Histogram of length ratios", [*bars, line, *_axis(ticks)], _HEIGHT)


def _map(joint: Sequence[Sequence[int]]) -> str:
    """Draw the counts by both lengths, as far as there are any."""
    used = [place for i, row in enumerate(joint) for j, n in enumerate(row) if n for place in (i, j)]
    first, n_cells = min(used), max(used) - min(used) + 1
    cell = _MAP / n_cells
    full = math.log1p(max(max(row) for row in joint))
    cells = [
        f'<rect x="{(i - first) * cell:.1f}" y="{_MAP - (j - first + 1) * cell:.1f}" width="{cell:.1f}" '
        f'height="{cell:.1f}" opacity="{math.log1p(n) / full:.2f}"/>'
        for i, row in enumerate(joint)
        for j, n in enumerate(row)
        if n
    ]
    ticks = [((i - first) * cell, 2 ** (i // 2)) for i in range(first, first + n_cells) if i % 4 == 0]
    below = [f'<text x="{x:.1f}" y="{_MAP + 14}">{n}</text>' for x, n in ticks]
    beside = [f'<text x="-4" y="{_MAP - y:.1f}" text-anchor="end">{n}</text>' for y, n in ticks]
    diagonal = f'<line class="axis" x1="0" y1="{_MAP}" x2="{_MAP}" y2="0"/>'
    return (
        f'<svg viewBox="-34 0 {_WIDTH} {_MAP + 20}" role="img" aria-label="Source length against target length">'
        f'{diagonal}<g class="r">{"".join(cells)}</g>{"".join(below)}{"".join(beside)}</svg>'
    )


def _bar(kind: str, x: float, width: float, share: float, title: str) -> str:
    height = share * (_BASE - 10)
    if share > 0:
        height = max(height, 1.0)  # what is there is seen
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{_BASE - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _axis(ticks: Iterable[tuple[float, str]]) -> list[str]:
    line = f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{_BASE}" y2="{_BASE}"/>'
    return [line, *(f'<text x="{x:.1f}" y="{_BASE + 14}">{escape(label)}</text>' for x, label in ticks)]


def _svg(label: str, parts: Iterable[str], height: int) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _examples(kind: Kind, count: int, examples: Sequence[Example]) -> str:
    pairs = "".join(
        f'<div class="pair"><span class="place soft">{escape(example.pair.file)}:{example.pair.line}</span> '
        f"<small>{escape(example.finding.detail)}</small>"
        f'<p dir="auto">{escape(excerpt(example.pair.src, _TEXT))}</p>'
        f'<p dir="auto">{escape(excerpt(example.pair.tgt, _TEXT))}</p></div>'
        for example in examples
    )
    summary = f"<summary><b>{kind}</b> {count:,}<small>{kind.meaning}</small></summary>"
    return f'<details id="{kind}" open>{summary}{pairs}</details>'


def _method(diagnosis: Diagnosis) -> str:
    removed = ", ".join(kind for kind in Kind if kind in diagnosis.remove) or "nothing"
    held_out = ", ".join(diagnosis.held_out) or "none given, so overlap was not looked for"
    report = "\n".join(diagnosis.faults.report())
    return (
        "<p>A bar under a finding is full at a tenth of the pairs, and grows with the root of their number.</p>"
        f"<p>Removed are: {removed}.</p><p>Languages: {escape(diagnosis.languages)}.</p>"
        f"<p>Held out: {escape(held_out)}.</p><pre>{escape(report)}</pre>"
    )
