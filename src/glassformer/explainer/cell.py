"""One number of a trace, taken apart: the formula with names, the same with numbers, and its operands.

Every operation of `model.operations` has one function here (`CELLS`), which names the terms of one cell.
T positions, H heads, K head width, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from torch import Tensor

from glassformer.errors import AddressError
from glassformer.model.trace import Address, Entry, Trace

_N_SHOWN: Final = 8  # terms of a long sum; the rest is one number


class Operand(NamedTuple):
    """A number that another was computed from."""

    name: str
    value: float
    address: str | None  # None: a weight or a constant


class Term(NamedTuple):
    """A part of a result, and the numbers it was computed from."""

    value: float
    operands: tuple[Operand, ...]
    written: str  # as arithmetic


class Cell(NamedTuple):
    """A number and how it was computed."""

    address: str
    operation: str
    formula: str  # with names
    numbers: str  # the same with numbers: arithmetic that gives `result`
    terms: tuple[Term, ...]  # strongest first
    result: float
    n_summed: int  # terms that the last number of the sum stands for
    back: Operand | None  # what it mostly comes from
    code: str  # module:line

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Return all operands once, those of the strongest term first."""
        return tuple(dict.fromkeys(operand for term in self.terms for operand in term.operands))


def explain_cell(trace: Trace, address: str) -> Cell:
    """Return how the number at an address was computed."""
    entry = trace.entry(address)
    index = _index(address, entry)
    parts = CELLS[entry.operation](_Place(trace, entry, index))
    terms = tuple(_strongest_first(parts.terms))
    recorded = (operand for term in terms for operand in term.operands if operand.address is not None)
    back = parts.back or next(recorded, None)
    result = entry.value[(0, *index)].item()
    where = address_of(entry, index)
    return Cell(where, entry.operation, parts.formula, parts.numbers, terms, result, parts.n_summed, back, entry.code)


def follow(trace: Trace, address: str, depth: int) -> list[Cell]:
    """Return a number and, up to `depth` times, the operand of the strongest term before it."""
    cells = [explain_cell(trace, address)]
    while len(cells) <= depth:
        back = cells[-1].back
        if back is None or back.address is None:
            break
        cells.append(explain_cell(trace, back.address))
    return cells


def address_of(entry: Entry, index: Sequence[int]) -> str:
    """Return the address of one number of a tensor, with its head."""
    if entry.axes[0] != "head":
        return f"{entry.address}[{','.join(map(str, index))}]"
    before, _, last = entry.address.rpartition(".")
    return f"{before}.h{index[0]}.{last}[{','.join(map(str, index[1:]))}]"


def number(value: float) -> str:
    """Return a number for arithmetic: six digits, in brackets if it is negative."""
    text = f"{value:.6g}"
    return f"({text})" if value < 0 else text


def _index(address: str, entry: Entry) -> tuple[int, ...]:
    where = Address.parse(address)
    found = where.pick(entry.value, entry.axes)  # raises if the index does not fit
    if found.dim() > 1:
        missing = ", ".join(entry.axes[len(entry.axes) - found.dim() + 1 :])
        raise AddressError(f"{address} has {found[0].numel()} numbers: add the index of {missing} to pick one")
    places = (() if where.head is None else (where.head,)) + where.places
    return tuple(place % size for place, size in zip(places, entry.shape, strict=True))


class _Place(NamedTuple):
    """A cell, and where to find its operands."""

    trace: Trace
    entry: Entry
    where: tuple[int, ...]

    def constant(self, name: str) -> Any:
        return self.entry.constants.get(name)

    def input(self, which: int, *index: int) -> Operand:
        """Return one number of an input; an axis of size 1 is broadcast."""
        entry = self.trace.entries[self.entry.inputs[which]]
        places = tuple(0 if size == 1 else place for place, size in zip(index, entry.shape, strict=True))
        short = entry.address.rpartition(".")[2]
        value = entry.value[(0, *places)].item()
        return Operand(f"{short}[{','.join(map(str, places))}]", value, address_of(entry, places))

    def row(self, which: int, *index: int) -> list[Operand]:
        """Return the numbers of an input along its last axis."""
        width = self.trace.entries[self.entry.inputs[which]].shape[-1]
        return [self.input(which, *index, last) for last in range(width)]

    @property
    def own(self) -> Operand:
        """Return the number of the first input that stands in the same place."""
        return self.input(0, *self.where)

    @property
    def value(self) -> float:
        """Return the number itself."""
        return float(self.entry.value[(0, *self.where)].item())

    @property
    def position(self) -> int:
        """Return the position in the sentence, for tables of positions and rotations."""
        return int(self.constant("start")) + self.where[-2]


