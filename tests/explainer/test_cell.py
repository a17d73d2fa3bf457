"""Cells: the printed arithmetic gives the printed result, and every operand is where its address says."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import AddressError
from glassformer.explainer.cell import CELLS, address_of, explain_cell, follow
from glassformer.model.operations import OPERATIONS
from glassformer.model.trace import Trace, look
from tests.models import build

_SIGNS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "erf": math.erf,
    "max": max,
}


def evaluate(text: str) -> float:
    """Compute printed arithmetic, and nothing else."""
    return _value(ast.parse(text.replace("×", "*"), mode="eval").body)


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        return node.value
    if isinstance(node, ast.Name):
        assert node.id == "inf"
        return math.inf
    if isinstance(node, ast.BinOp):
        return _SIGNS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp):
        return _SIGNS[type(node.op)](_value(node.operand))
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _FUNCTIONS[node.func.id](*map(_value, node.args))


MODELS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre", "final_norm": True, "positions": "learned", "activation": "gelu"},
    "halves": {"positions": "halves", "activation": "silu", "attention_bias": False, "n_heads": 4},
    "rotary": {"positions": "rotary"},
    "wide": {"d_model": 32, "d_ff": 48, "output_bias": True},
}
TRACES = {name: look(build(3, **changes), [4, 9, 5, 7, 3], [2, 6, 8, 10, 4]) for name, changes in MODELS.items()}


def random_addresses(trace: Trace, seed: int) -> list[str]:
    """Draw one number of every tensor."""
    draws = torch.Generator().manual_seed(seed)
    return [
        address_of(entry, [int(torch.randint(size, (1,), generator=draws)) for size in entry.shape])
        for entry in trace.entries.values()
    ]


def test_every_operation_can_be_explained() -> None:
    assert CELLS.keys() == OPERATIONS.keys()
    assert {entry.operation for trace in TRACES.values() for entry in trace.entries.values()} == OPERATIONS.keys()


@given(st.sampled_from(sorted(TRACES)), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_printed_formulas_give_the_printed_results(name: str, seed: int) -> None:
    trace = TRACES[name]
    for address in random_addresses(trace, seed):
        cell = explain_cell(trace, address)
        assert cell.address == address
        assert cell.result == trace[address]
        size = max([1e-3, abs(cell.result), *(abs(t.value) for t in cell.terms if math.isfinite(t.value))])
        assert evaluate(cell.numbers) == pytest.approx(cell.result, abs=2e-4 * size), address


@given(st.sampled_from(sorted(TRACES)), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_operands_are_where_they_say(name: str, seed: int) -> None:
    trace = TRACES[name]
    for address in random_addresses(trace, seed):
        cell = explain_cell(trace, address)
        for operand in cell.operands:
            if operand.address is not None:
                assert trace[operand.address] == operand.value
        inputs = {trace.entry(o.address).address for o in cell.operands if o.address is not None}
        assert inputs == set(trace.entry(address).inputs)
        assert (cell.back is None) == (not inputs)


@pytest.mark.parametrize("operation", ["linear", "heads", "matmul_t", "weighted_sum", "add"])
def test_terms_of_a_sum_make_it_up(operation: str) -> None:
    for trace in TRACES.values():
        for entry in trace.entries.values():
            if entry.operation == operation:
                cell = explain_cell(trace, address_of(entry, [size - 1 for size in entry.shape]))
                assert math.fsum(term.value for term in cell.terms) == pytest.approx(cell.result, abs=1e-12)
                strengths = [abs(term.value) for term in cell.terms]
                assert strengths == sorted(strengths, reverse=True)


def test_a_logit_leads_back_to_a_token() -> None:
    trace = TRACES["wide"]
    cells = follow(trace, "out.logits[4,6]", 200)
    for cell, before in pairwise(cells):
        assert cell.back is not None
        assert before.address == cell.back.address
    assert cells[-1].operation in ("given", "sinusoid")
    assert len(cells) > 5
    assert follow(trace, "out.logits[4,6]", 3) == cells[:4]
    assert follow(trace, "out.logits[4,6]", 0) == cells[:1]


def test_what_may_not_be_seen_is_minus_infinity() -> None:
    cell = explain_cell(TRACES["post"], "dec.0.self.h0.masked[1,3]")
    assert cell.numbers == "-inf"
    assert explain_cell(TRACES["post"], "dec.0.self.h0.weights[1,3]").result == 0


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("enc.0.self.h0.weights[2]", "src_k"),
        ("enc.0.self.weights", "head, src_q, src_k"),
        ("enc.0.self.h7.weights[0,0]", "2 along head"),
        ("enc.9.self.q[0,0,0]", "did you mean"),
        ("nonsense!", "not an address"),
    ],
)
def test_a_wrong_address_is_said(address: str, said: str) -> None:
    with pytest.raises(AddressError, match=said):
        explain_cell(TRACES["post"], address)


def test_places_count_from_the_end_too() -> None:
    trace = TRACES["post"]
    assert explain_cell(trace, "enc.sum[-1,-2]") == explain_cell(trace, "enc.sum[4,6]")
