"""What the package offers: every public name resolves, and every module and public name has a docstring."""

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


def by_kind(name: str) -> tuple[int, str]:
    """Sort CONSTANTS before Classes before functions, as the linter does."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


def is_row(node: ast.AST) -> bool:
    """Whether a function computes the numbers of a row of the notes, which is its documentation."""
    if not isinstance(node, ast.FunctionDef) or node.returns is None or ast.unparse(node.returns) != "Slots":
        return False
    return len(list(PACKAGE.glob(f"notes/rows/??-{node.name.replace('_', '-')}.md"))) == 1


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_import_and_document_themselves(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "the module has a docstring"
    import_module(name_of(path))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            # Read from the source: a dataclass and a named tuple have a `__doc__` that nobody wrote.
            assert ast.get_docstring(node) or is_row(node), f"{node.name} has a docstring"


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
    assert getattr(glassformer, name) is getattr(home, name)
    assert name in dir(glassformer)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        getattr(glassformer, "Transfomer")  # noqa: B009 - a type checker knows better


def test_no_room_shadows_a_public_name() -> None:
    """Importing a submodule binds its name in the package: none may hide a function or class."""
    for path in MODULES:
        import_module(name_of(path))
    for name in glassformer.__all__:
        home = import_module(f"glassformer.{glassformer._HOMES[name]}")
        assert getattr(glassformer, name) is getattr(home, name)
        assert callable(getattr(glassformer, name))


@pytest.mark.parametrize("name", glassformer._MOVED)
def test_moved_names_still_work_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"use glassformer.trace.{name}"):
        moved = getattr(glassformer, name)
    assert moved is getattr(import_module("glassformer.trace"), name)
