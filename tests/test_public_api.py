"""What the package offers: every module says so in a sorted, complete `__all__`, and every name is explained."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py" and path.read_text().strip())


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def declared(tree: ast.Module) -> list[str]:
    """Read a module's `__all__`; without one it offers nothing."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return []


def defined(tree: ast.Module) -> list[str]:
    """List the public names that a module makes itself; a type variable is nobody's business."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("ParamSpec", "TypeVar")


def by_kind(name: str) -> tuple[int, str]:
    """Sort CONSTANTS before Classes before functions, as the linter does."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_all_is_sorted_and_complete(path: Path) -> None:
    tree = parse(path)
    assert declared(tree) == sorted(defined(tree), key=by_kind)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_exports_resolve_and_are_explained(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "the module says what it is"
    module = import_module(name_of(path))
    for name in declared(tree):
        assert hasattr(module, name)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            # Read from the source: a dataclass and a named tuple have a `__doc__` that nobody wrote.
            assert ast.get_docstring(node), f"{node.name} says what it is"


def test_package_exports_agree() -> None:
    """`__all__`, the map of homes and what type checkers see are three lists of the same names."""
    homes = {name: f"glassformer.{home}" for name, home in glassformer._HOMES.items()}
    (checking,) = (node for node in parse(PACKAGE / "__init__.py").body if isinstance(node, ast.If))
    assert ast.unparse(checking.test) == "TYPE_CHECKING"
    seen = {
        alias.name: node.module for node in checking.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert glassformer.__all__ == sorted(homes, key=by_kind)
    assert list(homes) == glassformer.__all__
    assert seen == homes


@pytest.mark.parametrize("name", glassformer.__all__)
def test_package_exports_resolve(name: str) -> None:
    home = import_module(f"glassformer.{glassformer._HOMES[name]}")
    assert name in home.__all__
    assert getattr(glassformer, name) is getattr(home, name)
    assert name in dir(glassformer)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        getattr(glassformer, "Transfomer")  # noqa: B009 - a type checker knows better


def test_the_check_can_fail() -> None:
    tree = ast.parse(
        "from math import pi\n__all__ = ['B', 'a']\nT = TypeVar('T')\nB = 1\n_c = 2\ndef a(): pass\nclass D: pass\n"
    )
    assert defined(tree) == ["B", "a", "D"]
    assert sorted(["a", "D", "LIMIT"], key=by_kind) == ["LIMIT", "D", "a"]
    assert declared(tree) != sorted(defined(tree), key=by_kind)
