"""Tables, bars and heat maps for the terminal, as values that rich can lay out.

The density of a block carries its value, never its colour, so that a picture survives NO_COLOR, a pipe and a light
theme.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_SHADES: Final = "·░▒▓█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_INK: Final = "cyan"
_NUMBER: Final = re.compile(r"([-+]?\d.*)?")
_TRAILING: Final = re.compile(r" +$", re.MULTILINE)

# Substitutes for a terminal that has only ASCII; one for one in pictures and tables, so that columns hold.
_ASCII: Final = {
    **dict(zip("·░▒▓█", ".:+*#", strict=True)),
    **dict(zip("▏▎▍▌▋▊▉", "...====", strict=True)),
    **dict(zip("₀₁₂₃₄₅₆₇₈₉ₕᵢⱼₖₘₙₜ×", "0123456789hijkmntx", strict=True)),
    **dict(zip("√Σγβμσε", ("sqrt ", "sum ", "gamma", "beta", "mu", "sigma", "eps"), strict=True)),
    **dict(zip("²⁰ᵀᴺʲˡ⁺¹₋∞→…", ("^2", "^0", "^T", "^N", "^j", "^l", "+", "1", "-", "inf", "->", "..."), strict=True)),
}


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    low: float | None = None,
    high: float | None = None,
    digits: int | None = None,
    ends: tuple[str, str] | None = None,
) -> Text:
    """Draw a matrix in blocks, `low` the lightest and `high` the densest, each with its number to `digits` digits.

    The limits default to the extremes of the matrix; values that are not finite stay blank. `ends` says what the
    two limits mean, in a legend below.
    """
    finite = [value for row in values for value in row if math.isfinite(value)] or [0.0]
    low, high = min(finite) if low is None else low, max(finite) if high is None else high
    sign = " " if min(finite) < 0 else "-"
    cells = [[_cell(value, _shade(value, low, high), digits, sign) for value in row] for row in values]
    width = max([2, *map(cell_len, chain(columns, *cells))])
    margin = max(map(cell_len, rows), default=0) + 1
    lines = []
    if any(columns):
        names = " ".join(set_cell_size(name, width) for name in columns)
        lines.append(Text(" " * margin + names.rstrip(), style="dim"))
    for name, row in zip(rows, cells, strict=True):
        blocks = (set_cell_size(cell[0] * width if digits is None else cell, width) for cell in row)
        lines.append(Text(set_cell_size(name, margin)).append(" ".join(blocks), style=_INK))
    if ends is not None:
        lines += [Text(), legend(*ends)]
    return _picture(lines)


def legend(low: str, high: str) -> Text:
    """Return a legend that says what the lightest and the densest block of a heat map mean."""
    blocks = " ".join(shade * 2 for shade in _SHADES)
    return Text.assemble((f"{low} ", "dim"), (blocks, _INK), (f" {high}", "dim"))


def bar(value: float, full: float, width: int = 24) -> Text:
    """Draw `value` as a bar that is `width` long at `full`, to an eighth of a block."""
    share = min(max(value / full, 0.0), 1.0) if full > 0 else 0.0
    whole, rest = divmod(round(share * width * 8), 8)
    return Text("█" * whole + (_EIGHTHS[rest] if rest else ""), style=_INK)


def bars(values: Mapping[str, float], digits: int = 3, full: float | None = None, width: int = 24) -> Table:
    """Draw named numbers as bars below one another; the largest, or `full`, is `width` long."""
    full = max(values.values(), default=0.0) if full is None else full
    return table((), ((name, f"{value:.{digits}f}", bar(value, full, width)) for name, value in values.items()))


def table(header: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Container[int] = ()) -> Table:
    """Lay out rows without lines: columns of numbers, and those listed in `right`, are aligned to the right."""
    body = [tuple(row) for row in rows]
    drawing = Table(box=None, pad_edge=False, show_header=bool(header), header_style="dim", padding=(0, 3, 0, 0))
    for number, cells in enumerate(zip(*body, strict=True)):
        is_number = number > 0 and all(isinstance(cell, str) and _NUMBER.fullmatch(cell) for cell in cells)
        name = Text(header[number] if header else "")
        drawing.add_column(name, justify="right" if is_number or number in right else "left", overflow="fold")
    for row in body:
        drawing.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))  # a str could hold markup
    return drawing


def side_by_side(pictures: Mapping[str, Text]) -> Table:
    """Put pictures side by side, each under its caption."""
    grid = Table.grid(padding=(0, 5, 0, 0))
    grid.add_row(*(_picture([Text(caption, style="italic"), picture]) for caption, picture in pictures.items()))
    return grid


def vector(values: Iterable[float], digits: int = 2, aligned: bool = True) -> str:
    """Write a vector; if `aligned`, entries with and without a sign take the same width."""
    width = digits + 3 if aligned else 0
    return "(" + ", ".join(f"{value:z{width}.{digits}f}" for value in values) + ")"


def tiny(value: float) -> str:
    """Write a difference that should be zero: 0 if it is, else its order of magnitude."""
    return "0" if value == 0 else f"{value:.0e}"


def duration(seconds: float) -> str:
    """Write a time in words: 42 s, 12 min, 3 h 05, 2.5 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d}" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"


def percent(part: int, total: int) -> str:
    """Write a share to two digits: 0.013%, 1.6%, 93%, 100%."""
    share = 100 * part / total
    return f"{share:.0f}%" if share >= 10 else f"{share:.2g}%"


def show(console: Console, renderable: RenderableType, *, wrap: bool = True) -> None:
    """Print to a console, in characters that its encoding has and without trailing blanks.

    Without `wrap`, lines are as long as they are, whatever the width: a path can be taken from a pipe.
    """
    with console.capture() as captured:
        console.print(renderable, highlight=False, soft_wrap=not wrap)
    console.file.write(legible(_TRAILING.sub("", captured.get()), console.encoding))
    console.file.flush()


def legible(text: str, encoding: str) -> str:
    """Replace each character that `encoding` lacks by the nearest one it has."""
    return "".join(_nearest(character, encoding) for character in text)


def _nearest(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return _ASCII.get(character, "?")
    return character


def _cell(value: float, shade: str, digits: int | None, sign: str) -> str:
    if digits is None or not math.isfinite(value):
        return shade
    return f"{shade * 2} {value:{sign}z.{digits}f}"


def _shade(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    share = (value - low) / (high - low) if high > low else 1.0
    return _SHADES[min(max(int(share * len(_SHADES)), 0), len(_SHADES) - 1)]


def _picture(lines: Iterable[Text]) -> Text:
    drawing = Text("\n").join(lines)
    drawing.no_wrap, drawing.overflow = True, "crop"
    return drawing
