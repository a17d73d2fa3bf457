"""Curves over updates as HTML: drawn by Python, so that they are seen without a script; any width, the text stays.

A chart is a box of a fixed height. The lines inside stretch with it (their strokes do not), the labels are HTML
beside them. A chart with two scales holds both drawings, and the page shows one of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np

_MOST: Final = 240  # points of a curve; more are not seen
_SIDE: Final = 1000  # of the box that is drawn in
_TICKS: Final = 4

STYLE: Final = """
.plot { position: relative; height: 11rem; margin: .3rem 0 1.6rem 3rem; touch-action: pan-y; }
.tall .plot { height: 16rem; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot path, .plot line { fill: none; vector-effect: non-scaling-stroke; stroke-width: 1.8; stroke-linejoin: round; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .first { stroke: var(--source); } .plot .second { stroke: var(--target); } .plot .alone { stroke: var(--plain); }
.plot .dot { stroke-width: 9; stroke-linecap: round; }
.plot .back { stroke: var(--out); stroke-width: 1.2; stroke-dasharray: 4 3; }
.plot .now { stroke: var(--soft); stroke-width: 1; }
.plot span { position: absolute; color: var(--soft); font-size: .78rem; line-height: 1; white-space: nowrap; }
.plot span { font-variant-numeric: tabular-nums; }
.plot .y { right: calc(100% + .5rem); transform: translateY(50%); }
.plot .x { top: calc(100% + .5rem); transform: translateX(-50%); }
.plot .x:last-of-type { transform: translateX(-100%); }
.read { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: .9em; height: .2em; border-radius: .1em; margin: 0 .35em .25em 0; }
.log { display: none; }
body:has(#scale:checked) .log { display: inline; }
body:has(#scale:checked) .switched .linear { display: none; }
"""

# Read-outs under the pointer; without a script the page lacks nothing else.
SCRIPT: Final = """
for (const plot of document.querySelectorAll(".plot")) {
  const {last, curves} = JSON.parse(plot.dataset.curves);
  const read = plot.closest("figure").querySelector(".read"), resting = read.innerHTML;
  const now = plot.querySelector(".now");
  const show = value => Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : +value.toPrecision(4);
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    const step = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * last;
    let at = null;
    const words = curves.map(([name, steps, values]) => {
      let best = 0;
      steps.forEach((x, i) => { if (Math.abs(x - step) < Math.abs(steps[best] - step)) best = i; });
      at ??= steps[best];
      return (name ? name + " " : "") + show(values[best]);
    });
    read.textContent = "update " + Math.round(at).toLocaleString("en") + ": " + words.join(", ");
    now.setAttribute("x1", at / last * 1000);
    now.setAttribute("x2", at / last * 1000);
    now.style.display = "inline";
  });
  plot.addEventListener("pointerleave", () => { read.innerHTML = resting; now.style.display = "none"; });
}
"""


class Curve(NamedTuple):
    """Values over updates, thinned to what can be seen."""

    name: str
    colour: str  # first, second or alone: classes of the page's style
    steps: list[float]
    values: list[float]


class Chart(NamedTuple):
    """What one chart shows."""

    title: str
    about: str  # a line below the title
    curves: tuple[Curve, ...]
    last: int  # the update at its right end
    from_zero: bool = False
    log_too: bool = False
    backs: tuple[int, ...] = ()  # updates from which the run went back
    mark: tuple[float, float] | None = None  # a point to see
    span: str = ""  # long: as broad as the page; "long tall": high besides


class _Scale(NamedTuple):
    low: float
    high: float
    is_log: bool

    def place(self, value: float) -> float:
        """Say how far up a value stands, 0 to 1."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return (value - low) / (high - low)


def curve(name: str, colour: str, lines: Sequence[Mapping[str, Any]], field: str) -> Curve:
    """Take a curve out of lines of metrics.jsonl; many points become means of neighbours."""
    steps = np.array([line["step"] for line in lines], float)
    values = np.array([line[field] for line in lines], float)
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    if not len(steps):
        return Curve(name, colour, [], [])
    starts = np.arange(0, len(steps), -(-len(steps) // _MOST))
    sizes = np.diff([*starts, len(steps)])
    steps, values = (np.add.reduceat(column, starts) / sizes for column in (steps, values))
    return Curve(name, colour, steps.tolist(), values.tolist())


def draw_chart(chart: Chart) -> str:
    """Draw a chart as a figure; one without points says so."""
    curves = [drawn for drawn in chart.curves if drawn.steps]
    legend = "&emsp;".join(
        f'<span class="key" style="background:var(--{"source" if c.colour == "first" else "target"})"></span>'
        f"{escape(c.name)}"
        for c in curves
        if c.name
    )
    kind = f"{chart.span} switched" if chart.log_too else chart.span
    head = f'<figcaption>{escape(chart.title)}<div class="read">{legend or escape(chart.about)}</div></figcaption>'
    if not curves:
        return f'<figure class="{kind}">{head}<p class="soft">nothing yet</p></figure>'
    values = [value for c in curves for value in c.values] + ([chart.mark[1]] if chart.mark else [])
    scales = [_linear(values, chart.from_zero)]
    if chart.log_too:
        scales.append(_logarithmic([value for value in values if value > 0] or [1.0]))
    drawings, labels = zip(*(_layer(chart, curves, scale) for scale in scales), strict=True)
    backs = "".join(_upright("back", step / max(chart.last, 1)) for step in chart.backs)
    below = "".join(
        f'<span class="x" style="left:{100 * step / max(chart.last, 1):.1f}%">{_short(step)}</span>'
        for step in _steps(chart.last)
    )
    data = {"last": chart.last, "curves": [[c.name, _rounded(c.steps), _rounded(c.values)] for c in curves]}
    numbers = escape(json.dumps(data, separators=(",", ":")))
    return (
        f'<figure class="{kind}">{head}<div class="plot" data-curves="{numbers}">'
        f'<svg viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none" role="img" aria-label="{_in_words(chart)}">'
        f'{"".join(drawings)}{backs}<line class="now" y1="0" y2="{_SIDE}" style="display:none"/></svg>'
        f"{''.join(labels)}{below}</div></figure>"
    )


def _layer(chart: Chart, curves: Sequence[Curve], scale: _Scale) -> tuple[str, str]:
    """Draw the curves on one scale: what is inside the box, and the labels beside it."""
    kind = "log" if scale.is_log else "linear"
    ticks = _log_ticks(scale) if scale.is_log else _ticks(scale)
    grid = "".join(
        f'<line class="grid" x1="0" x2="{_SIDE}" y1="{y}" y2="{y}"/>'
        for y in (_number(_SIDE * (1 - scale.place(tick))) for tick in ticks)
    )
    labels = "".join(
        f'<span class="y {kind}" style="bottom:{100 * scale.place(tick):.1f}%">{_short(tick)}</span>' for tick in ticks
    )
    place: Callable[[float, float], str] = lambda step, value: (  # noqa: E731
        f"{_number(_SIDE * step / max(chart.last, 1))} {_number(_SIDE * (1 - scale.place(value)))}"
    )
    paths = []
    for c in curves:
        points = "L".join(place(*point) for point in zip(c.steps, c.values, strict=True))
        dot = " dot" if len(c.steps) == 1 else ""  # a line of no length is seen by its round ends
        paths.append(f'<path class="{c.colour}{dot}" d="M{points}{"h0" if dot else ""}"/>')
    if chart.mark:
        paths.append(f'<path class="{curves[0].colour} dot" d="M{place(*chart.mark)}h0"/>')
    return f'<g class="{kind}">{grid}{"".join(paths)}</g>', labels


def _linear(values: Sequence[float], from_zero: bool) -> _Scale:
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    if high - low <= 1e-9 * abs(high):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    room = 0.04 * (high - low)
    return _Scale(low if from_zero and low == 0 else low - room, high + room, False)


def _logarithmic(values: Sequence[float]) -> _Scale:
    low, high = min(values), max(values)
    return _Scale(low / 1.1, high * 1.1, True)


def _ticks(scale: _Scale) -> list[float]:
    step = _round_step((scale.high - scale.low) / _TICKS)
    first, last = math.ceil(scale.low / step), math.floor(scale.high / step)
    return [number * step for number in range(first, last + 1)]


def _log_ticks(scale: _Scale) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        if last - first > 2 * _TICKS:
            return [10.0**power for power in range(first, last, -(-(last - first) // _TICKS)) if 10**power > scale.low]
        ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        inside = [tick for tick in ticks if scale.low <= tick <= scale.high]
        if len(inside) >= _TICKS - 1:
            return inside
    return inside or [scale.low, scale.high]


def _steps(last: int) -> list[int]:
    """Choose the updates that are named below a chart: round ones, and the last."""
    step = max(int(_round_step(last / _TICKS)), 1)
    rounds = [number for number in range(0, last, step) if last - number > 0.55 * step]
    return [*rounds, last]


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(about)) if about > 0 else 1.0
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= about * 0.999)


def _upright(kind: str, share: float) -> str:
    x = _number(_SIDE * share)
    return f'<line class="{kind}" x1="{x}" x2="{x}" y1="0" y2="{_SIDE}"/>'


def _short(value: float) -> str:
    for limit, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * limit or (abs(value) >= limit and round(value) % 100 == 0):
            return f"{value / limit:.4g}{sign}"
    return f"{value:.3g}".replace("e-0", "e-") if 0 < abs(value) < 10 else f"{value:,.4g}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.5g}") if value % 1 else int(value) for value in values]


def _in_words(chart: Chart) -> str:
    parts = [f"{c.name or 'value'} from {c.values[0]:.4g} to {c.values[-1]:.4g}" for c in chart.curves if c.values]
    return escape(f"{chart.title}: {', '.join(parts)}, over {chart.last} updates")
