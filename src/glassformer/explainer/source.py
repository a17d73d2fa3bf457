"""The lines of code that computed a tensor, read from the running modules."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import cache
from typing import NamedTuple

from glassformer.model.operations import OPERATIONS


class OperationSource(NamedTuple):
    """The code of an operation."""

    code: str  # module:line
    source: str  # the body, without docstring
    says: str  # the docstring


@cache
def statement(code: str) -> str:
    """Return the statement at `module:line`, without indentation."""
    module, _, line = code.rpartition(":")
    text = _text(module)
    around = [node for node in _statements(module) if node.lineno <= int(line) <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    lines = text.splitlines()[inner.lineno - 1 : inner.end_lineno]
    return textwrap.dedent("\n".join(lines))


@cache
def operation_source(name: str) -> OperationSource:
    """Return the body of an operation and its place."""
    function = OPERATIONS[name]
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse("".join(lines)).body[0]
    assert isinstance(tree, ast.FunctionDef), f"{name} is not a function"
    body = tree.body[1:]  # after the docstring
    begin, end = body[0].lineno, body[-1].end_lineno
    source = textwrap.dedent("".join(lines[begin - 1 : end])).rstrip()
    says = (inspect.getdoc(function) or "").splitlines()[0]
    return OperationSource(f"{function.__module__}:{first + begin - 1}", source, says)


@cache
def _text(module: str) -> str:
    return inspect.getsource(sys.modules[module])


@cache
def _statements(module: str) -> tuple[ast.stmt, ...]:
    simple = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)
    return tuple(node for node in ast.walk(ast.parse(_text(module))) if isinstance(node, simple))
