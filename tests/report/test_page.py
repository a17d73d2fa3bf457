"""The templates of all reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from glassformer.report import page
from glassformer.report.page import markdown, render

TEMPLATES = Path(page.__file__).with_name("templates")


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_styles_are_whole(path: Path) -> None:
    """A brace too few, and a browser leaves out all that follows."""
    text = path.read_text(encoding="utf-8")
    assert text.count("{") == text.count("}")


def test_values_are_escaped_in_html() -> None:
    values = {"first": "<b>", "other": "&", "comparisons": [], "n_same": 0, "sentences": []}
    drawn = render("comparison.html.j2", **values)
    assert "<title>&lt;b&gt; and &amp;</title>" in drawn


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="first"):
        render("comparison.html.j2")


def test_markdown_becomes_html_in_which_nothing_is_fetched_or_run() -> None:
    drawn = markdown(
        "# A\n\n| a | b |\n|---|---|\n| `c` | d |\n\n<script>x</script> ![i](http://x/y.png) [l](javascript:x)"
    )
    assert "<h1>A</h1>" in drawn
    assert "<td><code>c</code></td>" in drawn
    assert "<script" not in drawn
    assert "<img" not in drawn
    assert 'href="javascript' not in drawn
