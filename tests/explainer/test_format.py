"""The page's JavaScript is formatted by jsbeautifier; `python -m tests.explainer.test_format` does it in place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import jsbeautifier  # type: ignore[import-untyped]
import pytest

STATIC: Final = Path(__file__).parents[2] / "src/glassformer/explainer/static"
FILES: Final = sorted(STATIC.glob("*.js"))
WIDTH: Final = 120
SETTINGS: Final = {
    "indent_size": 2,
    "wrap_line_length": WIDTH,
    "brace_style": "collapse,preserve-inline",
    "operator_position": "after-newline",
    "max_preserve_newlines": 2,
    "end_with_newline": True,
}


def formatted(path: Path) -> str:
    """Return the text of a module as the formatter lays it out."""
    text: str = jsbeautifier.beautify(path.read_text(encoding="utf-8"), SETTINGS)
    return text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_is_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == formatted(path), "run python -m tests.explainer.test_format"
    assert max(map(len, text.splitlines())) <= WIDTH


if __name__ == "__main__":
    for path in FILES:
        path.write_text(formatted(path), encoding="utf-8")
