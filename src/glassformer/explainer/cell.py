"""One number of a trace, taken apart: the formula with names, the same with numbers, and what went into it.

Every operation of `model.operations` has one function here, which says of one cell which terms make it up.
T positions, H heads, K head width, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from torch import Tensor

from glassformer.errors import AddressError
from glassformer.model.trace import Address, Entry, Trace

_N_SHOWN: Final = 8  # terms of a long sum; the others are added up


class Operand(NamedTuple):
    """A number that went into another."""

    name: str
    value: float
    address: str | None  # None: a weight or a constant


class Term(NamedTuple):
    """A part of a result, and the numbers that make it."""

    value: float
    operands: tuple[Operand, ...]
    written: str  # as arithmetic

    @property
    def recorded(self) -> Operand | None:
        """The first of the operands that the model computed, if any."""
        return next((operand for operand in self.operands if operand.address is not None), None)


class Cell(NamedTuple):
    """A number and how it came about."""

    address: str
    operation: str
    formula: str  # with names
    numbers: str  # the same with numbers: arithmetic that gives `result`
    terms: tuple[Term, ...]  # strongest first
    result: float
    n_summed: int  # terms that stand as one number at the end of the sum
    back: Operand | None  # what it mostly comes from
    code: str  # module:line

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All numbers that went in, each once, those of the strongest term first."""
        return tuple(dict.fromkeys(operand for term in self.terms for operand in term.operands))


def explain_cell(trace: Trace, address: str) -> Cell:
    """Take the number at an address apart."""
    entry = trace.entry(address)
    index = _index(address, entry)
    parts = CELLS[entry.operation](_Place(trace, entry, index))
    terms = tuple(_strongest_first(parts.terms))
    back = parts.back or next((term.recorded for term in terms if term.recorded is not None), None)
    result = entry.value[(0, *index)].item()
    where = address_of(entry, index)
    return Cell(where, entry.operation, parts.formula, parts.numbers, terms, result, parts.n_summed, back, entry.code)


def follow(trace: Trace, address: str, depth: int) -> list[Cell]:
    """Go back from a number through the operand of its strongest term, and so on, up to `depth` times."""
    cells = [explain_cell(trace, address)]
    while len(cells) <= depth:
        back = cells[-1].back
        if back is None or back.address is None:
            break
        cells.append(explain_cell(trace, back.address))
    return cells


def address_of(entry: Entry, index: Sequence[int]) -> str:
    """Write the address of one number of a tensor, with its head."""
    if entry.axes[0] != "head":
        return f"{entry.address}[{','.join(map(str, index))}]"
    before, _, last = entry.address.rpartition(".")
    return f"{before}.h{index[0]}.{last}[{','.join(map(str, index[1:]))}]"


def number(value: float) -> str:
    """Write a number for arithmetic: six digits, in brackets if it is negative."""
    text = f"{value:.6g}"
    return f"({text})" if value < 0 else text


def _index(address: str, entry: Entry) -> tuple[int, ...]:
    where = Address.parse(address)
    found = where.pick(entry.value, entry.axes)  # names what is wrong with the index, if anything
    if found.dim() > 1:
        missing = ", ".join(entry.axes[len(entry.axes) - found.dim() + 1 :])
        raise AddressError(f"{address} names {found[0].numel()} numbers: add the index of {missing} for one of them")
    places = (() if where.head is None else (where.head,)) + where.places
    return tuple(place % size for place, size in zip(places, entry.shape, strict=True))