class _Parts(NamedTuple):
    """The computation of a cell; see `Cell`."""

    formula: str
    numbers: str
    terms: Sequence[Term] = ()
    n_summed: int = 0
    back: Operand | None = None  # if not that of the strongest term


def _strongest_first(terms: Sequence[Term]) -> list[Term]:
    return sorted(terms, key=lambda term: -abs(term.value))


def _product(*operands: Operand) -> Term:
    value = math.prod(operand.value for operand in operands)
    return Term(value, operands, " × ".join(number(operand.value) for operand in operands))


def _summed(formula: str, terms: Sequence[Term], numbers: str = "{}", back: Operand | None = None) -> _Parts:
    """Write a sum into `numbers`, the strongest terms first and the rest as one number."""
    ordered = _strongest_first(terms)
    shown, rest = ordered[:_N_SHOWN], ordered[_N_SHOWN:]
    parts = [term.written for term in shown]
    if rest:
        parts.append(number(math.fsum(term.value for term in rest)))
    return _Parts(formula, numbers.format(" + ".join(parts) or "0"), terms, len(rest), back)


def _constant(name: str, value: Tensor | float) -> Operand:
    return Operand(name, value.item() if isinstance(value, Tensor) else value, None)


def _given(place: _Place) -> _Parts:
    return _Parts("id of the token", number(place.value))


def _gather(place: _Place) -> _Parts:
    token, channel = place.input(0, place.where[0]), place.where[1]
    row = int(token.value)
    weight = _constant(f"E[{row},{channel}]", place.constant("table")[row, channel])
    return _Parts(f"E[id, {channel}], id = {row}", number(weight.value), [Term(weight.value, (weight, token), "")])


def _rows(place: _Place) -> _Parts:
    position, channel = place.position, place.where[1]
    weight = _constant(f"P[{position},{channel}]", place.constant("table")[position, channel])
    return _Parts(f"P[{position}, {channel}]", number(weight.value), [_product(weight)])


