"""Charts as inline SVG: curves over updates, histograms, a map of sentence lengths, reliability diagrams.

A chart is a box of any width. What is drawn in it stretches with the box, strokes keep their width, and the labels are
HTML around it, so that text keeps its size. Python draws everything: a page shows its charts without a script.
Places are shares of the box, 0 to 1, from the left and from the bottom.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from markupsafe import Markup

from glassformer.data.lengths import Bars

if TYPE_CHECKING:
    from glassformer.evaluation.calibration import Reliability  # loads torch, which the doctor does not need

_MOST: Final = 240  # points of a curve; more cannot be seen
_SIDE: Final = 1000  # units of the box on each side
_TICKS: Final = 4
_LEAST: Final = 0.006  # height of a bar, so that one pair in many thousands is seen
_PER_FACTOR: Final = 2  # cells of the map to a factor of two


class Curve(NamedTuple):
    """Values over updates, thinned to what can be seen."""

    name: str
    colour: str  # first, second or alone: classes of charts.css
    steps: list[float]
    values: list[float]


class Chart(NamedTuple):
    """Curves and how to show them."""

    title: str
    about: str  # a line below the title
    curves: tuple[Curve, ...]
    last: int  # the update at the right end
    from_zero: bool = False
    log_too: bool = False
    backs: tuple[int, ...] = ()  # updates that were rolled back
    mark: tuple[float, float] | None = None  # a point to emphasise
    span: str = ""  # "long": as wide as the page; "long tall": also higher


def curve(name: str, colour: str, lines: Sequence[Mapping[str, Any]], field: str) -> Curve:
    """Take a curve out of lines of metrics.jsonl; many points become means of neighbours."""
    points = np.array([(line["step"], line[field]) for line in lines if field in line], float).reshape(-1, 2)
    points = points[np.isfinite(points[:, 1])]
    if len(points) > _MOST:
        starts = np.arange(0, len(points), -(-len(points) // _MOST))
        points = np.add.reduceat(points, starts) / np.diff([*starts, len(points)])[:, None]
    return Curve(name, colour, points[:, 0].tolist(), points[:, 1].tolist())


def draw_curves(chart: Chart) -> Markup:
    """Draw a chart as a figure; one without points says so."""
    curves = [drawn for drawn in chart.curves if drawn.steps]
    about = _legend({c.name: c.colour for c in curves if c.name}) or chart.about
    kind = f"{chart.span} switched" if chart.log_too else chart.span
    if not curves:
        return _figure(chart.title, about, _element("p", "nothing yet", class_="soft"), kind)
    last = max(chart.last, 1)
    values = [value for c in curves for value in c.values] + ([chart.mark[1]] if chart.mark else [])
    scales = [_linear(values, chart.from_zero)]
    if chart.log_too:
        scales.append(_logarithmic([value for value in values if value > 0] or [1.0]))
    inside = [_layer(chart, curves, scale) for scale in scales]
    inside += [_upright("back", step / last) for step in chart.backs]
    inside.append(_element("line", class_="now", y1=0, y2=_SIDE, style="display:none"))
    labels = [_y_label(scale.place(tick), _short(tick), scale.kind) for scale in scales for tick in scale.ticks()]
    labels += [_x_label(step / last, _short(step)) for step in _steps(chart.last)]
    ends = [f"{c.name or 'value'} from {c.values[0]:.4g} to {c.values[-1]:.4g}" for c in curves]
    data = {"last": chart.last, "curves": [[c.name, _rounded(c.steps), _rounded(c.values)] for c in curves]}
    plot = _plot(
        f"{chart.title}: {', '.join(ends)}, over {chart.last} updates",
        inside,
        labels,
        data_curves=json.dumps(data, separators=(",", ":")),
    )
    return _figure(chart.title, about, plot, kind)


def draw_lengths(source: Bars, target: Bars, notes: Mapping[str, str]) -> Markup:
    """Draw the sentence lengths of both sides beside each other; `notes` say what the legend says of each side."""
    full, step = max(*source.counts, *target.counts), 1 / len(source.starts)
    bars = [
        _bar(colour, (i + left) * step, 0.42 * step, n / full, f"{bar_range(source, i)} characters: {n:,} {name}s")
        for colour, name, left, side in (("first", "source", 0.08, source), ("second", "target", 0.5, target))
        for i, n in enumerate(side.counts)
    ]
    every = max(len(source.starts) // 6, 1)
    labels = [_x_label(i * step, f"{source.starts[i]:g}") for i in range(0, len(source.starts), every)]
    plot = _plot("Histogram of sentence lengths", [*bars, _base()], labels, "bare")
    legend = Markup("<br>").join(_legend({notes[name]: c}) for name, c in (("source", "first"), ("target", "second")))
    return _figure("Characters per sentence", legend, plot)


def draw_ratios(ratios: Bars, usual: float) -> Markup:
    """Draw the ratios of source to target length, with the usual one as a dashed line."""
    full, step = max(ratios.counts), 1 / len(ratios.starts)
    bars = [
        _bar("alone", (i + 0.08) * step, 0.84 * step, n / full, f"{bar_range(ratios, i)}: {n:,} pairs")
        for i, n in enumerate(ratios.counts)
    ]
    low, high = math.log(ratios.starts[1]), math.log(ratios.starts[-1])  # below the second bar lies the first

    def place(ratio: float) -> float:
        share = min(max((math.log(ratio) - low) / (high - low), 0.0), 1.0)
        return step * (1 + share * (len(ratios.starts) - 2))

    labels = [_x_label(place(ratio), f"{ratio:g}") for ratio in (0.25, 0.5, 1.0, 2.0, 4.0)]
    plot = _plot("Histogram of length ratios", [*bars, _base(), _upright("usual", place(usual))], labels, "bare")
    return _figure("Length ratio, source / target", f"median, dashed: {usual:.2f}", plot)


def draw_length_map(joint: Sequence[Sequence[int]]) -> Markup:
    """Draw the number of pairs by source and target length, as far as there are any, on logarithmic axes."""
    used = [place for i, row in enumerate(joint) for j, n in enumerate(row) if n for place in (i, j)]
    first, n_cells = min(used), max(used) - min(used) + 1
    full, cell = math.log1p(max(map(max, joint))), _SIDE / n_cells
    cells = [
        _element(
            "rect",
            x=_number((i - first) * cell),
            y=_number(_SIDE - (j - first + 1) * cell),
            width=_number(cell),
            height=_number(cell),
            opacity=f"{math.log1p(n) / full:.2f}",
        )
        for i, row in enumerate(joint)
        for j, n in enumerate(row)
        if n
    ]
    diagonal = _element("line", class_="grid", x1=0, y1=_SIDE, x2=_SIDE, y2=0)
    every = 2 * _PER_FACTOR
    ticks = [
        ((i - first) / n_cells, f"{2 ** (i // _PER_FACTOR)}") for i in range(first, first + n_cells) if not i % every
    ]
    labels = [label(*tick) for label in (_x_label, _y_label) for tick in ticks]
    plot = _plot("Source length against target length", [diagonal, *cells], labels, "square")
    return _figure("Both lengths, in characters", "source to the right, target upwards; darker means more pairs", plot)


def draw_reliability(title: str, reliability: Reliability) -> Markup:
    """Draw the quality of sentences of similar confidence, which is on the diagonal where confidence is right."""
    points = [(one.confidence, one.quality, one.n_sentences) for one in reliability.bins]
    diagonal = _element("line", class_="grid", x1=0, y1=_SIDE, x2=_SIDE, y2=0)
    corners = [f"{_number(_SIDE * x)} {_number(_SIDE * (1 - y))}" for x, y, _ in points]
    line = _element("path", class_="alone", d="M" + "L".join(corners))
    ticks = [(tick / 4, f"{tick / 4:g}") for tick in range(5)]
    labels = [label(*tick) for label in (_x_label, _y_label) for tick in ticks]
    plot = _plot(
        f"Reliability diagram: {title}",
        [diagonal, line, *(_dot("alone", corner) for corner in corners)],
        labels,
        "square",
    )
    return _figure(
        title, f"expected calibration error {reliability.error:.3f}; confidence to the right, quality upwards", plot
    )


def bar_range(bars: Bars, i: int) -> str:
    """Name a bar by its ends: whole numbers from the first to the last, others by the two limits."""
    start = bars.starts[i]
    if i + 1 == len(bars.starts):
        return f"{start:g} and more"
    end = bars.starts[i + 1]
    return f"{start}–{end - 1}" if isinstance(start, int) else f"{start:.2f}–{end:.2f}"


class _Scale(NamedTuple):
    """A vertical axis."""

    low: float
    high: float
    kind: str = "linear"  # or log: classes of charts.css

    def place(self, value: float) -> float:
        """Return how far up a value stands, 0 to 1."""
        low, high = self.low, self.high
        if self.kind == "log":
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return round values on the axis."""
        if self.kind == "log":
            return self._log_ticks()
        step = _round_step((self.high - self.low) / _TICKS)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        if last - first > 2 * _TICKS:
            powers = range(first, last, -(-(last - first) // _TICKS))
            return [10.0**power for power in powers if 10**power > self.low]
        for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
            ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) >= _TICKS - 1:
                break
        return inside or [self.low, self.high]


def _linear(values: Sequence[float], from_zero: bool) -> _Scale:
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    if high - low <= 1e-9 * abs(high):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    room = 0.04 * (high - low)
    return _Scale(low if from_zero and low == 0 else low - room, high + room)


def _logarithmic(values: Sequence[float]) -> _Scale:
    return _Scale(min(values) / 1.1, max(values) * 1.1, "log")


def _layer(chart: Chart, curves: Sequence[Curve], scale: _Scale) -> Markup:
    """Draw the grid and the curves on one scale."""

    def place(step: float, value: float) -> str:
        return f"{_number(_SIDE * step / max(chart.last, 1))} {_number(_SIDE * (1 - scale.place(value)))}"

    heights = [_number(_SIDE * (1 - scale.place(tick))) for tick in scale.ticks()]
    parts = [_element("line", class_="grid", x1=0, x2=_SIDE, y1=y, y2=y) for y in heights]
    for c in curves:
        points = "L".join(map(place, c.steps, c.values))
        # A line of no length is seen by its round ends.
        parts.append(_element("path", class_=c.colour, d=f"M{points}") if len(c.steps) > 1 else _dot(c.colour, points))
    if chart.mark:
        parts.append(_dot(curves[0].colour, place(*chart.mark)))
    return _element("g", *parts, class_=scale.kind)


def _steps(last: int) -> list[int]:
    """Choose the updates that are named below a chart: round ones, and the last."""
    step = max(int(_round_step(last / _TICKS)), 1)
    return [*(number for number in range(0, last, step) if last - number > 0.12 * last), last]


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(about)) if about > 0 else 1.0
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= about * 0.999)