class _Place(NamedTuple):
    """A cell, and where to find what it was made of."""

    trace: Trace
    entry: Entry
    where: tuple[int, ...]

    def constant(self, name: str) -> Any:
        return self.entry.constants.get(name)

    def input(self, which: int, *index: int) -> Operand:
        """Give a number of an input; along an axis of one number there is only that one."""
        entry = self.trace.entries[self.entry.inputs[which]]
        places = tuple(0 if size == 1 else place for place, size in zip(index, entry.shape, strict=True))
        short = entry.address.rpartition(".")[2]
        value = entry.value[(0, *places)].item()
        return Operand(f"{short}[{','.join(map(str, places))}]", value, address_of(entry, places))

    def row(self, which: int, *index: int) -> list[Operand]:
        """Give the numbers of an input along its last axis."""
        width = self.trace.entries[self.entry.inputs[which]].shape[-1]
        return [self.input(which, *index, last) for last in range(width)]

    def size(self, which: int, axis: int) -> int:
        return self.trace.entries[self.entry.inputs[which]].shape[axis]


class _Parts(NamedTuple):
    """What a cell is made of; see `Cell`."""

    formula: str
    numbers: str
    terms: Sequence[Term] = ()
    n_summed: int = 0
    back: Operand | None = None  # where it is not that of the strongest term


def _strongest_first(terms: Sequence[Term]) -> list[Term]:
    return sorted(terms, key=lambda term: -abs(term.value))


def _product(*operands: Operand) -> Term:
    value = math.prod(operand.value for operand in operands)
    return Term(value, operands, " × ".join(number(operand.value) for operand in operands))


def _single(operand: Operand, written: str | None = None) -> Term:
    return Term(operand.value, (operand,), number(operand.value) if written is None else written)


def _sum(terms: Sequence[Term]) -> tuple[str, int]:
    """Write a sum, the strongest terms first and the others as one number."""
    ordered = _strongest_first(terms)
    shown, others = ordered[:_N_SHOWN], ordered[_N_SHOWN:]
    parts = [term.written for term in shown]
    if others:
        parts.append(number(math.fsum(term.value for term in others)))
    return " + ".join(parts) or "0", len(others)


def _constant(name: str, value: Tensor | float) -> Operand:
    return Operand(name, value.item() if isinstance(value, Tensor) else value, None)


def _given(place: _Place) -> _Parts:
    value = place.entry.value[(0, *place.where)].item()
    return _Parts("id of the token", number(value))


def _gather(place: _Place) -> _Parts:
    token, channel = place.input(0, place.where[0]), place.where[1]
    row = int(token.value)
    weight = _constant(f"E[{row},{channel}]", place.constant("table")[row, channel])
    return _Parts(f"E[id, {channel}], id = {row}", number(weight.value), [Term(weight.value, (weight, token), "")])


def _rows(place: _Place) -> _Parts:
    position, channel = place.constant("start") + place.where[0], place.where[1]
    weight = _constant(f"P[{position},{channel}]", place.constant("table")[position, channel])
    return _Parts(f"P[{position}, {channel}]", number(weight.value), [_single(weight)])


