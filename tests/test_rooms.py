"""The rooms of the package stand in a row, and a room imports only from its left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

from glassformer import _HOMES

PACKAGE = Path(__file__).parents[1] / "src" / "glassformer"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    "__init__",
    "errors",
    "config",
    "files",
    "text",
    "data",
    "model",
    "search",
    "store",
    "convert",
    "translate",
    "evaluation",
    "training",
    "explainer",
    "report",
    "notes",
    "trace",
    "api",
    "serve",
    "cli",
    "__main__",
)
DEFERRED = ("glassformer.translate.translator", "glassformer.explainer")  # `Translator.explain` may look to its right
LIGHT = ("__init__", "__main__", "cli", "config", "errors")  # what `import glassformer` and `--help` read


def name_of(path: Path) -> str:
    """Write a file of the package as a module, `glassformer.model.state`; an `__init__` keeps its name."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def room_of(module: str) -> str:
    return module.split(".")[1]


def imports(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Give the line and the full name of everything imported anywhere below `tree`, functions included.

    What is taken off the package, as `glassformer.look` or by another name for it, counts as imported: it is then.
    """
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    package = {alias.asname or alias.name for alias in aliases if alias.name == "glassformer"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in package:
            yield node.lineno, f"glassformer.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def imported_room(name: str) -> str:
    """Say which room a full name comes from."""
    if name == "glassformer":
        return "__init__"
    first = room_of(name)
    if first in _HOMES:
        return _HOMES[first].split(".")[0]
    return "__init__" if first.startswith("__") else first


def at_run_time(tree: ast.Module) -> ast.Module:
    """Leave out what only type checkers read."""
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body, [])


def at_top(tree: ast.Module) -> ast.Module:
    """Leave out type checking and the bodies of functions: what remains happens on import."""

    class WithoutFunctions(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

    top = WithoutFunctions().visit(at_run_time(tree))
    assert isinstance(top, ast.Module)
    return top


def wrong_imports(module: str, source: str) -> list[str]:
    """List the imports of a module that do not come from its left."""
    tree = ast.parse(source)
    if module == "glassformer.__init__":
        tree = at_run_time(tree)  # for type checkers it lists names of every room; those are looked up later
    room = room_of(module)
    if room not in ROOMS:
        return [f"{module}: {room} is no room; known: {', '.join(ROOMS)}"]
    wrong = []
    for line, name in imports(tree, module):
        if name.split(".")[0] != "glassformer" or _is_deferred(module, name):
            continue
        origin = imported_room(name)
        if origin not in ROOMS or ROOMS.index(origin) > ROOMS.index(room):
            wrong.append(f"{module}:{line} imports {name}, but {origin} is not left of {room}")
    return wrong


def _is_deferred(module: str, name: str) -> bool:
    return module == DEFERRED[0] and name.startswith(f"{DEFERRED[1]}.")


def torch_imports(module: str, tree: ast.AST) -> list[str]:
    return [f"{module}:{line}" for line, name in imports(tree, module) if name.split(".")[0] == "torch"]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_room_imports_only_from_its_left(path: Path) -> None:
    assert wrong_imports(name_of(path), path.read_text(encoding="utf-8")) == []


def test_the_translator_looks_to_its_right_only_when_asked_to_explain() -> None:
    module, room = DEFERRED
    tree = ast.parse((PACKAGE / "translate" / "translator.py").read_text(encoding="utf-8"))
    assert any(_is_deferred(module, name) for _, name in imports(tree, module))
    assert not [name for _, name in imports(at_top(tree), module) if name.startswith(room)]


def test_text_knows_no_torch() -> None:
    modules = [path for path in FILES if room_of(name_of(path)) == "text"]
    assert modules
    for path in modules:
        assert torch_imports(name_of(path), ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", LIGHT)
def test_light_modules_import_no_torch_at_the_top(name: str) -> None:
    path = next(path for path in (PACKAGE / f"{name}.py", PACKAGE / name / "__init__.py") if path.is_file())
    assert torch_imports(name_of(path), at_top(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("glassformer.errors", "from glassformer.config import ModelConfig"),
        ("glassformer.model.state", "from glassformer.search.beam import beam_search"),
        ("glassformer.model.state", "import glassformer.search.beam"),
        ("glassformer.model.state", "from ..search import beam"),
        ("glassformer.model.__init__", "from ..search import beam"),
        ("glassformer.model.state", "def late():\n    from glassformer.search.beam import beam_search"),
        ("glassformer.model.state", "if TYPE_CHECKING:\n    from glassformer.search.beam import beam_search"),
        ("glassformer.model.state", "from glassformer import beam_search"),
        ("glassformer.model.state", "from glassformer import search"),
        ("glassformer.model.state", "import glassformer\nglassformer.beam_search"),
        ("glassformer.model.state", "import glassformer as gf\ngf.search"),
        ("glassformer.model.state", "from glassformer.cellar import wine"),
        ("glassformer.cellar.wine", "import math"),
        ("glassformer.__init__", "from glassformer.config import preset"),
    ],
)
def test_the_check_catches_a_wrong_import(module: str, source: str) -> None:
    assert len(wrong_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("glassformer.model.state", "from glassformer.model.attention import KeyValue"),
        ("glassformer.model.state", "from .attention import KeyValue"),
        ("glassformer.search.beam", "from glassformer import ModelConfig, model"),
        ("glassformer.cli", "from glassformer import __version__"),
        ("glassformer.report.info", "import glassformer\nglassformer.__file__, glassformer.Transformer"),
        ("glassformer.__main__", "from glassformer.cli import main"),
        ("glassformer.__init__", "if TYPE_CHECKING:\n    from glassformer.config import preset"),
        ("glassformer.text.vocab", "import glassformery"),
    ],
)
def test_the_check_lets_a_right_import_pass(module: str, source: str) -> None:
    assert wrong_imports(module, source) == []


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("import torch", True),
        ("from torch import nn", True),
        ("import torch.nn.functional as F", True),
        ("try:\n    import torch\nexcept ImportError:\n    pass", True),
        ("class A:\n    import torch", True),
        ("if TYPE_CHECKING:\n    import torch", False),
        ("def late():\n    import torch", False),
        ("import torchless", False),
    ],
)
def test_the_check_knows_what_happens_on_import(source: str, caught: bool) -> None:
    assert bool(torch_imports("glassformer.cli", at_top(ast.parse(source)))) == caught