def _short(value: float) -> str:
    for limit, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * limit or (abs(value) >= limit and round(value) % 100 == 0):
            return f"{value / limit:.4g}{sign}"
    return f"{value:.3g}".replace("e-0", "e-") if 0 < abs(value) < 10 else f"{value:,.4g}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.5g}") if value % 1 else int(value) for value in values]


def _figure(title: str, about: str, plot: Markup, kind: str = "") -> Markup:
    caption = _element("figcaption", title, _element("div", about, class_="read"))
    return _element("figure", caption, plot, class_=kind)


def _legend(colours: Mapping[str, str]) -> Markup:
    return Markup().join(_element("span", class_=f"key {colour}") + name for name, colour in colours.items())


def _plot(
    words: str, inside: Iterable[Markup], labels: Iterable[Markup], kind: str = "", **attributes: object
) -> Markup:
    box = {"viewBox": f"0 0 {_SIDE} {_SIDE}", "preserveAspectRatio": "none", "role": "img", "aria_label": words}
    return _element("div", _element("svg", *inside, **box), *labels, class_=f"plot {kind}".rstrip(), **attributes)


def _bar(colour: str, left: float, width: float, height: float, title: str) -> Markup:
    height = max(height, _LEAST) if height > 0 else 0.0
    place = {"x": left, "y": 1 - height, "width": width, "height": height}
    sides = {name: _number(_SIDE * share) for name, share in place.items()}
    return _element("rect", _element("title", title), class_=colour, **sides)


def _base() -> Markup:
    return _element("line", class_="grid", x1=0, x2=_SIDE, y1=_SIDE, y2=_SIDE)


def _upright(kind: str, share: float) -> Markup:
    x = _number(_SIDE * share)
    return _element("line", class_=kind, x1=x, x2=x, y1=0, y2=_SIDE)


def _dot(colour: str, point: str) -> Markup:
    return _element("path", class_=f"{colour} dot", d=f"M{point}h0")


def _x_label(share: float, text: str) -> Markup:
    return _element("span", text, class_="x end" if share > 0.97 else "x", style=f"left:{100 * share:.1f}%")


def _y_label(share: float, text: str, kind: str = "linear") -> Markup:
    return _element("span", text, class_=f"y {kind}", style=f"bottom:{100 * share:.1f}%")


def _element(name: str, *inside: str, **attributes: object) -> Markup:
    """Write an element; text and values are escaped, Markup is taken as it is; a name may end in _ and has _ for -."""
    words = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    opening = Markup().join(Markup(' {}="{}"').format(*word) for word in words)
    return Markup("<{0}{1}>{2}</{0}>").format(name, opening, Markup().join(inside))