def _sinusoid(place: _Place) -> _Parts:
    channel, width = place.where[1], place.constant("width")
    if place.constant("layout") == "interleaved":
        pair, is_cosine = channel // 2, channel % 2 == 1
    else:
        pair, is_cosine = channel % (width // 2), channel >= width // 2
    name = "cos" if is_cosine else "sin"
    return _Parts(f"{name}(pos / 10000^(2i/d))", f"{name}({place.position} / 10000 ** (2 × {pair} / {width}))")


def _rotate(place: _Place) -> _Parts:
    *before, channel = place.where
    pair, width = channel // 2, place.entry.shape[-1]
    even, odd = (place.input(0, *before, 2 * pair + side) for side in (0, 1))
    angle = place.position / 10000 ** (2 * pair / width)
    written = f"({place.position} / 10000 ** (2 × {pair} / {width}))"
    cos, sin = math.cos(angle), math.sin(angle)
    is_odd = channel % 2 == 1
    parts = ((even, sin, "sin"), (odd, cos, "cos")) if is_odd else ((even, cos, "cos"), (odd, -sin, "-sin"))
    terms = [Term(x.value * turn, (x,), f"{number(x.value)} × {name}{written}") for x, turn, name in parts]
    formula = " + ".join(f"{x.name} × {name}(α)" for x, _, name in parts)
    return _Parts(f"{formula}, α = pos / 10000^(2i/K)", " + ".join(term.written for term in terms), terms)


def _scale(place: _Place) -> _Parts:
    term = _product(place.own, _constant("factor", place.constant("factor")))
    return _Parts(f"{place.own.name} × factor", term.written, [term])


def _add(place: _Place) -> _Parts:
    terms = [_product(place.input(which, *place.where)) for which in (0, 1)]
    return _Parts(" + ".join(term.operands[0].name for term in terms), " + ".join(t.written for t in terms), terms)


def _linear(place: _Place) -> _Parts:
    head, position, channel = (0, *place.where)[-3:]
    column = head * place.entry.shape[-1] + channel  # in the weights, heads lie side by side
    row = place.constant("weight")[column].tolist()
    inputs = place.row(0, position)
    terms = [_product(Operand(f"W[{column},{i}]", row[i], None), operand) for i, operand in enumerate(inputs)]
    parts = _summed(f"Σᵢ W[{column},i] × {inputs[0].name.partition('[')[0]}[{position},i]", terms)
    if place.constant("bias") is None:
        return parts
    bias = _constant(f"b[{column}]", place.constant("bias")[column])
    formula, numbers = f"{bias.name} + {parts.formula}", f"{number(bias.value)} + {parts.numbers}"
    return parts._replace(formula=formula, numbers=numbers, terms=[*terms, _product(bias)])


def _matmul_t(place: _Place) -> _Parts:
    head, query, key = place.where
    terms = [_product(q, k) for q, k in zip(place.row(0, head, query), place.row(1, head, key), strict=True)]
    return _summed(f"Σᵢ q[{query},i] × k[{key},i]", terms)


def _weighted_sum(place: _Place) -> _Parts:
    head, query, channel = place.where
    weights = place.row(0, head, query)
    terms = [_product(place.input(1, head, key, channel), weight) for key, weight in enumerate(weights)]
    return _summed(f"Σⱼ v[j,{channel}] × weights[{query},j]", terms)


def _mask(place: _Place) -> _Parts:
    score = place.own
    if place.value > -math.inf:
        return _Parts(f"{score.name}, which may be attended to", number(score.value), [_product(score)])
    return _Parts("minus infinity: masked out", "-inf", [Term(-math.inf, (score,), "-inf")])


def _exponentials(place: _Place) -> tuple[str, list[Term]]:
    """Return the maximum of a row as text, and for each number that is not masked out e to its distance from it."""
    row = [x for x in place.row(0, *place.where[:-1]) if x.value > -math.inf]
    top = max(x.value for x in row)
    written = number(top)
    return written, [Term(math.exp(x.value - top), (x,), f"exp({number(x.value)} - {written})") for x in row]


def _softmax(place: _Place) -> _Parts:
    top, terms = _exponentials(place)
    above = f"exp({number(place.own.value)} - {top})" if place.own.value > -math.inf else "0"
    return _summed(f"exp({place.own.name} - max) / Σⱼ exp(sⱼ - max)", terms, f"{above} / ({{}})", place.own)


def _log_softmax(place: _Place) -> _Parts:
    top, terms = _exponentials(place)
    formula = f"{place.own.name} - max - log Σⱼ exp(xⱼ - max)"
    return _summed(formula, terms, f"{number(place.own.value)} - {top} - log({{}})", place.own)


def _concat(place: _Place) -> _Parts:
    position, channel = place.where
    head, inner = divmod(channel, place.trace.entries[place.entry.inputs[0]].shape[2])
    own = place.input(0, head, position, inner)
    return _Parts(f"head {head}, {own.name}", number(own.value), [_product(own)])


def _mean(place: _Place) -> _Parts:
    terms = [_product(x) for x in place.row(0, place.where[0])]
    return _summed(f"Σᵢ xᵢ / {len(terms)}", terms, f"({{}}) / {len(terms)}")


def _variance(place: _Place) -> _Parts:
    mean = place.input(1, place.where[0], 0)
    terms = [
        Term((x.value - mean.value) ** 2, (x, mean), f"({number(x.value)} - {number(mean.value)}) ** 2")
        for x in place.row(0, place.where[0])
    ]
    return _summed(f"Σᵢ (xᵢ - mean)² / {len(terms)}", terms, f"({{}}) / {len(terms)}")


def _normalise(place: _Place) -> _Parts:
    x, mean, variance = (place.input(which, *place.where) for which in range(3))
    eps = _constant("eps", place.constant("eps"))
    numbers = f"({number(x.value)} - {number(mean.value)}) / sqrt({number(variance.value)} + {number(eps.value)})"
    term = Term(place.value, (x, mean, variance, eps), numbers)
    return _Parts(f"({x.name} - mean) / sqrt(variance + eps)", numbers, [term])


def _affine(place: _Place) -> _Parts:
    channel = place.where[-1]
    gamma, beta = (_constant(f"{name}[{channel}]", place.constant(name)[channel]) for name in ("gamma", "beta"))
    scaled = _product(gamma, place.own)
    formula = f"{gamma.name} × {place.own.name} + {beta.name}"
    return _Parts(formula, f"{scaled.written} + {number(beta.value)}", [scaled, _product(beta)])


def _pointwise(function: str) -> Callable[[_Place], _Parts]:
    """Explain an operation that maps each number x by itself."""
    return lambda place: _Parts(
        function.format(x=place.own.name), function.format(x=number(place.own.value)), [_product(place.own)]
    )


CELLS: Final[dict[str, Callable[[_Place], _Parts]]] = {
    "add": _add,
    "affine": _affine,
    "concat": _concat,
    "gather": _gather,
    "gelu": _pointwise("{x} × (1 + erf({x} / sqrt(2))) / 2"),
    "given": _given,
    "heads": _linear,
    "linear": _linear,
    "log_softmax": _log_softmax,
    "mask": _mask,
    "matmul_t": _matmul_t,
    "mean": _mean,
    "normalise": _normalise,
    "relu": _pointwise("max(0, {x})"),
    "rotate": _rotate,
    "rows": _rows,
    "scale": _scale,
    "silu": _pointwise("{x} / (1 + exp(-{x}))"),
    "sinusoid": _sinusoid,
    "softmax": _softmax,
    "variance": _variance,
    "weighted_sum": _weighted_sum,
}