def _sinusoid(place: _Place) -> _Parts:
    position, channel, width = place.constant("start") + place.where[0], place.where[1], place.constant("width")
    if place.constant("layout") == "interleaved":
        pair, is_cosine = channel // 2, channel % 2 == 1
    else:
        pair, is_cosine = channel % (width // 2), channel >= width // 2
    name = "cos" if is_cosine else "sin"
    return _Parts(f"{name}(pos / 10000^(2i/d))", f"{name}({position} / 10000 ** (2 × {pair} / {width}))")


def _rotate(place: _Place) -> _Parts:
    head, row, channel = place.where
    position, width, pair = place.constant("start") + row, place.size(0, 2), channel // 2
    angle = f"{position} / 10000 ** (2 × {pair} / {width})"
    turn = position / 10000 ** (2 * pair / width)
    even, odd = (place.input(0, head, row, 2 * pair + i) for i in (0, 1))
    sides = ((even, "cos"), (odd, "-sin")) if channel % 2 == 0 else ((even, "sin"), (odd, "cos"))
    factors = {"cos": math.cos(turn), "sin": math.sin(turn), "-sin": -math.sin(turn)}
    terms = [
        Term(
            x.value * factors[name],
            (x, Operand(f"{name} a", factors[name], None)),
            f"{number(x.value)} × {name}({angle})",
        )
        for x, name in sides
    ]
    formula = " + ".join(f"{x.name} × {name} a" for x, name in sides)
    return _Parts(f"{formula}, a = pos / 10000^(2i/K)", " + ".join(term.written for term in terms), terms)


def _scale(place: _Place) -> _Parts:
    term = _product(place.input(0, *place.where), _constant("factor", place.constant("factor")))
    return _Parts(f"{term.operands[0].name} × factor", term.written, [term])


def _add(place: _Place) -> _Parts:
    terms = [_single(place.input(which, *place.where)) for which in (0, 1)]
    return _Parts(" + ".join(term.operands[0].name for term in terms), " + ".join(t.written for t in terms), terms)


def _linear(place: _Place) -> _Parts:
    return _map(place, place.where[0], place.where[1])


def _heads(place: _Place) -> _Parts:
    head, position, channel = place.where
    return _map(place, position, head * place.entry.shape[2] + channel)


def _map(place: _Place, position: int, column: int) -> _Parts:
    weight: Tensor = place.constant("weight")
    row = weight[column].tolist()
    inputs = place.row(0, position)
    terms = [_product(Operand(f"W[{column},{i}]", row[i], None), operand) for i, operand in enumerate(inputs)]
    formula = f"Σᵢ W[{column},i] × {inputs[0].name.partition('[')[0]}[{position},i]"
    numbers, n_summed = _sum(terms)
    if place.constant("bias") is None:
        return _Parts(formula, numbers, terms, n_summed)
    bias = _constant(f"b[{column}]", place.constant("bias")[column])
    return _Parts(f"b[{column}] + {formula}", f"{number(bias.value)} + {numbers}", [*terms, _single(bias)], n_summed)


def _matmul_t(place: _Place) -> _Parts:
    head, query, key = place.where
    terms = [_product(q, k) for q, k in zip(place.row(0, head, query), place.row(1, head, key), strict=True)]
    numbers, n_summed = _sum(terms)
    return _Parts(f"Σᵢ q[{query},i] × k[{key},i]", numbers, terms, n_summed)


def _weighted_sum(place: _Place) -> _Parts:
    head, query, channel = place.where
    weights = place.row(0, head, query)
    terms = [_product(place.input(1, head, key, channel), weight) for key, weight in enumerate(weights)]
    numbers, n_summed = _sum(terms)
    return _Parts(f"Σⱼ v[j,{channel}] × weights[{query},j]", numbers, terms, n_summed)


def _mask(place: _Place) -> _Parts:
    score = place.input(0, *place.where)
    is_allowed = place.entry.value[(0, *place.where)].item() > -math.inf
    if is_allowed:
        return _Parts(f"{score.name}, which may be seen", number(score.value), [_single(score)])
    return _Parts("minus infinity: it may not be seen", "-inf", [Term(-math.inf, (score,), "-inf")])


def _exponentials(place: _Place) -> tuple[list[Operand], float, list[Term]]:
    """Give a row, its maximum, and e to the power of each that is not masked, less the maximum."""
    row = place.row(0, *place.where[:-1])
    top = max(operand.value for operand in row)
    terms = [
        Term(math.exp(x.value - top), (x,), f"exp({number(x.value)} - {number(top)})")
        for x in row
        if x.value > -math.inf
    ]
    return row, top, terms


def _softmax(place: _Place) -> _Parts:
    row, top, terms = _exponentials(place)
    own = row[place.where[-1]]
    total, n_summed = _sum(terms)
    above = f"exp({number(own.value)} - {number(top)})" if own.value > -math.inf else "0"
    return _Parts(f"exp({own.name} - max) / Σⱼ exp(sⱼ - max)", f"{above} / ({total})", terms, n_summed, own)


def _log_softmax(place: _Place) -> _Parts:
    row, top, terms = _exponentials(place)
    own = row[place.where[-1]]
    total, n_summed = _sum(terms)
    formula = f"{own.name} - max - log Σⱼ exp(xⱼ - max)"
    return _Parts(formula, f"{number(own.value)} - {number(top)} - log({total})", terms, n_summed, own)


def _concat(place: _Place) -> _Parts:
    position, channel = place.where
    head, inner = divmod(channel, place.size(0, 2))
    own = place.input(0, head, position, inner)
    return _Parts(f"head {head}, {own.name}", number(own.value), [_single(own)])


def _mean(place: _Place) -> _Parts:
    terms = [_single(x) for x in place.row(0, place.where[0])]
    total, n_summed = _sum(terms)
    return _Parts(f"Σᵢ xᵢ / {len(terms)}", f"({total}) / {len(terms)}", terms, n_summed)


def _variance(place: _Place) -> _Parts:
    mean = place.input(1, place.where[0], 0)
    terms = [
        Term((x.value - mean.value) ** 2, (x, mean), f"({number(x.value)} - {number(mean.value)}) ** 2")
        for x in place.row(0, place.where[0])
    ]
    total, n_summed = _sum(terms)
    return _Parts(f"Σᵢ (xᵢ - mean)² / {len(terms)}", f"({total}) / {len(terms)}", terms, n_summed)


def _normalise(place: _Place) -> _Parts:
    x = place.input(0, *place.where)
    mean, variance = (place.input(which, place.where[0], 0) for which in (1, 2))
    eps = _constant("eps", place.constant("eps"))
    numbers = f"({number(x.value)} - {number(mean.value)}) / sqrt({number(variance.value)} + {number(eps.value)})"
    value = (x.value - mean.value) / math.sqrt(variance.value + eps.value)
    return _Parts(
        f"({x.name} - mean) / sqrt(variance + eps)", numbers, [Term(value, (x, mean, variance, eps), numbers)]
    )


def _affine(place: _Place) -> _Parts:
    channel = place.where[-1]
    gamma, beta = (_constant(f"{name}[{channel}]", place.constant(name)[channel]) for name in ("gamma", "beta"))
    x = place.input(0, *place.where)
    scaled = _product(gamma, x)
    formula = f"{gamma.name} × {x.name} + {beta.name}"
    return _Parts(formula, f"{scaled.written} + {number(beta.value)}", [scaled, _single(beta)])


def _relu(place: _Place) -> _Parts:
    x = place.input(0, *place.where)
    return _Parts(f"max(0, {x.name})", f"max(0, {number(x.value)})", [_single(x)])


def _gelu(place: _Place) -> _Parts:
    x = place.input(0, *place.where)
    own = number(x.value)
    formula = f"x × (1 + erf(x / sqrt(2))) / 2, x = {x.name}"
    return _Parts(formula, f"{own} × (1 + erf({own} / sqrt(2))) / 2", [_single(x)])


def _silu(place: _Place) -> _Parts:
    x = place.input(0, *place.where)
    own = number(x.value)
    return _Parts(f"x / (1 + exp(-x)), x = {x.name}", f"{own} / (1 + exp(-{own}))", [_single(x)])


CELLS: Final[dict[str, Callable[[_Place], _Parts]]] = {
    "add": _add,
    "affine": _affine,
    "concat": _concat,
    "gather": _gather,
    "gelu": _gelu,
    "given": _given,
    "heads": _heads,
    "linear": _linear,
    "log_softmax": _log_softmax,
    "mask": _mask,
    "matmul_t": _matmul_t,
    "mean": _mean,
    "normalise": _normalise,
    "relu": _relu,
    "rotate": _rotate,
    "rows": _rows,
    "scale": _scale,
    "silu": _silu,
    "sinusoid": _sinusoid,
    "softmax": _softmax,
    "variance": _variance,
    "weighted_sum": _weighted_sum,
}
